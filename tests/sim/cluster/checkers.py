"""What must hold in a cluster: at every step, at every death and start, and at the end.

`Committed` is the simulation's own memory of a log: every batch that lay below a high watermark
anywhere. It may never be another one anywhere else, and every new leader must have all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.checkers import METADATA_FOLDER
from sim.history import require
from sim.raw_logs import DATA, read_log
from tidelog.quorum.core import Role

if TYPE_CHECKING:
    from sim.cluster.machines import Machines
    from sim.history import History, PartitionHistory
    from sim.machine import Machine

STEPS_BETWEEN_CHECKS = 8
STEPS_BETWEEN_READS = 20_000


class Committed:
    """Batches of one log that were below a high watermark, by base offset."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: dict[int, bytes] = {}
        self.end = 0  # the highest high watermark of a leader

    def compare(self, machine: Machine, folder: str, high_watermark: int) -> None:
        """Take or compare what one replica has below its high watermark."""
        for batch in read_log(machine.disk, folder).batches():
            header = batch.header
            if header.last_offset >= high_watermark:
                break
            known = self.batches.setdefault(header.base_offset, batch.data)
            require(
                known == batch.data,
                f"{self.name}: replicas differ below the high watermark, at {header.base_offset}"
                f" on {machine.host} (epoch {header.leader_epoch})",
            )


class ClusterCheckers:
    """All checks of one run."""

    def __init__(self, machines: Machines, history: History) -> None:
        self.machines, self.history = machines, history
        self.metadata = Committed("metadata log")
        self.logs: dict[tuple[bytes, int], Committed] = {}  # by topic id: a name may come back
        self._steps = 0
        self._quorum_leaders: dict[int, int] = {}  # by epoch
        self._leaders: dict[tuple[bytes, int, int], int] = {}  # by partition and epoch
        self._newest: dict[tuple[bytes, int], int] = {}  # the newest epoch of a partition
        self._high_watermarks: dict[tuple[int, int, bytes, int], tuple[int, int, int]] = {}
        self._quorum_epochs: dict[tuple[int, int], int] = {}

    # -- at every step -----------------------------------------------------------------------------

    def after_step(self) -> None:
        """Leaders, epochs and offsets now and then; bytes more seldom."""
        self._steps += 1
        if self._steps % STEPS_BETWEEN_CHECKS:
            return
        self._check_quorum()
        ends: dict[tuple[bytes, int], dict[int, int]] = {}
        for node_id, partition in self.machines.partitions():
            self._check_partition(node_id, partition)
            key = (partition.topic_id, partition.topic_partition.partition)
            ends.setdefault(key, {})[node_id] = partition.log.log_end_offset
        for node_id, partition in self.machines.partitions():
            key = (partition.topic_id, partition.topic_partition.partition)
            self._check_copies(node_id, partition, ends[key])
        if self._steps % STEPS_BETWEEN_READS == 0:
            self.check_bytes()

    def _check_quorum(self) -> None:
        for node_id, core in self.machines.cores():
            life = (node_id, self.machines.by_id[node_id].life)
            epoch = core.epoch
            require(
                epoch >= self._quorum_epochs.get(life, 0),
                f"quorum: epoch {epoch} of {node_id} after {self._quorum_epochs.get(life)}",
            )
            self._quorum_epochs[life] = epoch
            if core.role is Role.LEADER:
                known = self._quorum_leaders.setdefault(epoch, node_id)
                require(known == node_id, f"quorum: {known} and {node_id} lead in epoch {epoch}")

    def _check_partition(self, node_id: int, partition: Any) -> None:
        log = partition.log
        topic, index = partition.topic_partition
        high_watermark, end = log.high_watermark, log.log_end_offset
        if not log.log_start_offset <= log.last_stable_offset <= high_watermark <= end:
            require(False, f"{log!r} of {node_id}: high watermark {high_watermark}, end {end}")
        if not partition.is_leader:
            return
        topic_id = partition.topic_id
        key = (topic_id, index)
        epoch = partition.leader_epoch
        committed = self.logs.get(key)
        if committed is None:
            committed = self.logs[key] = Committed(f"{topic}-{index}")
        leading = (topic_id, index, epoch)
        known = self._leaders.get(leading)
        if known is None:
            self._leaders[leading] = node_id
            newest = self._newest[key] = max(epoch, self._newest.get(key, -1))
            require(
                epoch < newest or end >= committed.end,
                f"{topic}-{index}: {node_id} leads in epoch {epoch} with a log up to {end},"
                f" and {committed.end} was committed",
            )
        elif known != node_id:
            require(False, f"{topic}-{index}: {known} and {node_id} lead in epoch {epoch}")
        life = (node_id, self.machines.by_id[node_id].life, topic_id, index)
        before = self._high_watermarks.get(life)
        if before is not None:
            require(
                epoch > before[0] or (epoch == before[0] and high_watermark >= before[1]),
                f"{topic}-{index} on {node_id}: high watermark {high_watermark} in epoch {epoch}"
                f" after {before[1]} in epoch {before[0]}",
            )
            enough = min(log.config.min_insync_replicas, len(partition.replicas))
            require(
                high_watermark == before[1]
                or partition.partition_epoch != before[2]
                or len(partition.isr) >= enough,
                f"{topic}-{index} on {node_id}: high watermark {before[1]} to {high_watermark} with"
                f" {partition.isr} in sync",
            )
        self._high_watermarks[life] = (epoch, high_watermark, partition.partition_epoch)
        committed.end = max(committed.end, high_watermark)

    def _check_copies(self, node_id: int, partition: Any, ends: dict[int, int]) -> None:
        """What a replica takes for committed is on enough of them; the dead may have it."""
        high_watermark, replicas = partition.log.high_watermark, partition.replicas
        having = 0
        for replica in replicas:
            if ends.get(replica, high_watermark) >= high_watermark:
                having += 1
        if having < min(partition.log.config.min_insync_replicas, len(replicas)):
            require(
                False,
                f"{partition.topic_partition} on {node_id}: high watermark {high_watermark},"
                f" logs end at {ends}",
            )

    # -- now and then ------------------------------------------------------------------------------

    def check_bytes(self, only: Machine | None = None) -> None:
        """Below the high watermarks everybody has the same bytes."""
        for node_id, server in self.machines.servers():
            machine = self.machines.by_id[node_id]
            if only not in (None, machine):
                continue
            metadata = server._metadata
            if metadata is not None and metadata._log is not None:
                self.metadata.compare(machine, METADATA_FOLDER, metadata._log.high_watermark)
            if server._replicas is None:
                continue
            for partition in server._replicas._partitions.values():
                topic, index = partition.topic_partition
                key = (partition.topic_id, index)
                committed = self.logs.setdefault(key, Committed(f"{topic}-{index}"))
                committed.compare(machine, partition.log.folder, partition.log.high_watermark)

    # -- the end -----------------------------------------------------------------------------------

    def lag(self) -> str | None:
        """Why the cluster is not yet whole; None if everybody is caught up and in sync."""
        servers = dict(self.machines.servers())
        image = self.machines.image()
        controller = self.machines.controller()
        if image is None or controller is None:
            return "there is no active controller"
        ends = {node: server._metadata.log_end()[1] for node, server in servers.items()}
        if len(ends) < len(self.machines.by_id) or len(set(ends.values())) > 1:
            return f"metadata logs end at {ends}"
        fenced = [n for n in self.machines.by_id if not image.is_alive(n)]
        if fenced:
            return f"brokers {fenced} are fenced"
        for topic in image.topics.values():
            for state in topic.partitions:
                name = f"{topic.name}-{state.partition}"
                if state.leader < 0 or sorted(state.isr) != sorted(state.replicas):
                    return f"{name} is led by {state.leader}, in sync {state.isr}"
                offsets = {}
                for node_id in state.replicas:
                    found = servers[node_id]._replicas._partitions.get(
                        (topic.name, state.partition)
                    )
                    if found is None:
                        return f"{name} is not on {node_id}"
                    offsets[node_id] = (found.log.log_end_offset, found.log.high_watermark)
                wanted = (offsets[state.leader][0],) * 2
                if any(pair != wanted for pair in offsets.values()):
                    return f"{name}: (log end, high watermark) by broker is {offsets}"
        return None

    def check_contents(self) -> None:
        """Every fact is on every replica, idempotent records once, committed bytes as they were."""
        image = self.machines.image()
        assert image is not None
        self.check_bytes()
        for topic in self.history.existing():
            found = image.topic_by_id(topic.topic_id)
            require(found is not None, f"topic {topic.name} is lost")
            assert found is not None
            for state in found.partitions:
                for node_id in state.replicas:
                    self._check_replica(node_id, topic.partition(state.partition))

    def _check_replica(self, node_id: int, partition: PartitionHistory) -> None:
        name = f"{partition} on {node_id}"
        log = read_log(self.machines.by_id[node_id].disk, f"{DATA}/{partition}")
        batches = {batch.header.base_offset: batch for batch in log.batches()}
        first = min(log.segments, default=0)
        require(
            first <= partition.delete_bound, f"{name}: starts at {first}, nobody asked for that"
        )
        committed = self.logs.get((partition.topic.topic_id, partition.index))
        for offset in () if committed is None else committed.batches:
            if offset >= first:
                require(offset in batches, f"{name}: the committed batch at {offset} is gone")
        values: dict[int, bytes] = {}
        next_offset = first
        for batch in log.batches():
            require(batch.header.base_offset == next_offset, f"{name}: hole at {next_offset}")
            next_offset = batch.header.last_offset + 1
            for record in batch.records():
                values[record.offset] = record.value or b""
        for offset, value in partition.facts.items():
            require(
                offset < first or values.get(offset) == value,
                f"{name}: {value[:40]!r} at {offset} has become {values.get(offset, b'')[:40]!r}",
            )
        last: dict[bytes, int] = {}
        for offset, value in values.items():
            require(value in partition.sent, f"{name}: nobody sent {value[:40]!r} at {offset}")
            writer, number, _ = value.split(b"/")
            if writer.startswith(b"idempotent"):
                require(
                    int(number) > last.get(writer, 0),
                    f"{name}: {writer!r} {number!r} at {offset} is doubled or out of order",
                )
                last[writer] = int(number)
        self.history.count("records in the end", len(values))
