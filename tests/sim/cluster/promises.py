"""What admins were promised: where replicas are, what was deleted, who belongs to the cluster.

Beside `checkers.py`, which knows logs: these promises are about what an administrator asked for.
Some hold at once, most only when the cluster has had time (`unkept`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sim.cluster.tier_habits import FOLDERS
from sim.history import require
from sim.raw_logs import DATA, read_log
from tidelog_storage.checkpoints import PARTITION_METADATA
from tidelog_storage.folders import STRAY_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.cluster.client import Key
    from sim.history import History, PartitionHistory
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.simulation.disk import SimDisk
    from tidelog.simulation.machines import Machines

Replicas = frozenset[int]
WHOLE_BYTES = 43  # of a partition.metadata


class Placement:
    """The replicas one partition may end up with."""

    def __init__(self, name: str, start: Replicas) -> None:
        self.name = name  # of the topic
        self.allowed = {start}
        self.in_doubt: set[Replicas] = set()  # asked for, lost, and perhaps done late

    def may_be(self) -> set[Replicas]:
        """All it may end up with."""
        return self.allowed | self.in_doubt


class Promises:
    """What was asked for and acknowledged."""

    def __init__(self, machines: Machines, history: History) -> None:
        self.machines, self.history = machines, history
        self.moving = asyncio.Lock()  # one move at a time
        self.placements: dict[Key, Placement] = {}
        self.unregistered: set[int] = set()
        self._deleted: dict[PartitionHistory, int] = {}  # to log starts

    def placement(self, name: str, key: Key, start: Replicas) -> Placement:
        """Of a partition; a request that was lost may reach a later topic of the name."""
        if key not in self.placements:
            placement = self.placements[key] = Placement(name, start)
            for other, earlier in self.placements.items():
                if (earlier.name, other[1]) == (name, key[1]):
                    placement.in_doubt |= earlier.in_doubt
        return self.placements[key]

    def records_deleted(self, partition: PartitionHistory, offset: int) -> None:
        """Everybody who lives has dropped the records below this offset."""
        offset = max(offset, self._deleted.get(partition, 0))
        if self._has_dropped(partition, offset):
            self._deleted[partition] = offset

    def before_death(self, node_id: int, how: str) -> None:
        """A crash takes back a log start that is not on disk yet, unless another who is in sync has
        it, too, and leads now."""
        for partition, offset in list(self._deleted.items()) if how != "stop" else ():
            if not self._has_dropped(partition, offset, without=node_id):
                del self._deleted[partition]

    def _has_dropped(
        self, partition: PartitionHistory, offset: int, without: int | None = None
    ) -> bool:
        """Whether somebody who is in sync has no records below this offset."""
        image = self.machines.image()
        topic = None if image is None else image.topic_by_id(partition.topic.topic_id)
        # The newest image of the brokers that live may be older than a partition.
        partitions = () if topic is None else topic.partitions
        in_sync = {state.partition: state.isr for state in partitions}.get(partition.index, ())
        return any(
            start >= offset and node_id in in_sync and node_id != without
            for node_id, start in self._starts(partition)
        )

    def _starts(self, partition: PartitionHistory) -> Iterator[tuple[int, int]]:
        """Log starts of the replicas that live, by broker."""
        for node_id, found in self.machines.partitions():
            key = (found.topic_id, found.topic_partition.partition)
            if key == (partition.topic.topic_id, partition.index):
                yield node_id, found.log.log_start_offset

    # -- in the end --------------------------------------------------------------------------------

    def unkept(self) -> str | None:
        """A promise that waits to be kept; None if all are."""
        image = self.machines.image()
        if image is None:
            return "there is no metadata"
        registered = sorted(self.unregistered & image.brokers.keys())
        if registered:
            return f"brokers {registered} are unregistered and there"
        return self._moving(image) or self._remains(image)

    def _moving(self, image: ClusterImage) -> str | None:
        for topic in image.topics.values():
            for state in topic.partitions:
                name = f"{topic.name}-{state.partition}"
                if state.adding_replicas or state.removing_replicas:
                    return f"{name} still moves: {state}"
        return None

    def _remains(self, image: ClusterImage) -> str | None:
        """Folders of topics or replicas that are not there any more.

        Strays are kept. An empty folder is what a crash inside a creation leaves, and no broker
        uses it; nor one with a torn partition.metadata, which names no owner, and no record.
        """
        for machine in self.machines:
            for folder in sorted(machine.disk.folders):
                name = folder.removeprefix(f"{DATA}/")
                if name == folder or name in FOLDERS or name == "__cluster_metadata-0":
                    continue
                if name.endswith(STRAY_SUFFIX) or _has_no_owner(machine.disk, folder):
                    continue
                topic, _, index = name.rpartition("-")
                state = image.partition(topic, int(index)) if index.isdigit() else None
                if state is None or machine.config.node_id not in state.replicas:
                    return f"{folder} is still on {machine.host}"
        return None

    def check(self) -> None:
        """What holds in the end, when nothing waits any more."""
        image = self.machines.image()
        assert image is not None
        for topic in self.history.topics.values():
            found = image.topic_by_id(topic.topic_id)
            if topic.state == "gone":
                require(found is None, f"the deleted topic {topic.name} is back")
            elif topic.state == "exists":
                count = 0 if found is None else len(found.partitions)
                require(count >= topic.partitions_min, f"{topic.name} has {count} partitions")
        for (topic_id, index), placement in self.placements.items():
            found = image.topic_by_id(topic_id)
            if found is not None:
                replicas = frozenset(found.partitions[index].replicas)
                require(
                    replicas in placement.may_be(),
                    f"{found.name}-{index} is on {sorted(replicas)}, was to be on one of"
                    f" {sorted(map(sorted, placement.may_be()))}",
                )
        self._check_deleted()

    def _check_deleted(self) -> None:
        """Deleted records stay deleted."""
        for partition, offset in self._deleted.items():
            for node_id, start in self._starts(partition):
                require(
                    start >= offset,
                    f"{partition} on {node_id} starts at {start} again, {offset} was deleted",
                )


def _has_no_owner(disk: SimDisk, folder: str) -> bool:
    owner = disk.names.get(f"{folder}/{PARTITION_METADATA}")
    is_torn = owner is not None and len(owner.data) < WHOLE_BYTES
    return not disk.has_files(folder) or (is_torn and not read_log(disk, folder).batches())
