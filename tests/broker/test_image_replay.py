"""Records into images: each record's effect, what is shared, what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.metadata import DIRECTORY_ID, NODE_ID, cluster, topic
from tidelog.cluster.metadata.replay import ReplayError, merge_partition, replay
from tidelog_protocol.messages import metadata_records as tables

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog_protocol.schema import Message

ONE, TWO, LOST = ((number).to_bytes(16, "big") for number in (1, 2, 99))


def after(image: ClusterImage, *records: Message, offset: int = 7) -> ClusterImage:
    return replay(image, records, offset=offset, leader_epoch=3, controller_id=NODE_ID)


def partition_record(index: int, topic_id: bytes = ONE) -> tables.PartitionRecord:
    return tables.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[1, 2],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[DIRECTORY_ID, bytes(16)],
    )


def test_a_new_topic() -> None:
    image = after(
        cluster(),
        tables.TopicRecord(name="__consumer_offsets", topic_id=ONE),
        tables.ConfigRecord(
            resource_type=2, resource_name="__consumer_offsets", name="a", value="b"
        ),
        partition_record(1),
        partition_record(0),
    )
    new = image.topics["__consumer_offsets"]
    assert new.is_internal
    assert [partition.partition for partition in new.partitions] == [0, 1]
    assert new.partitions[0].replicas == (1, 2)
    assert new.partitions[0].directories == (DIRECTORY_ID, bytes(16))
    assert image.topic_names == {ONE: "__consumer_offsets"}
    assert image.topic_by_id(ONE) is new
    assert image.topic_config("__consumer_offsets") == {"a": "b"}
    assert (image.offset, image.leader_epoch, image.controller_id) == (7, 3, NODE_ID)


def test_what_does_not_change_is_the_same_object() -> None:
    old = cluster(topic("a", 1), topic("b", 2), broker_configs={"": {"x": "1"}})
    new = after(
        old,
        tables.PartitionChangeRecord(partition_id=0, topic_id=ONE, leader=1),
    )
    assert new.topics["b"] is old.topics["b"]
    assert new.topics["a"] is not old.topics["a"]
    assert new.broker_configs is old.broker_configs
    assert new.brokers is old.brokers
    assert new.topic_names is old.topic_names
    assert old.topics["a"].partitions[0].leader_epoch == 0, "the old image stays as it was"


def test_a_deleted_topic_takes_its_settings_along() -> None:
    old = cluster(topic("a", 1), topic("b", 2), topic_configs={"a": {"x": "1"}})
    new = after(old, tables.RemoveTopicRecord(topic_id=ONE))
    assert list(new.topics) == ["b"]
    assert new.topic_names == {TWO: "b"}
    assert new.topic_configs == {}
    assert new.partition("a", 0) is None


def test_a_topic_created_again_under_its_name() -> None:
    new = after(
        cluster(topic("a", 1, partitions=3)),
        tables.RemoveTopicRecord(topic_id=ONE),
        tables.TopicRecord(name="a", topic_id=TWO),
        partition_record(0, TWO),
    )
    assert new.topics["a"].topic_id == TWO
    assert len(new.topics["a"].partitions) == 1
    assert new.topic_by_id(ONE) is None


def test_changes_of_a_partition() -> None:
    old = topic("a", 1, replicas=(1, 2)).partitions[0]
    same = merge_partition(old, tables.PartitionChangeRecord())
    assert same == old._replace(partition_epoch=1)
    led = merge_partition(old, tables.PartitionChangeRecord(leader=1))
    assert (led.leader, led.leader_epoch, led.partition_epoch) == (1, 1, 1)
    gone = merge_partition(
        old,
        tables.PartitionChangeRecord(
            leader=-1, isr=[], eligible_leader_replicas=[1], last_known_elr=[1]
        ),
    )
    assert (gone.leader, gone.leader_epoch, gone.isr) == (-1, 1, ())
    assert gone.eligible_leader_replicas == gone.last_known_eligible_leader_replicas == (1,)
    unclean = merge_partition(gone, tables.PartitionChangeRecord(leader=2, leader_recovery_state=1))
    assert (unclean.leader_epoch, unclean.leader_recovery_state) == (2, 1)
    moved = merge_partition(
        old,
        tables.PartitionChangeRecord(
            replicas=[2, 3], adding_replicas=[3], removing_replicas=[1], directories=[ONE, TWO]
        ),
    )
    assert (moved.replicas, moved.adding_replicas, moved.removing_replicas) == ((2, 3), (3,), (1,))
    assert moved.directories == (ONE, TWO)
    assert moved.leader_epoch == 0


def test_eligible_replicas_cleared() -> None:
    image = after(
        cluster(topic("a", 1, partitions=2), topic("b", 2)),
        tables.PartitionChangeRecord(
            partition_id=1, topic_id=ONE, eligible_leader_replicas=[1], last_known_elr=[1]
        ),
        tables.ClearElrRecord(topic_name="a"),
    )
    first, second = image.topics["a"].partitions
    assert (first.partition_epoch, second.partition_epoch) == (0, 2)
    assert second.eligible_leader_replicas == ()
    everywhere = after(image, tables.ClearElrRecord(topic_name=""))
    assert everywhere.topics["b"] is image.topics["b"]


def test_settings() -> None:
    def config(kind: int, name: str, key: str, value: str | None) -> tables.ConfigRecord:
        return tables.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)

    image = after(
        cluster(topic("a", 1)),
        config(4, "", "x", "1"),
        config(4, "1", "x", "2"),
        config(4, "1", "y", "3"),
        config(2, "a", "z", "4"),
        config(32, "group", "z", "4"),
    )
    assert image.broker_config(1) == {"x": "2", "y": "3"}
    assert image.broker_config(2) == {"x": "1"}
    assert image.topic_config("a") == {"z": "4"}
    assert image.group_config("group") == {"z": "4"}
    assert image.group_config("other") == {}
    assert after(image, config(32, "group", "z", None)).group_configs == {}
    cleared = after(image, config(2, "a", "z", None), config(4, "", "x", None))
    assert cleared.topic_configs == {}
    assert "" not in cleared.broker_configs
    assert after(cluster(), config(2, "a", "z", None)).topic_configs == {}


def test_brokers() -> None:
    image = after(
        cluster(),
        tables.RegisterBrokerRecord(
            broker_id=2,
            incarnation_id=ONE,
            broker_epoch=11,
            end_points=[
                tables.RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="h", port=9)
            ],
            rack="r",
            fenced=True,
            log_dirs=[DIRECTORY_ID],
        ),
    )
    assert image.brokers[2].host == "h"
    assert (image.brokers[2].rack, image.brokers[2].log_dirs) == ("r", (DIRECTORY_ID,))
    assert not image.is_alive(2)
    assert [broker.node_id for broker in image.alive_brokers()] == [1]
    change = tables.BrokerRegistrationChangeRecord
    alive = after(image, change(broker_id=2, broker_epoch=11, fenced=-1))
    assert alive.is_alive(2)
    leaving = after(alive, change(broker_id=2, broker_epoch=11, in_controlled_shutdown=1))
    assert leaving.is_alive(2)
    assert leaving.brokers[2].in_controlled_shutdown
    assert not after(leaving, change(broker_id=2, broker_epoch=11, fenced=1)).is_alive(2)
    assert not after(alive, tables.FenceBrokerRecord(id=2, epoch=11)).is_alive(2)
    assert after(image, tables.UnfenceBrokerRecord(id=2, epoch=11)).is_alive(2)
    gone = after(alive, tables.UnregisterBrokerRecord(broker_id=2, broker_epoch=11))
    assert 2 not in gone.brokers


@pytest.mark.parametrize(("listener", "port"), [("INNER", 2), ("OUTER", 1), ("OTHER", 1), ("", 1)])
def test_a_broker_is_reached_on_this_ones_listener(listener: str, port: int) -> None:
    """In a rolling change brokers have different inter-broker listeners."""
    Endpoint = tables.RegisterBrokerRecord.BrokerEndpoint  # noqa: N806 - a class
    record = tables.RegisterBrokerRecord(
        broker_id=2,
        incarnation_id=ONE,
        broker_epoch=11,
        end_points=[
            Endpoint(name="OUTER", host="h", port=1),
            Endpoint(name="INNER", host="h", port=2, security_protocol=3),
        ],
    )
    image = after(cluster()._replace(listener=listener), record)
    assert image.address_of(2) == ("h", port)


def test_features_and_producer_ids() -> None:
    image = after(
        cluster(),
        tables.FeatureLevelRecord(name="metadata.version", feature_level=30),
        tables.FeatureLevelRecord(name="group.version", feature_level=1),
        tables.FeatureLevelRecord(name="group.version", feature_level=0),
        tables.ProducerIdsRecord(broker_id=1, broker_epoch=4, next_producer_id=1000),
        tables.NoOpRecord(),
    )
    assert image.features == {"metadata.version": 30}
    assert image.next_producer_id == 1000


@pytest.mark.parametrize(
    "records",
    [
        [tables.TopicRecord(name="a", topic_id=TWO)],
        [tables.RemoveTopicRecord(topic_id=LOST)],
        [partition_record(0, LOST)],
        [partition_record(5)],
        [tables.PartitionChangeRecord(partition_id=1, topic_id=ONE)],
        [tables.ClearElrRecord(topic_name="nix")],
        [tables.UnregisterBrokerRecord(broker_id=9, broker_epoch=1)],
        [tables.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=3, fenced=1)],
        [tables.ProducerIdsRecord(broker_id=1, broker_epoch=4, next_producer_id=0)],
        [tables.AbortTransactionRecord()],
    ],
    ids=lambda records: type(records[0]).__name__,
)
def test_records_that_do_not_fit(records: list[Message]) -> None:
    with pytest.raises(ReplayError):
        after(cluster(topic("a", 1)), *records)
