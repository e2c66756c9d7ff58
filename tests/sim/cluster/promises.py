"""What admins were promised: where replicas are, what was deleted, who belongs to the cluster.

Beside `checkers.py`, which knows logs: these promises are about what an administrator asked for.
Some hold at once, most only when the cluster has had time (`unkept`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.history import require
from sim.raw_logs import DATA

if TYPE_CHECKING:
    from sim.cluster.client import Key
    from sim.cluster.machines import Machines
    from sim.history import History, PartitionHistory
    from tidelog.metadata.image import ClusterImage

Replicas = frozenset[int]


class Placement:
    """The replicas one partition may end up with."""

    def __init__(self, start: Replicas) -> None:
        self.allowed = {start}
        self.in_doubt: set[Replicas] = set()  # asked for, lost, and perhaps done late

    def may_be(self) -> set[Replicas]:
        """All it may end up with."""
        return self.allowed | self.in_doubt


class Promises:
    """What was asked for and acknowledged."""

    def __init__(self, machines: Machines, history: History) -> None:
        self.machines, self.history = machines, history
        self.placements: dict[Key, Placement] = {}
        self.unregistered: set[int] = set()
        self._deleted: dict[PartitionHistory, tuple[int, int]] = {}  # log start, deaths before

    @property
    def _deaths(self) -> int:
        """Lives that did not end in order: they may take a log start back that was not on disk."""
        return sum(how != "stop" for machine in self.machines.all for _, how in machine.deaths)

    def records_deleted(self, partition: PartitionHistory, offset: int) -> None:
        """Everybody who lives has dropped the records below this offset."""
        before = self._deleted.get(partition, (0, 0))
        self._deleted[partition] = max(before, (offset, self._deaths))

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
        """Folders of topics or replicas that are not there any more."""
        for machine in self.machines:
            for folder in sorted(machine.disk.folders):
                name = folder.removeprefix(f"{DATA}/")
                if name == folder or name == "__cluster_metadata-0":
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
        """Deleted records stay deleted, as long as no two crashes came between."""
        deaths = self._deaths
        for partition, (offset, before) in self._deleted.items():
            for node_id, found in self.machines.partitions():
                key = (found.topic_id, found.topic_partition.partition)
                if key == (partition.topic.topic_id, partition.index) and deaths < before + 2:
                    require(
                        found.log.log_start_offset >= offset,
                        f"{partition} on {node_id} starts at {found.log.log_start_offset} again,"
                        f" {offset} was deleted",
                    )
