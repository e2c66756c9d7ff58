"""The difference of two images: with the old image it gives the new one, whatever the records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from support.metadata import cluster
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.replay import replay
from tidelog_protocol.messages import metadata_records as tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.cluster.metadata.image import ClusterImage, TopicImage
    from tidelog_protocol.schema import Message

NAMES = ("a", "b", "c")
TOPIC, BROKER, GROUP = 2, 4, 32


def id_of(name: str, life: int) -> bytes:
    return name.encode() + life.to_bytes(15, "big")


def created(name: str, life: int, partitions: int) -> Iterator[Message]:
    yield tables.TopicRecord(name=name, topic_id=id_of(name, life))
    for index in range(partitions):
        yield tables.PartitionRecord(
            partition_id=index,
            topic_id=id_of(name, life),
            replicas=[1, 2],
            isr=[1, 2],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        )


def registered(node_id: int, epoch: int) -> Message:
    return tables.RegisterBrokerRecord(broker_id=node_id, broker_epoch=epoch, fenced=True)


class Records:
    """Draws records that fit the image, a few for each publication."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.image = cluster()
        self.lives = 0

    def after(self, *records: Message) -> ClusterImage:
        self.image = replay(
            self.image,
            records,
            offset=self.image.offset + len(records),
            leader_epoch=1,
            controller_id=1,
        )
        return self.image

    def draw(self) -> None:
        """One change of the image."""
        pick: Any = self.data.draw
        name, node_id = pick(st.sampled_from(NAMES)), pick(st.integers(1, 3))
        topic, broker = self.image.topics.get(name), self.image.brokers.get(node_id)
        self.lives += 1
        match pick(st.sampled_from(("topic", "partition", "settings", "broker", "fence"))):
            case "topic" if topic is None:
                self.after(*created(name, self.lives, pick(st.integers(1, 3))))
            case "topic":
                self.after(tables.RemoveTopicRecord(topic_id=topic.topic_id))
            case "partition" if topic is not None:
                change = tables.PartitionChangeRecord(
                    partition_id=pick(st.integers(0, len(topic.partitions) - 1)),
                    topic_id=topic.topic_id,
                    leader=node_id,
                )
                self.after(change)
            case "settings":
                kind = pick(st.sampled_from((TOPIC, BROKER, GROUP)))
                value = pick(st.sampled_from((None, "1")))
                resource = str(node_id) if kind == BROKER else name
                if kind != TOPIC or topic is not None:
                    record = tables.ConfigRecord(
                        resource_type=kind, resource_name=resource, name="x", value=value
                    )
                    self.after(record)
            case "broker" if broker is None:
                self.after(registered(node_id, self.lives))
            case "broker":
                gone = tables.UnregisterBrokerRecord(broker_id=node_id, broker_epoch=broker.epoch)
                self.after(gone)
            case "fence" if broker is not None:
                kind = tables.UnfenceBrokerRecord if broker.fenced else tables.FenceBrokerRecord
                self.after(kind(id=node_id, epoch=broker.epoch))


def applied_to(old: ClusterImage | None, delta: MetadataDelta, new: ClusterImage) -> dict[str, Any]:
    """What a listener has that keeps its own view and changes it by the delta alone."""
    topics: dict[bytes, TopicImage] = {}
    view: dict[str, Any] = {"topics": topics, "brokers": {}, "topic_configs": {}}
    view |= {"broker_configs": {}, "group_configs": {}, "client_quotas": {}}
    if old is not None:
        topics |= {topic.topic_id: topic for topic in old.topics.values()}
        view["brokers"] |= old.brokers
        view["topic_configs"] |= old.topic_configs
        view["broker_configs"] |= old.broker_configs
        view["group_configs"] |= old.group_configs
        view["client_quotas"] |= old.client_quotas
    for topic in delta.deleted_topics:
        del topics[topic.topic_id]
    for name, change in delta.topics.items():
        known = topics.get(change.new.topic_id)
        assert known is change.old
        states = {} if known is None else {one.partition: one for one in known.partitions}
        for state in change.partitions:
            assert states.get(state.partition) != state, "an unchanged partition"
            states[state.partition] = state
        assert name == change.new.name
        topics[change.new.topic_id] = change.new._replace(partitions=tuple(states.values()))
    for node_id, broker in delta.brokers.items():
        assert view["brokers"].get(node_id) == broker.old != broker.new
        view["brokers"][node_id] = broker.new
    for kind, names in (
        ("topic_configs", delta.topic_configs),
        ("broker_configs", delta.broker_configs),
        ("group_configs", delta.group_configs),
        ("client_quotas", delta.client_quotas),
    ):
        for name in names:
            settings = getattr(new, kind).get(name)
            if kind == "broker_configs":  # set again, to the value they have, they count
                assert view[kind].get(name) is not settings, "the change set no settings"
            else:
                assert view[kind].get(name) != settings, "unchanged settings"
            view[kind][name] = settings
    return view


def view_of(image: ClusterImage) -> dict[str, Any]:
    return {
        "topics": {topic.topic_id: topic for topic in image.topics.values()},
        "brokers": dict(image.brokers),
        "topic_configs": dict(image.topic_configs),
        "broker_configs": dict(image.broker_configs),
        "group_configs": dict(image.group_configs),
        "client_quotas": dict(image.client_quotas),
    }


def without_removed(view: dict[str, Any]) -> dict[str, Any]:
    return {
        kind: {key: value for key, value in values.items() if value is not None}
        for kind, values in view.items()
    }


@given(st.data())
def test_a_delta_applied_to_the_old_image_gives_the_new_one(data: st.DataObject) -> None:
    records = Records(data)
    old: ClusterImage | None = None
    for changes in data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=6)):
        for _ in range(changes):
            records.draw()
        new = records.image
        delta = MetadataDelta(old, new)
        assert without_removed(applied_to(old, delta, new)) == view_of(new)
        old = new


def test_the_first_delta_has_everything() -> None:
    records = Records(None)  # type: ignore[arg-type]
    image = records.after(registered(1, 5), *created("a", 1, 2))
    delta = MetadataDelta(None, image)
    assert delta.old is None
    assert delta.topics["a"] == (None, image.topics["a"], image.topics["a"].partitions)
    assert delta.brokers == {1: (None, image.brokers[1])}
    assert not delta.deleted_topics


def test_a_topic_created_again_is_a_deleted_and_a_new_one() -> None:
    records = Records(None)  # type: ignore[arg-type]
    old = records.after(*created("a", 1, 2))
    new = records.after(tables.RemoveTopicRecord(topic_id=id_of("a", 1)), *created("a", 2, 2))
    delta = MetadataDelta(old, new)
    assert delta.deleted_topics == (old.topics["a"],)
    assert delta.topics["a"].old is None
    assert delta.topics["a"].partitions == new.topics["a"].partitions


def test_dynamic_settings_concern_the_broker_they_name_or_all() -> None:
    records = Records(None)  # type: ignore[arg-type]

    def setting(resource: str) -> MetadataDelta:
        record = tables.ConfigRecord(
            resource_type=4, resource_name=resource, name="x", value=str(records.image.offset)
        )
        return MetadataDelta(records.image, records.after(record))

    assert [setting(resource).configures(1) for resource in ("", "1", "2")] == [True, True, False]
