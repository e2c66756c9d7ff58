"""Guards of transactional and idempotent producers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.authorization.guard import ASKED_AT_ONCE, Answer, divided
from tidelog.cluster.metadata.image import is_internal_topic
from tidelog.security.acls import Operation, ResourceType
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from tidelog.authorization.guard import Call, Verdict, Verdicts

__all__ = [
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "describe_producers",
    "describe_transactions",
    "end_txn",
    "init_producer_id",
    "list_transactions",
    "txn_offset_commit",
]

DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_OF_BROKERS = 4  # versions of AddPartitionsToTxn that only brokers send


def init_producer_id(call: Call) -> Verdict:
    """InitProducerId: WRITE on the transactional id; an idempotent producer needs IDEMPOTENT_WRITE
    on the cluster, or WRITE on any topic (KIP-679)."""
    caller, transactional_id = call.caller, call.request.transactional_id
    if transactional_id is None:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        allowed = caller.allows_cluster(Operation.IDEMPOTENT_WRITE, logs=False) or (
            caller.allows_any(Operation.WRITE, ResourceType.TOPIC)
        )
    else:
        code = DENIED
        allowed = call.transaction(Operation.WRITE, transactional_id)
    if allowed:
        return None
    return Answer(call.api.response(error_code=int(code), producer_id=-1, producer_epoch=-1))


def end_txn(call: Call) -> Verdict:
    """EndTxn: WRITE on the transactional id."""
    if call.transaction(Operation.WRITE, call.request.transactional_id):
        return None
    return Answer(call.api.response(error_code=int(DENIED)))


def add_offsets_to_txn(call: Call) -> Verdict:
    """AddOffsetsToTxn: WRITE on the transactional id, READ on the group."""
    if not call.transaction(Operation.WRITE, call.request.transactional_id):
        return call.refuse(DENIED)
    if not call.group(Operation.READ, call.request.group_id):
        return call.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return None


def txn_offset_commit(call: Call) -> Verdict | Verdicts:
    """TxnOffsetCommit: as AddOffsetsToTxn, and READ on each topic."""
    refused = add_offsets_to_txn(call)
    if refused is not None:
        return refused
    return call.allowed(Operation.READ, call.request.topics)


def add_partitions_to_txn(call: Call) -> Verdicts:
    """AddPartitionsToTxn: WRITE on the transactional id and on each topic, none of which is added
    if one is refused. Newer versions are for brokers."""
    if call.version >= _OF_BROKERS:
        if call.caller.allows_cluster(Operation.CLUSTER_ACTION):
            return None
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return Answer(call.api.response(error_code=int(code)))
    request = call.request
    if not call.transaction(Operation.WRITE, request.v3_and_below_transactional_id):
        return call.refuse(DENIED)
    denied = yield from call.denied(
        Operation.WRITE,
        (topic for topic in request.v3_and_below_topics if not is_internal_topic(topic.name)),
    )
    return Answer(make=partial(_none_added, call, denied)) if denied else None


def _none_added(call: Call, denied: Collection[str]) -> Any:
    response = call.refuse(ErrorCode.OPERATION_NOT_ATTEMPTED).response
    for topic in response.results_by_topic_v3_and_below:
        is_denied = topic.name in denied or is_internal_topic(topic.name)
        for partition in topic.results_by_partition:
            if is_denied:
                partition.partition_error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif call.image.partition(topic.name, partition.partition_index) is None:
                partition.partition_error_code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return response


def describe_producers(call: Call) -> Verdicts:
    """DescribeProducers: READ on each topic."""
    verdict = yield from call.allowed(Operation.READ, call.request.topics)
    if verdict is None:
        return None
    if isinstance(verdict, Answer):
        return Answer(make=lambda: _explained(verdict.response))

    def merge(response: Any) -> Generator[None, None, Any]:
        return _explained((yield from verdict(response)))

    return merge


def _explained(response: Any) -> Any:
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                partition.error_message = "Topic authorization failed."
    return response


def describe_transactions(call: Call) -> Verdicts:
    """DescribeTransactions: DESCRIBE on each transactional id; topics that the caller may not
    describe are left out."""
    State: Any = call.api.response.TransactionState  # type: ignore[attr-defined]  # noqa: N806
    allowed, denied = yield from divided(
        call.request.transactional_ids, partial(call.transaction, Operation.DESCRIBE)
    )
    call.request = type(call.request)(transactional_ids=allowed)
    refused = [State(transactional_id=each, error_code=int(DENIED)) for each in denied]
    if not allowed and refused:
        return Answer(call.api.response(transaction_states=refused))

    def merge(response: Any) -> Generator[None, None, Any]:
        for number, state in enumerate(response.transaction_states, 1):
            if number % ASKED_AT_ONCE == 0:
                yield
            state.topics = [
                topic for topic in state.topics if call.topic(Operation.DESCRIBE, topic.topic)
            ]
        response.transaction_states.extend(refused)
        return response

    return merge


def list_transactions(call: Call) -> Verdict:
    """ListTransactions: DESCRIBE on each transactional id that is listed."""

    def filtered(response: Any) -> Any:
        response.transaction_states = [
            state
            for state in response.transaction_states
            if call.transaction(Operation.DESCRIBE, state.transactional_id)
        ]
        return response

    return filtered
