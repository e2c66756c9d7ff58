"""Records of `__transaction_state` in Kafka's bytes: one for each change of a transactional id.

A key is an int16 record type and its body, a value an int16 version and its body.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from tidelog.coordinators.transactions.states import PREPARED, TransactionState
from tidelog.coordinators.transactions.transaction import TransactionValue
from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages.coordinator_records import TransactionLogKey, TransactionLogValue
from tidelog_storage.types import TopicPartition

__all__ = ["TransactionChange", "decode", "record", "tombstone"]

_VERSION = Struct(">h")
_KEY_TYPE = 0
_VERSION_MAX = 1
_OF_A_PRODUCER = frozenset({TransactionState.ONGOING, *PREPARED})


class TransactionChange(NamedTuple):
    """A record about a transactional id; None removes it."""

    transactional_id: str
    value: TransactionValue | None


def _key(transactional_id: str) -> bytes:
    key = TransactionLogKey(transactional_id=transactional_id)
    return _VERSION.pack(_KEY_TYPE) + codec(TransactionLogKey, 0).encode(key)


def tombstone(transactional_id: str) -> tuple[bytes, None]:
    """Return key and null value of an expired id."""
    return _key(transactional_id), None


def record(transactional_id: str, value: TransactionValue) -> tuple[bytes, bytes]:
    """Return key and value. An id without a transaction has null partitions, as in Kafka."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(value.partitions):
        topics.setdefault(topic, []).append(partition)
    partitions = [
        TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=indexes)
        for topic, indexes in topics.items()
    ]
    body = TransactionLogValue(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        transaction_timeout_ms=value.timeout_ms,
        transaction_status=value.state,
        transaction_partitions=None if value.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=value.last_update_ms,
        transaction_start_timestamp_ms=value.start_ms,
        client_transaction_version=value.client_version,
    )
    # Version 1 is written where the feature transaction.version is 1 or more, as it always is here.
    return _key(transactional_id), _VERSION.pack(_VERSION_MAX) + codec(
        TransactionLogValue, _VERSION_MAX
    ).encode(body)


def decode(key: bytes | None, value: bytes | None) -> TransactionChange | None:
    """Decode a record; None for an unknown record type. ProtocolError if corrupt."""
    if key is None or len(key) < _VERSION.size:
        raise ProtocolError("a record of __transaction_state without a key")
    if _VERSION.unpack_from(key)[0] != _KEY_TYPE:
        return None
    transactional_id = codec(TransactionLogKey, 0).decode(key, _VERSION.size).transactional_id
    if value is None:
        return TransactionChange(transactional_id, None)
    version = _VERSION.unpack_from(value)[0] if len(value) >= _VERSION.size else -1
    if not 0 <= version <= _VERSION_MAX:
        raise ProtocolError(f"version {version} of a value of __transaction_state")
    body = codec(TransactionLogValue, version).decode(value, _VERSION.size)
    try:
        state = TransactionState(body.transaction_status)
    except ValueError:
        raise ProtocolError(f"transaction state {body.transaction_status}") from None
    if state in _OF_A_PRODUCER and min(body.producer_id, body.producer_epoch) < 0:
        raise ProtocolError(f"a transaction of producer {body.producer_id} that is {state.name}")
    return TransactionChange(
        transactional_id,
        TransactionValue(
            producer_id=body.producer_id,
            producer_epoch=body.producer_epoch,
            timeout_ms=body.transaction_timeout_ms,
            state=state,
            partitions=frozenset(
                TopicPartition(each.topic, partition)
                for each in body.transaction_partitions or ()
                for partition in each.partition_ids
            ),
            last_update_ms=body.transaction_last_update_timestamp_ms,
            start_ms=body.transaction_start_timestamp_ms,
            previous_producer_id=body.previous_producer_id,
            next_producer_id=body.next_producer_id,
            client_version=body.client_transaction_version,
        ),
    )
