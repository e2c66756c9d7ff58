"""The difference between two images, computed once for all listeners (Kafka: MetadataDelta).

Parts that no record touched are the same objects in both images (`replay.py`), so comparing them
costs next to nothing.
"""

from __future__ import annotations

from itertools import compress
from operator import is_not, ne
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tidelog.cluster.metadata.image import DEFAULT_BROKER_RESOURCE, ClusterImage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.cluster.metadata.image import BrokerImage, PartitionImage, TopicImage

__all__ = ["BrokerDelta", "MetadataDelta", "TopicDelta"]

_Key = TypeVar("_Key")


class TopicDelta(NamedTuple):
    """A topic that is new (`old` is None) or has other partitions, and those of its partitions that
    are new or changed, as they are now."""

    old: TopicImage | None
    new: TopicImage
    partitions: tuple[PartitionImage, ...]


class BrokerDelta(NamedTuple):
    """A broker that was registered, changed or unregistered (`new` is None)."""

    old: BrokerImage | None
    new: BrokerImage | None


class MetadataDelta:
    """What one publication changes. The first one, without an `old` image, changes everything.

    A topic that was deleted and created again is a deleted and a new one. `topic_configs` and
    `broker_configs` name the resources whose settings differ, also those that have none any more;
    so do `group_configs` and `client_quotas`. A broker's setting that was set to the value it has
    counts too: it makes the broker read the files that it names again (KAFKA-14136).
    """

    __slots__ = (
        "broker_configs",
        "brokers",
        "client_quotas",
        "deleted_topics",
        "group_configs",
        "old",
        "topic_configs",
        "topics",
    )

    def __init__(self, old: ClusterImage | None, new: ClusterImage) -> None:
        self.old = old
        before = old or ClusterImage(cluster_id=new.cluster_id)
        self.deleted_topics = _deleted(before, new)
        self.topics = _changed_topics(before, new)
        self.topic_configs = _changed(before.topic_configs, new.topic_configs)
        self.broker_configs = _changed(before.broker_configs, new.broker_configs, is_not)
        self.group_configs = _changed(before.group_configs, new.group_configs)
        self.client_quotas = _changed(before.client_quotas, new.client_quotas)
        self.brokers = {
            node_id: BrokerDelta(before.brokers.get(node_id), new.brokers.get(node_id))
            for node_id in _changed(before.brokers, new.brokers)
        }

    def configures(self, node_id: int) -> bool:
        """Return whether the dynamic settings of a broker changed."""
        return DEFAULT_BROKER_RESOURCE in self.broker_configs or str(node_id) in self.broker_configs


def _deleted(old: ClusterImage, new: ClusterImage) -> tuple[TopicImage, ...]:
    if old.topic_names is new.topic_names:
        return ()
    return tuple(t for t in old.topics.values() if t.topic_id not in new.topic_names)


def _changed_topics(old: ClusterImage, new: ClusterImage) -> dict[str, TopicDelta]:
    if old.topics is new.topics:
        return {}
    found = {}
    for name, topic in new.topics.items():
        before = old.topics.get(name)
        if before is topic:
            continue
        if before is None or before.topic_id != topic.topic_id:
            found[name] = TopicDelta(None, topic, topic.partitions)
        else:
            found[name] = TopicDelta(before, topic, _changed_partitions(before, topic))
    return found


def _changed_partitions(old: TopicImage, new: TopicImage) -> tuple[PartitionImage, ...]:
    known = len(old.partitions)
    changed = compress(new.partitions, map(is_not, old.partitions, new.partitions))
    return (*changed, *new.partitions[known:])


def _changed(
    old: Mapping[_Key, object],
    new: Mapping[_Key, object],
    differ: Callable[[object, object], bool] = ne,
) -> tuple[_Key, ...]:
    """Return the keys whose values differ, in the order of `new`, the removed ones last."""
    if old is new:
        return ()
    changed = [key for key, value in new.items() if differ(old.get(key), value)]
    return (*changed, *(key for key in old if key not in new))
