"""What must hold of replicas, leaders and in-sync replicas, after every step of a broker.

The newest committed image says who is in sync; the simulation remembers how far each log reaches,
of the dead, too. Everybody in sync, and every eligible leader replica, has everything below the
highest high watermark that a leader ever had: that is all that elections rely on. So has the last
leader, which may lead again when nobody is left (KIP-966). A broker that lost its power is excused
until the controller knows of its new life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.history import require
from tidelog.cluster.metadata.records import decode_batch
from tidelog_protocol.batch import iter_batches
from tidelog_protocol.messages.metadata_records import BrokerRegistrationChangeRecord
from tidelog_storage.types import Records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.cluster.metadata.image import ClusterImage, PartitionImage

Key = tuple[bytes, int]  # topic id and partition
RECOVERING = 1


class PartitionMemory:
    """What is known of one partition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.committed_end = 0  # the highest high watermark of a leader
        self.leaders: dict[int, int] = {}  # by leader epoch
        self.ends: dict[int, int] = {}  # log ends by node, as last seen
        self.state: PartitionImage | None = None
        self.proposals: set[tuple[int, int, tuple[int, ...]]] = set()
        """In-sync replicas that leaders asked for: leader epoch, partition epoch, members."""
        self.leading: Any = None  # the partition that was last seen to lead
        self.unclean_epoch = -1  # of the last leader that was not in sync

    def known_end(self) -> int:
        """The highest high watermark of a leader, be it one whose disk failed in the same step."""
        if self.leading is not None and self.leading.leader < 0:
            self.committed_end = max(self.committed_end, self.leading.log.high_watermark)
        return self.committed_end


def _fenced_meanwhile(metadata: Any, first: int) -> set[int]:
    """The brokers that the records of the metadata log from `first` on fence: an image may be newer
    by several changes, and such a broker be back in it."""
    found = metadata.log.read(first, 1 << 20, upper_bound=metadata.image.offset + 1)
    if not isinstance(found, Records):
        return set(metadata.image.brokers)  # a snapshot has taken their place
    data = memoryview(b"".join(found.parts))
    records = [
        record
        for position, header in iter_batches(data)
        if not header.is_control
        for record in decode_batch(data[position : position + header.size_in_bytes])
    ]
    changes = (one for one in records if isinstance(one, BrokerRegistrationChangeRecord))
    return {one.broker_id for one in changes if one.fenced == 1}


def may_lead(state: PartitionImage) -> tuple[int, ...]:
    """Those to lead next: in sync, else eligible, else the last leader (KIP-966)."""
    last = state.last_known_eligible_leader_replicas
    return state.isr or state.eligible_leader_replicas or last


class InSyncChecker:
    """All partitions of a run."""

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        self._tell = tell
        self.memories: dict[Key, PartitionMemory] = {}
        self._seen: dict[tuple[int, int, Key], tuple[int, int, int]] = {}
        """Leaders by node, life and partition: leader epoch, high watermark, partition epoch."""
        self._looks: dict[Any, tuple[Any, ...]] = {}  # by replica: what was seen last
        self.image_offset = -1  # of the newest image that a broker has heard of
        self._brokers: dict[int, int] = {}  # broker epochs, as the controller knows them
        self._active: dict[int, int] = {}  # broker epochs of those that may lead
        self._excused: dict[int, int] = {}  # nodes to the broker epoch that is over
        self.unclean: dict[Key, Callable[[PartitionImage, PartitionImage], int]] = {}
        """Partitions with unclean elections: told of each, these say from where on it may lose."""

    def memory(self, topic_id: bytes, index: int, name: str) -> PartitionMemory:
        """What is known of a partition."""
        key = (topic_id, index)
        found = self.memories.get(key)
        if found is None:
            found = self.memories[key] = PartitionMemory(f"{name}-{index}")
        return found

    def lost_records(self, node_id: int) -> None:
        """A fault has taken records of this broker: it is excused until it registers again."""
        self._excused[node_id] = self._brokers.get(node_id, -1)

    def _is_excused(self, node_id: int) -> bool:
        return self._excused.get(node_id) == self._brokers.get(node_id, -1)

    def unnoticed(self) -> list[int]:
        """Brokers whose lost records the controller does not know of: they still count for it."""
        return [node_id for node_id in self._excused if self._is_excused(node_id)]

    # -- replicas ----------------------------------------------------------------------------------

    def look(self, node_id: int, life: int, partitions: Iterable[Any]) -> list[Any]:
        """All replicas of one broker, between two steps of it; those that have changed."""
        looks = self._looks
        changed: list[Any] = []
        for partition in partitions:
            log = partition.log
            seen = (
                log.high_watermark,
                log.log_end_offset,
                log.log_start_offset,
                log.local_log_start_offset,
                log.is_tiered,
                partition.is_leader,
                partition.leader_epoch,
                partition.partition_epoch,
                partition.pending_change,
            )
            if looks.get(partition) != seen:  # most steps change nothing
                looks[partition] = seen
                changed.append(partition)
        for partition in changed:
            self._look_at(node_id, life, partition)
        return changed

    def _look_at(self, node_id: int, life: int, partition: Any) -> None:
        log = partition.log
        high_watermark, end = log.high_watermark, log.log_end_offset
        topic, index = partition.topic_partition
        memory = self.memory(partition.topic_id, index, topic)
        if not log.log_start_offset <= log.last_stable_offset <= high_watermark <= end:
            require(False, f"{log!r} of {node_id}: high watermark {high_watermark}, end {end}")
        before = memory.ends.get(node_id, 0)
        memory.ends[node_id] = end
        if partition.leader_epoch < memory.unclean_epoch:
            return  # it has not heard of the unclean election: what it commits is void
        if end < before:
            self._check_member(memory, node_id)
        if partition.is_leader:
            self._look_at_leader(node_id, life, partition, memory)
        elif memory.unclean_epoch < 0 and high_watermark > memory.known_end():
            require(
                False,
                f"{memory.name} on {node_id}: a follower's high watermark is {high_watermark}, and"
                f" no leader's was above {memory.committed_end}",
            )

    def _look_at_leader(
        self, node_id: int, life: int, partition: Any, memory: PartitionMemory
    ) -> None:
        memory.leading = partition
        epoch, high_watermark = partition.leader_epoch, partition.log.high_watermark
        known = memory.leaders.get(epoch)
        if known is None:
            self._check_new_leader(memory, node_id, epoch, partition.log.log_end_offset)
        elif known != node_id:
            require(False, f"{memory.name}: {known} and {node_id} lead in epoch {epoch}")
        change = partition.pending_change
        if change is not None:
            memory.proposals.add((change.leader_epoch, change.partition_epoch, change.isr))
        key = (node_id, life, (partition.topic_id, partition.topic_partition.partition))
        before = self._seen.get(key)
        self._seen[key] = (epoch, high_watermark, partition.partition_epoch)
        if before is not None and before[0] == epoch and high_watermark != before[1]:
            self._check_move(memory, node_id, partition, before)
        if high_watermark > memory.committed_end:
            memory.committed_end = high_watermark
            if memory.state is not None:
                self._check_members(memory, memory.state)

    def _check_new_leader(
        self, memory: PartitionMemory, node_id: int, epoch: int, end: int
    ) -> None:
        memory.leaders[epoch] = node_id
        require(
            epoch < max(memory.leaders) or end >= memory.committed_end,
            f"{memory.name}: {node_id} leads in epoch {epoch} with a log up to {end},"
            f" and {memory.committed_end} was committed",
        )

    def _check_move(
        self, memory: PartitionMemory, node_id: int, partition: Any, before: tuple[int, int, int]
    ) -> None:
        """A leader's high watermark moved within its epoch."""
        log = partition.log
        move = f"{memory.name} on {node_id}: high watermark {before[1]} to {log.high_watermark}"
        require(log.high_watermark > before[1], f"{move} in epoch {before[0]}")
        enough = min(log.config.min_insync_replicas, len(partition.replicas))
        require(
            partition.partition_epoch != before[2] or len(partition.isr) >= enough,
            f"{move} with {partition.isr} in sync",
        )

    def _check_members(self, memory: PartitionMemory, state: PartitionImage) -> None:
        for member in (*state.isr, *state.eligible_leader_replicas):
            self._check_member(memory, member)

    def _check_member(self, memory: PartitionMemory, node_id: int) -> None:
        """Who is in sync or eligible, as the controller committed it, has all that was
        committed."""
        state = memory.state
        if state is None or self._is_excused(node_id):
            return
        is_in_sync = node_id in state.isr
        if not is_in_sync and node_id not in state.eligible_leader_replicas:
            return
        end = memory.ends.get(node_id, 0)
        if end < memory.committed_end:
            what = "in sync" if is_in_sync else "eligible"
            require(
                False,
                f"{memory.name}: {node_id} is {what} (partition epoch {state.partition_epoch})"
                f" with a log up to {end}, and {memory.committed_end} was committed",
            )

    # -- the controller ----------------------------------------------------------------------------

    def knows_newer_than(self, image: ClusterImage) -> bool:
        """Whether some broker has heard of more: who did may be dead, and the others loading."""
        return image.offset < self.image_offset

    def image(self, metadata: Any) -> None:
        """What some broker has heard to be committed; what is older than known says nothing new."""
        image = metadata.image
        if image.offset <= self.image_offset:
            return
        first, self.image_offset = self.image_offset + 1, image.offset
        active_before, self._active = self._active, _active(image)
        self._brokers = {node_id: broker.epoch for node_id, broker in image.brokers.items()}
        for topic in image.topics.values():
            for state in topic.partitions:
                memory = self.memory(topic.topic_id, state.partition, topic.name)
                before, memory.state = memory.state, state
                if before is state:
                    continue
                if before is not None and _is_unclean(before, state):
                    living = [
                        member
                        for member in (*before.isr, *before.eligible_leader_replicas)
                        if member in active_before
                        and self._active.get(member) == active_before[member]
                        and member not in _fenced_meanwhile(metadata, first)
                    ]
                    self._elect_unclean((topic.topic_id, state.partition), before, state, living)
                if before is not None:
                    self._check_change(memory, before, state)
                if before is None or (before.leader, before.isr) != (state.leader, state.isr):
                    led = f"is led by {state.leader} in epoch {state.leader_epoch}"
                    self._tell(memory.name, f"{led}, in sync {state.isr}")
                self._check_members(memory, state)

    def _elect_unclean(
        self, key: Key, before: PartitionImage, state: PartitionImage, living: list[int]
    ) -> None:
        """A leader that was not in sync: where the topic allows it, and none of those lives."""
        memory = self.memories[key]
        require(
            key in self.unclean and not living,
            f"{memory.name}: {state.leader} is elected, which was not in sync as {before.isr} were,"
            f" nor eligible as {before.eligible_leader_replicas}; {living} of them live",
        )
        memory.committed_end = self.unclean[key](before, state)
        memory.unclean_epoch, memory.leading = state.leader_epoch, None

    def _check_change(
        self, memory: PartitionMemory, before: PartitionImage, state: PartitionImage
    ) -> None:
        require(
            state.partition_epoch > before.partition_epoch or state == before,
            f"{memory.name}: {before} became {state}",
        )
        require(
            state.leader_epoch > before.leader_epoch
            or (state.leader_epoch == before.leader_epoch and state.leader == before.leader),
            f"{memory.name}: leader {before.leader} in epoch {before.leader_epoch} became"
            f" {state.leader} in epoch {state.leader_epoch}",
        )
        joined = set(state.isr) - set(before.isr)
        if state.leader in before.eligible_leader_replicas:  # elected before any other joined
            joined.discard(state.leader)
        if not joined or state.leader_recovery_state == RECOVERING:
            return
        asked = any(
            before.leader_epoch <= leader_epoch <= state.leader_epoch
            and before.partition_epoch <= partition_epoch < state.partition_epoch
            and joined <= set(members)
            for leader_epoch, partition_epoch, members in memory.proposals
        )
        require(
            asked,
            f"{memory.name}: {sorted(joined)} joined the in-sync replicas {before.isr} after"
            f" partition epoch {before.partition_epoch}, and the leader had not asked for it then",
        )


def _is_unclean(before: PartitionImage, state: PartitionImage) -> bool:
    """Whether a leader was elected that may lack committed records: it was neither in sync nor
    eligible, nor the last leader."""
    is_new = state.leader >= 0 and state.leader_epoch > before.leader_epoch
    is_recovering = state.leader_recovery_state == RECOVERING
    sure = {*before.isr, *before.eligible_leader_replicas}
    sure.update(before.last_known_eligible_leader_replicas)
    return is_new and is_recovering and state.leader not in sure


def _active(image: ClusterImage) -> dict[int, int]:
    return {n: broker.epoch for n, broker in image.brokers.items() if image.is_active(n)}
