"""What must hold in a cluster: at every step, at every death and start, and at the end.

`Committed` is the simulation's own memory of a log: every batch that lay below a high watermark
anywhere. It may never be another one anywhere else, and every new leader must have all of it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sim.checkers import METADATA_FOLDER
from sim.cluster.compacted_checkers import Compacted
from sim.cluster.in_sync_checkers import InSyncChecker
from sim.cluster.quorum_checkers import QuorumChecker
from sim.history import Violation, require
from sim.raw_logs import DATA, RawBatch, read_log
from tidelog.cluster.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.cluster.tier import Tier
    from sim.history import History, PartitionHistory
    from tidelog.simulation.machine import Machine
    from tidelog.simulation.machines import Machines

STEPS_BETWEEN_READS = 2_500
COMPACTED_TOPICS = (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)


@functools.cache  # asked at every step
def _node_of(lane: str) -> int | None:
    """The broker that lives in a lane or on a host; None if none does."""
    name, _, number = lane.partition(".")[0].partition("-")
    return int(number) if name == "broker" else None


class Committed:
    """Batches of one log that were below a high watermark, by base offset."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: dict[int, bytes] = {}

    def compare(
        self, machine: Machine, folder: str, high_watermark: int, log_start_offset: int = 0
    ) -> None:
        """Take or compare what one replica has below its high watermark.

        What lies below its log start is nobody's any more. A follower that has left the leader's
        way where that has deleted its own is not asked to cut there.
        """
        for batch in read_log(machine.disk, folder).batches():
            header = batch.header
            if header.last_offset >= high_watermark:
                break
            if header.last_offset < log_start_offset:
                continue
            if self.batches.setdefault(header.base_offset, batch.data) != batch.data:
                raise Violation(
                    f"{self.name}: replicas differ below the high watermark, at"
                    f" {header.base_offset} on {machine.host} (epoch {header.leader_epoch})"
                )


class ClusterCheckers:
    """All checks of one run."""

    def __init__(self, machines: Machines, history: History) -> None:
        self.machines, self.history = machines, history
        self.metadata = Committed("metadata log")
        # By topic id: a name may come back.
        self.logs: dict[tuple[bytes, int], Committed | Compacted] = {}
        self.quorum = QuorumChecker(machines.loop.tell)
        self.in_sync = InSyncChecker(machines.loop.tell)
        self.tier: Tier | None = None
        self.look_further: Callable[[int, Sequence[Any]], None] = lambda *_: None
        self.compacted: set[bytes] = set()  # topics of users, by id
        self.with_deletions: set[bytes] = set()  # some of these
        self.is_behind: dict[tuple[bytes, int], Callable[[int, Any], bool]] = {}
        """Logs of which a replica may be another branch: whether this one is."""
        self._steps = 0

    # -- at every step -----------------------------------------------------------------------------

    def after_step(self) -> None:
        """What the broker whose step it was has made of its state; bytes more seldom."""
        node_id = _node_of(self.machines.loop.lane)
        if node_id in self.machines.by_id:
            self._look(node_id)
            self._steps += 1
            if self._steps % STEPS_BETWEEN_READS == 0:
                self.check_bytes()

    def _look(self, node_id: int) -> None:
        machine = self.machines.by_id[node_id]
        server: Any = machine.server
        if server is None:
            return
        if not server.is_built:
            return
        core = server.membership.core
        if core is not None:
            self.quorum.look(node_id, core, server.metadata)
        # First: in the same step, its listeners have acted on it.
        self.in_sync.image(server.metadata)
        changed = self.in_sync.look(node_id, machine.life, server.replicas.partitions())
        self.look_further(node_id, changed)
        if self.tier is not None:
            self.tier.look(changed)

    # -- deaths and starts -------------------------------------------------------------------------

    def before_death(self, machine: Machine, how: str) -> None:
        """The last look at a life, and what its end takes away."""
        node_id = _node_of(machine.host)
        assert node_id is not None
        if not machine.disk.unwinding:  # else it dies in the middle of a step
            self._look(node_id)
        self.check_bytes(machine)
        if how == "power":
            self.in_sync.lost_records(node_id)

    def after_start(self, machine: Machine) -> None:
        """A broker is back: its logs are what they were, and it knows their epochs."""
        self.check_bytes(machine)
        self._check_epochs(machine)

    # -- now and then ------------------------------------------------------------------------------

    def check_bytes(self, only: Machine | None = None) -> None:
        """Below the high watermarks everybody has the same bytes."""
        for node_id, server in self.machines.servers():
            machine = self.machines.by_id[node_id]
            if only not in (None, machine):
                continue
            if not server.is_built:
                continue
            if server.metadata.is_open:
                high_watermark = server.metadata.log.high_watermark
                self.metadata.compare(machine, METADATA_FOLDER, high_watermark)
            for partition in server.replicas.partitions():
                topic, index = partition.topic_partition
                key = (partition.topic_id, index)
                if key in self.is_behind and self.is_behind[key](node_id, partition):
                    continue
                committed = self.logs.get(key) or self._new_log(key, topic)
                log = partition.log
                committed.compare(machine, log.folder, log.high_watermark, log.log_start_offset)

    def _new_log(self, key: tuple[bytes, int], topic: str) -> Committed | Compacted:
        name, machines = f"{topic}-{key[1]}", self.machines
        log: Committed | Compacted = Committed(name)
        if key[0] in self.compacted:
            has_deletions = key[0] in self.with_deletions
            take_all = functools.partial(self._take_all, key)
            log = Compacted(name, has_deletions=has_deletions, take_all=take_all)
        elif topic in COMPACTED_TOPICS and machines.has_compaction:
            is_whole = topic == TRANSACTION_STATE_TOPIC and machines.voters > 1
            take_all = functools.partial(self._take_all, key)
            log = Compacted(name, has_deletions=not is_whole, take_all=take_all)
        self.logs[key] = log
        return log

    def _take_all(self, key: tuple[bytes, int]) -> None:
        """Let a compacted log's memory take what each replica has."""
        compacted = self.logs[key]
        assert isinstance(compacted, Compacted)
        for node_id, server in self.machines.servers():
            if not server.is_built:
                continue
            for partition in server.replicas.partitions():
                if (partition.topic_id, partition.topic_partition.partition) == key:
                    machine, log = self.machines.by_id[node_id], partition.log
                    compacted.take(machine, log.folder, log.high_watermark, log.log_start_offset)

    def _check_epochs(self, machine: Machine) -> None:
        """Every batch has the leader epoch that the log remembers for its offset."""
        server: Any = machine.server
        logs = [partition.log for partition in server.replicas.partitions()]
        for log in (*logs, server.metadata.log):
            for batch in read_log(machine.disk, log.folder).batches():
                offset = batch.header.base_offset
                if offset >= log.log_start_offset:
                    known = log.epochs.epoch_for_offset(offset)
                    if known != batch.header.leader_epoch:
                        raise Violation(
                            f"{log!r} on {machine.host}: the batch at {offset} is of epoch"
                            f" {batch.header.leader_epoch}, remembered is {known}"
                        )

    # -- the end -----------------------------------------------------------------------------------

    def lag(self) -> str | None:
        """Why the cluster is not yet whole; None if everybody is caught up and in sync."""
        servers = dict(self.machines.servers())
        image = self.machines.image()
        controller = self.machines.controller()
        if image is None or controller is None:
            return "there is no active controller"
        ends = {node: server.metadata.log_end()[1] for node, server in servers.items()}
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
                    found = servers[node_id].replicas.hosted(
                        TopicPartition(topic.name, state.partition)
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
        self._check_images(image)
        for node_id, machine in self.machines.by_id.items():
            self._check_epochs(machine)
            self._check_metadata(node_id)
        for topic in self.history.existing():
            found = image.topic_by_id(topic.topic_id)
            require(found is not None, f"topic {topic.name} is lost")
            assert found is not None
            for state in found.partitions:
                for node_id in state.replicas:
                    self._check_replica(node_id, topic.partition(state.partition))

    def _check_images(self, image: Any) -> None:
        """Whoever has come as far knows the same cluster."""
        parts = ("brokers", "broker_configs", "features", "next_producer_id", "topic_configs")
        for node_id, server in self.machines.servers():
            known = server.metadata.image
            for part in (*parts, "topics") if known.offset == image.offset else ():
                require(
                    getattr(known, part) == getattr(image, part),
                    f"{node_id} knows other {part} at offset {image.offset}",
                )

    def _check_metadata(self, node_id: int) -> None:
        """No committed metadata record is lost, unless a snapshot has it."""
        log = read_log(self.machines.by_id[node_id].disk, METADATA_FOLDER)
        kept = {batch.header.base_offset for batch in log.batches()}
        first = min(log.segments, default=0)
        lost = [at for at in self.metadata.batches if at >= first and at not in kept]
        require(not lost, f"metadata log of {node_id}: committed batches at {lost[:3]} are gone")

    def _whole(self, node_id: int, partition: PartitionHistory) -> tuple[list[RawBatch], int]:
        """All batches of a replica, and where the first one begins."""
        machine = self.machines.by_id[node_id]
        log = read_log(machine.disk, f"{DATA}/{partition}")
        batches, first = log.batches(), min(log.segments, default=0)
        if self.tier is not None and self.tier.is_on:
            batches = self.tier.checkers.whole(node_id, partition.topic.name, partition.index)
            first = min(batches[0].header.base_offset, first) if batches else first
        return batches, first

    def _check_replica(self, node_id: int, partition: PartitionHistory) -> None:
        name = f"{partition} on {node_id}"
        found, first = self._whole(node_id, partition)
        batches = {batch.header.base_offset: batch for batch in found}
        require(
            partition.topic.has_retention or first <= partition.delete_bound,
            f"{name}: starts at {first}, nobody asked for that",
        )
        committed = self.logs.get((partition.topic.topic_id, partition.index))
        for offset in () if committed is None else committed.batches:
            if offset >= first:
                require(offset in batches, f"{name}: the committed batch at {offset} is gone")
        values: dict[int, bytes] = {}
        next_offset = first
        for batch in found:
            require(batch.header.base_offset == next_offset, f"{name}: hole at {next_offset}")
            next_offset = batch.header.last_offset + 1
            for record in batch.records():
                values[record.offset] = record.value or b""
        for offset, value in partition.facts.items():
            if offset >= first and (found_value := values.get(offset)) != value:
                was, has_become = value[:40], (found_value or b"")[:40]
                raise Violation(f"{name}: {was!r} at {offset} has become {has_become!r}")
        last: dict[bytes, int] = {}
        for offset, value in values.items():
            if value not in partition.sent:
                raise Violation(f"{name}: nobody sent {value[:40]!r} at {offset}")
            writer, number, _ = value.split(b"/")
            # A producer may be forgotten with its records: what was deleted may come again.
            if writer.startswith(b"idempotent") and offset >= partition.delete_bound:
                require(
                    int(number) > last.get(writer, 0),
                    f"{name}: {writer!r} {number!r} at {offset} is doubled or out of order",
                )
                last[writer] = int(number)
        self.history.count("records in the end", len(values))
