"""One broker of a play from inside: what is not asked for over the network, but done to its log and
seen of its state.

Whoever plays may be in another process (`process.py`). So all that goes in and comes out is JSON's:
leader epochs and node ids are the cluster's, what is bytes is written in hexadecimal digits.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidelog.cluster.metadata.image import REMOTE_LOG_METADATA_TOPIC
from tidelog.tiered.shared import id_of, until_ready
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import Record, build_batch
from tidelog_scenarios.actor import MovedClock
from tidelog_scenarios.answers import fetch_reply
from tidelog_scenarios.disk import records_in, values_in
from tidelog_scenarios.store import Order, TracedStore
from tidelog_scenarios.words import TOPIC, PlayError
from tidelog_storage.config import LogConfig
from tidelog_storage.remote import api
from tidelog_storage.remote.api import RemoteSegment, TopicIdPartition
from tidelog_storage.remote.metadata_records import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tidelog.replication.partition import Partition
    from tidelog.server import BrokerServer
    from tidelog.tiered.tasks import TieredPartition
    from tidelog.tiered.tier import RemoteTier
    from tidelog_scenarios.turnstile import Turnstile

__all__ = ["Inside", "from_hex", "to_hex"]

State = dict[str, Any]


def to_hex(segments: Iterable[RemoteSegment]) -> list[str]:
    """Segments with their states."""
    return [encode(segment).hex() for segment in segments]


def from_hex(texts: Iterable[str]) -> list[RemoteSegment]:
    """What `to_hex` has written."""
    found = [decode(bytes.fromhex(text)) for text in texts]
    return [segment for segment in found if isinstance(segment, RemoteSegment)]


def _named(topic_id: str) -> TopicIdPartition:
    return TopicIdPartition(UUID(topic_id), TOPIC, 0)


class Inside:
    """One life of a broker. Its verbs wait for nothing but what they are asked to do."""

    def __init__(self, server: BrokerServer, turnstile: Turnstile) -> None:
        """`turnstile` has made its fetchers."""
        self._server = server
        self._turnstile = turnstile
        self._node_id = server.config.node_id

    # -- the replica -------------------------------------------------------------------------------

    @property
    def _partition(self) -> Partition:
        partition = self._server.replicas.partition(TOPIC, 0)
        if isinstance(partition, ErrorCode):
            raise PlayError(f"the replica of broker {self._node_id}: {partition.name}")
        return partition

    async def has_replica(self) -> bool:
        """Whether the replica is there."""
        return not isinstance(self._server.replicas.partition(TOPIC, 0), ErrorCode)

    async def leads_in(self) -> int:
        """The leader epoch in which it leads; -1 if it does not."""
        found = self._server.replicas.partition(TOPIC, 0)
        if isinstance(found, ErrorCode) or not found.is_leader:
            return -1
        return found.leader_epoch

    async def look(self) -> State:
        """All that there is to see; of a broker without the replica nothing."""
        found = self._server.replicas.partition(TOPIC, 0)
        if isinstance(found, ErrorCode):
            return {}
        log = found.log
        rows = records_in(self._server.runtime.files, log.folder)
        bases = log.segments.base_offsets
        first = log.local_log_start_offset
        state: State = {
            "leader_epoch": found.leader_epoch,
            "log_start": log.log_start_offset,
            "local_start": first,
            "hw": log.high_watermark,
            "lso": log.last_stable_offset,
            "leo": log.log_end_offset,
            "records": [row for row in rows if row[0] >= first],
            "epochs": [list(entry) for entry in log.epochs.entries],
            "segments": [
                [base, end - 1]
                for base, end in zip(bases, [*bases[1:], log.log_end_offset], strict=True)
            ],
            "remote_leo": {
                str(node_id): max(replica.log_end_offset, 0)
                for node_id, replica in found.remotes.items()
            },
        }
        followed = self._turnstile.state(self._node_id, found.topic_id)
        if followed is not None:
            state["fetch_state"] = followed.name.lower()
        if self._server.tier is not None:
            state |= self._look_behind(found)
        return state

    def _look_behind(self, partition: Partition) -> State:
        """What a broker with a remote tier has beside."""
        log = partition.log
        state: State = {}
        snapshot = f"{log.log_end_offset:020d}.snapshot"
        if self._server.runtime.files.exists(f"{log.folder}/{snapshot}"):
            state["producer_snapshot"] = snapshot
        if not partition.is_leader:
            state["highest_remote"] = log.highest_remote_offset
        elif self._tiered.copier.copied_offset is not None:
            state["copied_to"] = self._tiered.copier.copied_offset
        return state

    async def write(self, rows: Sequence[Sequence[Any]], rolls: Sequence[int], now_ms: int) -> None:
        """Records, each in a batch of its own, as a follower takes them; segments begin at the
        offsets `rolls`."""
        log = self._partition.log
        for offset, value, epoch in rows:
            await self.roll_if_due(rolls, now_ms)
            record = Record(offset, now_ms, None, value.encode())
            data = build_batch([record], base_offset=offset, leader_epoch=epoch)
            log.append_as_follower(memoryview(bytearray(data)), leader_epoch=epoch, now_ms=now_ms)

    async def roll_if_due(self, rolls: Sequence[int], now_ms: int) -> int:
        """Begin a segment where one has to begin; the log end offset."""
        log = self._partition.log
        if log.log_end_offset in rolls:
            log.roll(now_ms)
        return log.log_end_offset

    async def set_high_watermark(self, offset: int) -> None:
        """As if it had been told by then."""
        self._partition.log.set_high_watermark(offset)

    async def tell_ends(self, ends: Mapping[str, int]) -> None:
        """A leader knows where its followers are, as if they had fetched."""
        remotes = self._partition.remotes
        for node_id, log_end in ends.items():
            remotes[int(node_id)].log_end_offset = log_end

    async def bases(self) -> list[int]:
        """Where the local segments begin."""
        return list(self._partition.log.segments.base_offsets)

    async def delete_local(self, before: int, now_ms: int) -> None:
        """Local retention, with a limit that lets go just what is below `before`, if it may.

        In one step of the loop: nobody sees that limit, nor that copies are allowed meanwhile.
        """
        log = self._partition.log
        kept = sum(segment.size for segment in log.segments if segment.base_offset >= before)
        with self.lifted(max(kept, 1)):
            log.delete_old_segments(now_ms)

    @contextlib.contextmanager
    def lifted(self, local_bytes: int) -> Iterator[None]:
        """For this broker copies are allowed, and local retention has this limit."""
        log = self._partition.log
        before = log.config
        own = {"remote.log.copy.disable": "false", "local.retention.bytes": str(local_bytes)}
        log.config = LogConfig.from_overrides(before, own)
        try:
            yield
        finally:
            log.config = before

    # -- what it follows ---------------------------------------------------------------------------

    async def fetch(self) -> State:
        """Let it fetch once: what it `asked`, and the `reply`, None for one with nothing new."""
        asked, data = await self._turnstile.fetch(self._node_id)
        return {
            "asked": {
                "offset": asked.fetch_offset,
                "last_fetched_epoch": asked.last_fetched_epoch,
                "current_leader_epoch": asked.leader_epoch,
            },
            "reply": None if data is None else fetch_reply(data),
        }

    async def build(self) -> str:
        """Let it build what it needs of the remote tier: why it could not, "" if it could."""
        return await self._turnstile.build(self._node_id)

    # -- the remote tier ---------------------------------------------------------------------------

    @property
    def _tier(self) -> RemoteTier:
        tier = self._server.tier
        assert tier is not None, "not a tiered play"
        return tier

    @property
    def _tiered(self) -> TieredPartition:
        return self._tier.partitions[TOPIC, 0]

    @property
    def _name(self) -> TopicIdPartition:
        return id_of(self._partition)

    async def copying(self) -> State:
        """What the topic says of copies, and whether one is under way."""
        config = self._partition.log.config
        return {
            "is_disabled": config.remote_log_copy_disable,
            "is_under_way": bool(self._tiered.copier.copying) if self._tiered.leads else False,
        }

    async def known(self) -> list[str] | None:
        """The remote segments that it knows of; None while it does not know."""
        metadata = self._tier.metadata
        if not metadata.is_ready(self._name):
            return None
        return to_hex(metadata.segments(self._name))

    async def segment_for(self, epoch: int, offset: int) -> str | None:
        """The id of the finished remote segment that holds this offset of this epoch."""
        found = self._tier.metadata.segment_for(self._name, epoch, offset)
        return None if found is None else found.segment_id.hex

    async def wake(self) -> None:
        """Let the tier's tasks run that are at rest."""
        self._tiered.wake()

    async def run(self, task: str) -> None:
        """One round of a task of the tier's; what the store refuses is the task's to bear."""
        with contextlib.suppress(api.RemoteStorageError):
            await self._run(task)

    async def _run(self, task: str) -> None:
        match task:
            case "find_copied_offset":
                self._tiered.copier.find_positions()
            case "copy":
                with self.lifted(1):
                    await self._tiered.copier.run()
            case "local_retention":
                with self.lifted(1):
                    self._partition.log.delete_old_segments(self._server.runtime.clock.wall_ms())
            case "remote_expiration":
                await self._tiered.expiration.run(self._tiered.replica.log, lambda: True)
            case "remote_partition_remover":
                assert self._tier.remover is not None
                await self._tier.remover.look()
            case _:
                raise PlayError(f"no task {task}")

    async def leads_metadata(self) -> bool:
        """Whether what others have left to delete is this broker's."""
        found = self._server.replicas.partition(REMOTE_LOG_METADATA_TOPIC, 0)
        return not isinstance(found, ErrorCode) and found.is_leader

    async def metadata_events(self) -> list[str]:
        """The remote tier's metadata topic, as far as this broker has it."""
        found = self._server.replicas.partition(REMOTE_LOG_METADATA_TOPIC, 0)
        if isinstance(found, ErrorCode):
            raise PlayError(f"broker {self._node_id} has no remote metadata: {found.name}")
        return [value.hex() for value in values_in(self._server.runtime.files, found.log.folder)]

    async def is_deleting(self, topic_id: str) -> bool:
        """Whether it sees to the deletion of the partition by itself."""
        return self._tier.is_deleting(_named(topic_id))

    async def partition_event(self, topic_id: str, state: str) -> bool:
        """Write an event of the partition's deletion, which is nobody else's business here;
        whether it was taken."""
        metadata, partition = self._tier.metadata, _named(topic_id)
        metadata.on_leadership_changes(set(), {partition})
        await until_ready(metadata, partition)
        now_ms = self._server.runtime.clock.wall_ms()
        event = api.PartitionDelete(
            partition, self._node_id, now_ms, api.PartitionDeleteState[state]
        )
        try:
            await metadata.put_partition_delete(event)
        except ValueError:
            return False
        finally:
            metadata.on_stop_partitions({partition})
        return True

    async def order(self, operation: str, error: str, delay_s: float) -> None:
        """What the store is to do for this broker from now on; no `error` for none."""
        kind = getattr(api, error) if error else None
        self._store.order = Order(operation, kind, delay_s, asyncio.get_running_loop())

    async def is_store_slow(self) -> bool:
        """Whether something waits that it was ordered to answer late."""
        return bool(self._store.waiting)

    async def move_clock(self, ms: int) -> None:
        """For this broker it is later."""
        clock = self._server.runtime.clock
        assert isinstance(clock, MovedClock)
        clock.ahead_ms += ms

    async def forget_reads(self, segment_ids: Sequence[str]) -> None:
        """Drop what is cached of these segments: from now on it is seen that they are read."""
        self._tier.reads.forget([UUID(segment_id) for segment_id in segment_ids])
        self._store.reads.clear()

    async def reads(self) -> list[str]:
        """Ids of the segments that were read since."""
        return [segment_id.hex for segment_id in dict.fromkeys(self._store.reads)]

    @property
    def _store(self) -> TracedStore:
        store = self._tier.storage
        assert isinstance(store, TracedStore)
        return store
