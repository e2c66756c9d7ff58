"""The calls that make what is rare in logs: gaps, control batches, aborted transactions,
tombstones.

The leader of the partition appends, as for a client, and its followers replicate. A call returns
when the records are committed.
"""

# ruff: noqa: PLC0415 - the tables of batches are needed in a broker only

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tidelog.awaiting import called_back
from tidelog.control.calls import Call
from tidelog.control.errors import REFUSED, ControlError
from tidelog.control.partitions import placed
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl
    from tidelog.replication.partition import Partition

__all__ = ["CALLS"]

REQUEST_MS_MAX = 30_000
GAP_MAX = 2**31 - 1
NO_PRODUCER = -1


@dataclass(frozen=True)
class Gap:
    """How many offsets of a partition shall have no record."""

    topic: str
    partition: int = 0
    count: int = 1


@dataclass(frozen=True)
class Marker:
    """A partition that gets the end marker of a transaction that wrote nothing to it."""

    topic: str
    partition: int = 0
    commit: bool = True


@dataclass(frozen=True)
class Aborted:
    """The values of the records of an aborted transaction."""

    topic: str
    partition: int = 0
    values: tuple[str, ...] = ("aborted",)


@dataclass(frozen=True)
class Tombstones:
    """The keys of the records without value."""

    topic: str
    keys: tuple[str, ...]
    partition: int = 0


@dataclass(frozen=True)
class Made:
    """The first and the last offset that a call has filled."""

    first_offset: int
    last_offset: int


# -- the cluster -----------------------------------------------------------------------------------


async def _make_gap(control: ClusterControl, args: Gap) -> Made:
    """Append an empty batch over some offsets, as compaction leaves it."""
    if not 1 <= args.count <= GAP_MAX:
        raise ControlError(f"must be 1 to {GAP_MAX}", field="count")
    return await _by_leader(control, "broker.make_gap", args)


async def _make_marker(control: ClusterControl, args: Marker) -> Made:
    """Append a control batch: the end marker of a transaction without records here."""
    return await _by_leader(control, "broker.make_control_batch", args)


async def _make_aborted(control: ClusterControl, args: Aborted) -> Made:
    """Append the records of a transaction, and the marker that aborts it."""
    if not args.values:
        raise ControlError("needs at least one value", field="values")
    return await _by_leader(control, "broker.make_aborted", args)


async def _make_tombstones(control: ClusterControl, args: Tombstones) -> Made:
    """Append a record without value for each key."""
    if not args.keys:
        raise ControlError("needs at least one key", field="keys")
    return await _by_leader(control, "broker.make_tombstones", args)


async def _by_leader(control: ClusterControl, call: str, args: Any) -> Made:
    where = await placed(control, args.topic, args.partition)
    if where.leader == -1:
        text = f"{args.topic}-{args.partition} has no leader"
        raise ControlError(text, field="partition", status=REFUSED)
    made: Made = await control.node(where.leader).ask(call, asdict(args))
    return made


# -- a broker --------------------------------------------------------------------------------------


async def _make_gap_here(control: BrokerControl, args: Gap) -> Made:
    """Append an empty batch to a partition that this broker leads."""
    from tidelog_protocol.batch import MAGIC, NO_TIMESTAMP, BatchHeader, assemble

    replica = _led(control, args.topic, args.partition)
    now_ms = control.server.runtime.clock.wall_ms()
    header = BatchHeader(
        base_offset=replica.log.log_end_offset,
        batch_length=0,
        leader_epoch=replica.leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=args.count - 1,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=now_ms,
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=0,
    )
    batch = memoryview(bytearray(assemble(header, b"")))
    result = replica.log.append_as_follower(batch, leader_epoch=replica.leader_epoch, now_ms=now_ms)
    assert result is not None
    replica.advance_high_watermark()
    await _committed(control, replica, result.last_offset)
    return Made(result.first_offset, result.last_offset)


async def _make_marker_here(control: BrokerControl, args: Marker) -> Made:
    """Append an end marker to a partition that this broker leads."""
    replica = _led(control, args.topic, args.partition)
    marker = _marker(control, await _producer_id(control), is_commit=args.commit)
    return await _append(control, replica, [marker])


async def _make_aborted_here(control: BrokerControl, args: Aborted) -> Made:
    """Append an aborted transaction to a partition that this broker leads."""
    from tidelog_protocol.records import Record, build_batch

    producer_id = await _producer_id(control)
    replica = _led(control, args.topic, args.partition)
    now_ms = control.server.runtime.clock.wall_ms()
    records = build_batch(
        [Record(n, now_ms, None, value.encode()) for n, value in enumerate(args.values)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    abort = _marker(control, producer_id, is_commit=False)
    return await _append(control, replica, [records, abort])


async def _make_tombstones_here(control: BrokerControl, args: Tombstones) -> Made:
    """Append tombstones to a partition that this broker leads."""
    from tidelog_protocol.records import Record, build_batch

    replica = _led(control, args.topic, args.partition)
    now_ms = control.server.runtime.clock.wall_ms()
    keys = enumerate(args.keys)
    batch = build_batch([Record(n, now_ms, key.encode(), None) for n, key in keys])
    return await _append(control, replica, [batch])


def _led(control: BrokerControl, topic: str, partition: int) -> Partition:
    replica = control.server.replicas.partition(topic, partition)
    if isinstance(replica, ErrorCode) or not replica.is_leader:
        text = f"broker {control.server.config.node_id} no longer leads {topic}-{partition}"
        raise ControlError(text, field="partition", status=REFUSED)
    return replica


async def _producer_id(control: BrokerControl) -> int:
    """Return a producer id that no client has."""
    ids = control.server.parts.transactions.producer_ids
    await ids.refill()
    try:
        return ids.take()
    except StorageError as error:
        raise ControlError(f"no producer id: {error}", status=REFUSED) from error


def _marker(control: BrokerControl, producer_id: int, *, is_commit: bool) -> bytes:
    from tidelog_protocol.records import ControlType, build_end_transaction_marker

    return build_end_transaction_marker(
        ControlType.COMMIT if is_commit else ControlType.ABORT,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=control.server.runtime.clock.wall_ms(),
    )


async def _append(control: BrokerControl, replica: Partition, batches: Sequence[bytes]) -> Made:
    """Append batches in one step of the loop, and wait until they are committed."""
    now_ms = control.server.runtime.clock.wall_ms()
    try:
        results = [
            replica.append(memoryview(bytearray(each)), acks=-1, now_ms=now_ms, from_client=False)
            for each in batches
        ]
    except StorageError as error:
        text = f"{replica.topic_partition} takes no records now: {error.code.name}"
        raise ControlError(text, status=REFUSED) from error
    await _committed(control, replica, results[-1].last_offset)
    return Made(results[0].first_offset, results[-1].last_offset)


async def _committed(control: BrokerControl, replica: Partition, last_offset: int) -> None:
    replicas = control.server.replicas
    replicas.appended((replica.topic_partition,))
    waits = [(replica, last_offset + 1)]

    def begin(on_done: Any) -> None:
        operation = replicas.await_acks(waits, REQUEST_MS_MAX, on_done)
        if operation.decided:
            on_done(operation.errors)

    (error,) = await called_back(begin)
    if error is not ErrorCode.NONE:
        text = f"the records of {replica.topic_partition} are not committed: {error.name}"
        raise ControlError(text, status=REFUSED)


CALLS = (
    Call("topics.make_gap", "cluster", Gap, Made, _make_gap),
    Call("topics.make_control_batch", "cluster", Marker, Made, _make_marker),
    Call("topics.make_aborted", "cluster", Aborted, Made, _make_aborted),
    Call("topics.make_tombstones", "cluster", Tombstones, Made, _make_tombstones),
    Call("broker.make_gap", "broker", Gap, Made, _make_gap_here),
    Call("broker.make_control_batch", "broker", Marker, Made, _make_marker_here),
    Call("broker.make_aborted", "broker", Aborted, Made, _make_aborted_here),
    Call("broker.make_tombstones", "broker", Tombstones, Made, _make_tombstones_here),
)
