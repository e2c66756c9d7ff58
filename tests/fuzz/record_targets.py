"""Records that coordinators, the metadata and the remote tier load: keys and values of any bytes.

An input is pairs of a key and a value, each behind an int32 length, -1 for null.
"""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from fuzz.grammar import Writer
from fuzz.mutation import mutated
from fuzz.oracles import Target
from support.metadata import CLUSTER_ID
from tidelog.cluster.metadata.features import initial_levels
from tidelog.cluster.metadata.image import ClusterImage
from tidelog.cluster.metadata.log_replay import Transactions
from tidelog.cluster.metadata.replay import ImageBuilder, ReplayError
from tidelog.cluster.metadata.snapshots import image_records
from tidelog.coordinators.groups.now import Now
from tidelog.coordinators.groups.records import decode as decode_group
from tidelog.coordinators.groups.records import tombstones
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.share.records import decode as decode_share
from tidelog.coordinators.share.records import encode as encode_share
from tidelog.coordinators.share.shard import ShareShard
from tidelog.coordinators.transactions.records import decode as decode_transaction
from tidelog.coordinators.transactions.records import record
from tidelog.coordinators.transactions.shard import TransactionShard
from tidelog.coordinators.transactions.states import PREPARED
from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages import (
    consumer_records,
    coordinator_records,
    metadata_records,
    share_group_records,
    share_state_records,
    streams_group_records,
)
from tidelog_protocol.schema import version_range
from tidelog_storage.remote import metadata_records as remote_records
from tidelog_storage.remote.api import TopicIdPartition
from tidelog_storage.remote.metadata_cache import PartitionMetadata
from wire_values import filled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog_protocol.schema import Message

    Table = tuple[int, type[Message], type[Message]]  # record type, key, value

NOW = Now(1_000_000, 1_700_000_000_000)
_LENGTH = struct.Struct(">i")
_RECORDS_MAX = 200


def pairs_of(data: bytes) -> Iterator[tuple[bytes | None, bytes | None]]:
    """The pairs of an input; what is cut is left out."""
    position, found = 0, []
    while position + 4 <= len(data) and len(found) < 2 * _RECORDS_MAX:
        (size,) = _LENGTH.unpack_from(data, position)
        position += 4
        if size > len(data) - position:
            break
        found.append(None if size < 0 else data[position : position + size])
        position += max(size, 0)
    return iter(list(zip(found[::2], found[1::2], strict=False)))


def joined(parts: list[bytes | None]) -> bytes:
    """An input of keys and values in turn."""
    return b"".join(
        _LENGTH.pack(-1) if each is None else _LENGTH.pack(len(each)) + each for each in parts
    )


# ---- inputs from the tables ----------------------------------------------------------------------


def _versioned(number: int, body: bytes) -> bytes:
    return struct.pack(">h", number) + body


def _seeds(tables: list[Table]) -> list[bytes]:
    """Each table's record alone, and all of them with a second time."""
    pairs = []
    for kind, key, value in tables:
        _, last = version_range(value.VERSIONS)
        pairs.append(
            [
                _versioned(kind, codec(key, 0).encode(filled(key, 0))),
                _versioned(last, codec(value, last).encode(filled(value, last))),
            ]
        )
    everything = [part for pair in pairs for part in pair]
    gone = [part if number % 2 == 0 else None for number, part in enumerate(everything)]
    return [*map(joined, pairs), joined([*everything, *everything]), joined(everything + gone)]


def _drawn(tables: list[Table], data: bytes, seed: int) -> bytes:
    """Several records from the tables, with lies; or a changed input."""
    rng = random.Random(seed)
    if rng.random() < 0.3:
        return mutated(data, seed)
    parts: list[bytes | None] = []
    for _ in range(rng.choice((1, 2, 3, 6, 12))):
        kind, key, value = rng.choice(tables)
        first, last = version_range(value.VERSIONS)
        version = rng.randint(first, last)
        body = None
        if rng.random() < 0.85:
            body = _versioned(version, Writer(value, version, rng).write())
        parts += (_versioned(kind, Writer(key, 0, rng).write()), body)
    return joined(parts)


# ---- groups, share states, transactions ----------------------------------------------------------

_GROUPS: list[Table] = [
    (1, coordinator_records.OffsetCommitKey, coordinator_records.OffsetCommitValue),
    (2, coordinator_records.GroupMetadataKey, coordinator_records.GroupMetadataValue),
    *[
        (kind, *pair)
        for module in (consumer_records, share_group_records, streams_group_records)
        for kind, pair in module.TABLES.items()
    ],
]
_SHARES: list[Table] = [
    (0, share_state_records.ShareSnapshotKey, share_state_records.ShareSnapshotValue),
    (1, share_state_records.ShareUpdateKey, share_state_records.ShareUpdateValue),
]
_TRANSACTIONS: list[Table] = [
    (0, coordinator_records.TransactionLogKey, coordinator_records.TransactionLogValue)
]


def _run_groups(data: bytes) -> None:
    """As the coordinator loads a partition, serves its groups, lets members go and deletes all."""
    shard = GroupShard(0, 0)
    for offset, (key, value) in enumerate(pairs_of(data)):
        with suppress(ProtocolError):
            change = decode_group(key, value)
            if change is not None:
                shard.replay(change, offset + 1, NOW, 7 if offset % 5 == 4 else None)
    shard.ended(7, 1000, NOW, is_commit=True)
    shard.advance(2000)
    for group in list(shard.groups.values()):
        group.resume(NOW)
        assert isinstance(str(group.state), str)
        group.next_deadline_ms()
        for each in tombstones(group):
            if group.type != "classic":
                change = decode_group(*each)
                assert change is not None
                shard.replay(change, 3000, NOW)
        shard.forget_group(group.group_id)
    assert all(group.type == "classic" for group in shard.groups.values())


def _run_shares(data: bytes) -> None:
    shard = ShareShard(0, 0, 5)
    for offset, (key, value) in enumerate(pairs_of(data)):
        with suppress(ProtocolError):
            change = decode_share(key, value)
            if change is not None:
                shard.replay(change, offset)
    assert shard.redundant_offset >= 0
    for each in shard.cold_snapshots(1 << 62, 1000):
        encode_share(each)


def _run_transactions(data: bytes) -> None:
    shard = TransactionShard(0, 0)
    for offset, (key, value) in enumerate(pairs_of(data)):
        with suppress(ProtocolError):
            change = decode_transaction(key, value)
            if change is not None:
                shard.replay(change, offset + 1)
    for transaction in shard.transactions.values():
        if transaction.value.state in PREPARED:
            transaction.complete(transaction.prepare_complete(NOW.wall_ms))
        record(transaction.transactional_id, transaction.value)
        transaction.is_idle_since(NOW.wall_ms)


# ---- metadata ------------------------------------------------------------------------------------


def _run_metadata(data: bytes) -> None:
    """Values alone; an image that was built is written as records again, and read."""
    builder = ImageBuilder(ClusterImage(cluster_id=CLUSTER_ID, features=initial_levels()))
    transactions = Transactions()
    for _, value in pairs_of(data):
        transactions.apply(builder, metadata_records.decode_record(value or b"")[0])
    image = builder.build(offset=1, leader_epoch=1, controller_id=-1)
    again = ImageBuilder(ClusterImage(cluster_id=CLUSTER_ID))
    for each in image_records(image):
        again.apply(each)
    copy = again.build(offset=1, leader_epoch=1, controller_id=-1)
    assert copy.topics.keys() == image.topics.keys()


def _frames(table: type[Message], version: int, body: bytes) -> bytes:
    """A value of the metadata log: frame version, record type, version."""
    out = bytearray([1])
    for number in (table.API_KEY or 0, version):
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out) + body


_METADATA = list(metadata_records.RECORDS.values())


_METADATA_FIRST = [
    metadata_records.RegisterBrokerRecord,
    metadata_records.TopicRecord,
    metadata_records.PartitionRecord,
    metadata_records.AccessControlEntryRecord,
]
"""What other records are about: a broker, a topic of one partition, an ACL."""


def _metadata() -> list[bytes]:
    """Each record behind those that it is about, and a transaction of all."""
    first = [_metadata_value(table) for table in _METADATA_FIRST]
    more = [_metadata_value(table) for table in _METADATA if table not in _METADATA_FIRST]
    begin, end = (
        _metadata_value(table)
        for table in (
            metadata_records.BeginTransactionRecord,
            metadata_records.EndTransactionRecord,
        )
    )
    seeds = [*(first[:count] for count in range(1, 5)), *([*first, value] for value in more)]
    return [
        joined([part for value in seed for part in (None, value)])
        for seed in [*seeds, [begin, *first, end]]
    ]


def _metadata_value(table: type[Message]) -> bytes:
    _, last = version_range(table.VERSIONS)
    message = filled(table, last)
    if hasattr(message, "partition_id"):
        message.partition_id = 0
    return _frames(table, last, codec(table, last).encode(message))


def _drawn_metadata(data: bytes, seed: int) -> bytes:
    rng = random.Random(seed)
    if rng.random() < 0.3:
        return mutated(data, seed)
    parts: list[bytes | None] = []
    for _ in range(rng.choice((1, 2, 4, 8))):
        table = rng.choice(_METADATA)
        version = rng.randint(*version_range(table.VERSIONS))
        parts += (None, _frames(table, version, Writer(table, version, rng).write()))
    return joined(parts)


# ---- the remote tier -----------------------------------------------------------------------------

_TABLES: Any = remote_records.table.RECORDS
_PARTITION = TopicIdPartition(UUID(bytes=bytes(range(16))), "seven", 7777)


def _run_remote(data: bytes) -> None:
    """As the reader of `__remote_log_metadata` takes events of a partition it follows."""
    known = PartitionMetadata(_PARTITION)
    for _, value in pairs_of(data):
        with suppress(ProtocolError):
            event = remote_records.decode(value or b"")
            if event.topic_id_partition.topic_id == _PARTITION.topic_id:
                known.apply(event)
    for epoch in (0, 1, 7777):
        for offset in (0, 1, 777777, 1 << 62):
            known.segment_for(epoch, offset)
        known.highest_offset(epoch)
        known.next_segment_with_txn_index(epoch, 0)
    copy = PartitionMetadata.restore(known.snapshot())
    assert copy.segments() == known.segments()


def _remote() -> list[bytes]:
    values = []
    for table in _TABLES.values():
        _, last = version_range(table.VERSIONS)
        values.append(_frames(table, last, codec(table, last).encode(filled(table, last))))
    everything: list[bytes | None] = [part for value in values for part in (None, value)]
    return [joined([None, value]) for value in values] + [joined(everything * 2)]


def _drawn_remote(data: bytes, seed: int) -> bytes:
    """Histories of few segments, so that events meet."""
    rng = random.Random(seed)
    if rng.random() < 0.4:
        return mutated(data, seed)
    parts: list[bytes | None] = []
    for _ in range(rng.choice((2, 4, 12, 40))):
        table = rng.choice(list(_TABLES.values()))
        message = filled(table, 0)
        identity = getattr(message, "remote_log_segment_id", None)
        if identity is not None:
            identity.id = bytes([rng.randrange(3)] * 16)
        for name in ("remote_log_segment_state", "remote_partition_delete_state"):
            if hasattr(message, name):
                setattr(message, name, rng.randrange(5))
        if hasattr(message, "start_offset"):
            message.start_offset, message.end_offset = rng.randrange(20), rng.randrange(30)
            message.segment_leader_epochs = [
                remote_records.table.SegmentLeaderEpoch(
                    leader_epoch=rng.choice((-1, 0, 1, 2)), offset=rng.randrange(-1, 30)
                )
                for _ in range(rng.randrange(4))
            ]
        parts += (None, _frames(table, 0, codec(table, 0).encode(message)))
    return joined(parts)


RECORD_TARGETS = [
    Target("group-records", _run_groups, (), partial(_seeds, _GROUPS), partial(_drawn, _GROUPS)),
    Target("share-records", _run_shares, (), partial(_seeds, _SHARES), partial(_drawn, _SHARES)),
    Target(
        "transaction-records",
        _run_transactions,
        (),
        partial(_seeds, _TRANSACTIONS),
        partial(_drawn, _TRANSACTIONS),
    ),
    Target(
        "metadata-records", _run_metadata, (ProtocolError, ReplayError), _metadata, _drawn_metadata
    ),
    Target("remote-events", _run_remote, (), _remote, _drawn_remote),
]
