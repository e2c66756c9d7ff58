"""One broker of a play from inside: changes to its log and reads of its state, past the network.

The player may be in another process (`process.py`), so arguments and results are JSON values.
Leader epochs and node ids are the cluster's; bytes are hexadecimal digits.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidelog.cluster.metadata.image import REMOTE_LOG_METADATA_TOPIC
from tidelog.runtime import SystemClock
from tidelog.tiered.segments import id_of, until_ready
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import Record, build_batch
from tidelog_scenarios.answers import fetch_reply
from tidelog_scenarios.disk import records_in, values_in
from tidelog_scenarios.store import Order, TracedStore
from tidelog_scenarios.vocabulary import TOPIC, PlayError
from tidelog_storage.config import LogConfig
from tidelog_storage.remote import api
from tidelog_storage.remote.api import RemoteSegment, TopicIdPartition
from tidelog_storage.remote.metadata_records import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tidelog.replication.partition import Partition
    from tidelog.server import BrokerServer
    from tidelog.tiered.tasks.partition import TieredPartition
    from tidelog.tiered.tier import RemoteTier
    from tidelog_scenarios.fetch_gate import FetchGate

__all__ = ["Inside", "from_hex", "to_hex"]

State = dict[str, Any]


def to_hex(segments: Iterable[RemoteSegment]) -> list[str]:
    """Encode segments with their states."""
    return [encode(segment).hex() for segment in segments]


def from_hex(texts: Iterable[str]) -> list[RemoteSegment]:
    """Decode what `to_hex` returned."""
    found = [decode(bytes.fromhex(text)) for text in texts]
    return [segment for segment in found if isinstance(segment, RemoteSegment)]


def _named(topic_id: str) -> TopicIdPartition:
    return TopicIdPartition(UUID(topic_id), TOPIC, 0)


class Inside:
    """One running broker. Its verbs wait only for their own effect."""

    def __init__(self, server: BrokerServer, gate: FetchGate) -> None:
        """`gate` makes the fetchers of `server`."""
        self._server = server
        self._gate = gate
        self._node_id = server.config.node_id

    # -- the replica -------------------------------------------------------------------------------

    @property
    def _partition(self) -> Partition:
        partition = self._server.replicas.partition(TOPIC, 0)
        if isinstance(partition, ErrorCode):
            raise PlayError(f"the replica of broker {self._node_id}: {partition.name}")
        return partition

    async def has_replica(self) -> bool:
        """Return whether the replica is there."""
        return not isinstance(self._server.replicas.partition(TOPIC, 0), ErrorCode)

    async def leads_in(self) -> int:
        """Return the leader epoch in which it leads, or -1."""
        found = self._server.replicas.partition(TOPIC, 0)
        if isinstance(found, ErrorCode) or not found.is_leader:
            return -1
        return found.leader_epoch

    async def look(self) -> State:
        """Return the state of the replica; empty without one."""
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
        followed = self._gate.state(self._node_id, found.topic_id)
        if followed is not None:
            state["fetch_state"] = followed.name.lower()
        if self._server.tier is not None:
            state |= self._look_behind(found)
        return state

    def _look_behind(self, partition: Partition) -> State:
        """Return what only a broker with a remote tier has."""
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
        """Append each record in its own batch, as a follower; segments begin at offsets `rolls`."""
        log = self._partition.log
        for offset, value, epoch in rows:
            await self.roll_if_due(rolls, now_ms)
            record = Record(offset, now_ms, None, value.encode())
            data = build_batch([record], base_offset=offset, leader_epoch=epoch)
            log.append_as_follower(memoryview(bytearray(data)), leader_epoch=epoch, now_ms=now_ms)

    async def roll_if_due(self, rolls: Sequence[int], now_ms: int) -> int:
        """Begin a segment if one must begin here; return the log end offset."""
        log = self._partition.log
        if log.log_end_offset in rolls:
            log.roll(now_ms)
        return log.log_end_offset

    async def set_high_watermark(self, offset: int) -> None:
        """Set the high watermark, as a leader's answer would."""
        self._partition.log.set_high_watermark(offset)

    async def tell_ends(self, ends: Mapping[str, int]) -> None:
        """Set the leader's log end offsets of its followers, as if they had fetched."""
        remotes = self._partition.remotes
        for node_id, log_end in ends.items():
            remotes[int(node_id)].log_end_offset = log_end

    async def bases(self) -> list[int]:
        """Return the base offsets of the local segments."""
        return list(self._partition.log.segments.base_offsets)

    async def delete_local(self, before: int, now_ms: int) -> None:
        """Run local retention with a limit that deletes only what is below `before`, if allowed.

        One step of the loop: nothing else sees that limit, or that copies are enabled.
        """
        log = self._partition.log
        kept = sum(segment.size for segment in log.segments if segment.base_offset >= before)
        with self.lifted(max(kept, 1)):
            log.delete_old_segments(now_ms)

    @contextlib.contextmanager
    def lifted(self, local_bytes: int) -> Iterator[None]:
        """Enable copies on this broker and limit its local retention, for a `with` block."""
        log = self._partition.log
        before = log.config
        own = {"remote.log.copy.disable": "false", "local.retention.bytes": str(local_bytes)}
        log.config = LogConfig.from_overrides(before, own)
        try:
            yield
        finally:
            log.config = before

    # -- following ---------------------------------------------------------------------------------

    async def fetch(self) -> State:
        """Let it fetch once; return what it `asked`, and the `reply` (None without changes)."""
        asked, data = await self._gate.fetch(self._node_id)
        return {
            "asked": {
                "offset": asked.fetch_offset,
                "last_fetched_epoch": asked.last_fetched_epoch,
                "current_leader_epoch": asked.leader_epoch,
            },
            "reply": None if data is None else fetch_reply(data),
        }

    async def build(self) -> str:
        """Let it build its auxiliary state; return the failure, or ""."""
        return await self._gate.build(self._node_id)

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
        """Return whether copies are disabled, and whether one is under way."""
        config = self._partition.log.config
        return {
            "is_disabled": config.remote_log_copy_disable,
            "is_under_way": bool(self._tiered.copier.copying) if self._tiered.leads else False,
        }

    async def known(self) -> list[str] | None:
        """Return the remote segments in its metadata; None while the metadata is not ready."""
        metadata = self._tier.metadata
        if not metadata.is_ready(self._name):
            return None
        return to_hex(metadata.segments(self._name))

    async def segment_for(self, epoch: int, offset: int) -> str | None:
        """Return the id of the finished remote segment with this offset of this epoch."""
        found = self._tier.metadata.segment_for(self._name, epoch, offset)
        return None if found is None else found.segment_id.hex

    async def wake(self) -> None:
        """Wake the tier's tasks."""
        self._tiered.wake()

    async def run(self, task: str) -> None:
        """Run a task of the tier once; errors of the store are the task's to handle."""
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
        """Return whether this broker's remover deletes what other brokers left."""
        found = self._server.replicas.partition(REMOTE_LOG_METADATA_TOPIC, 0)
        return not isinstance(found, ErrorCode) and found.is_leader

    async def metadata_events(self) -> list[str]:
        """Return the events in this broker's replica of the remote tier's metadata topic."""
        found = self._server.replicas.partition(REMOTE_LOG_METADATA_TOPIC, 0)
        if isinstance(found, ErrorCode):
            raise PlayError(f"broker {self._node_id} has no remote metadata: {found.name}")
        return [value.hex() for value in values_in(self._server.runtime.files, found.log.folder)]

    async def is_deleting(self, topic_id: str) -> bool:
        """Return whether this broker deletes the partition itself."""
        return self._tier.is_deleting(_named(topic_id))

    async def partition_event(self, topic_id: str, state: str) -> bool:
        """Write an event of the partition's deletion; return whether it was accepted."""
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
        """Set how the store behaves for this broker; an empty `error` means none."""
        kind = getattr(api, error) if error else None
        self._store.order = Order(operation, kind, delay_s, asyncio.get_running_loop())

    async def is_store_slow(self) -> bool:
        """Return whether the store holds a delayed answer."""
        return bool(self._store.waiting)

    async def move_clock(self, ms: int) -> None:
        """Advance this broker's wall clock."""
        clock = self._server.runtime.clock
        assert isinstance(clock, SystemClock)
        clock.skew_ms += ms

    async def forget_reads(self, segment_ids: Sequence[str]) -> None:
        """Drop the cached parts of these segments, so that the next read is recorded."""
        self._tier.reads.forget([UUID(segment_id) for segment_id in segment_ids])
        self._store.reads.clear()

    async def reads(self) -> list[str]:
        """Return the ids of the segments read since `forget_reads`."""
        return [segment_id.hex for segment_id in dict.fromkeys(self._store.reads)]

    @property
    def _store(self) -> TracedStore:
        store = self._tier.storage
        assert isinstance(store, TracedStore)
        return store
