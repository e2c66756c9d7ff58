"""The requests for the state of share partitions, from and to Kafka's messages: keys 83 to 87.

A message lists partitions by topic; here each is an item, and each item has its outcome.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.coordinators.share.shard import ShareShard
from tidelog.coordinators.share.values import (
    Deletion,
    Initialization,
    Outcome,
    Reading,
    StateBatch,
    StateOutcome,
    SummaryOutcome,
    Writing,
)
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.share_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["OPERATIONS", "Operation", "items_of", "outcomes_of", "request_of", "response_of"]


class Operation(NamedTuple):
    """One of the requests: what it does, and its messages, outermost first."""

    words: str  # of Kafka's error messages
    decide: Callable[..., Any]  # of the shard
    item: type[Any]
    outcome: type[Any]
    asked: tuple[type[Any], type[Any], type[Any]]
    answered: tuple[type[Any], type[Any], type[Any]]


OPERATIONS: Mapping[ApiKey, Operation] = MappingProxyType(
    {
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: Operation(
            "initialize share group state",
            ShareShard.initialize,
            Initialization,
            Outcome,
            (
                InitializeShareGroupStateRequest,
                InitializeShareGroupStateRequest.InitializeStateData,
                InitializeShareGroupStateRequest.PartitionData,
            ),
            (
                InitializeShareGroupStateResponse,
                InitializeShareGroupStateResponse.InitializeStateResult,
                InitializeShareGroupStateResponse.PartitionResult,
            ),
        ),
        ApiKey.READ_SHARE_GROUP_STATE: Operation(
            "read share group state",
            ShareShard.read,
            Reading,
            StateOutcome,
            (
                ReadShareGroupStateRequest,
                ReadShareGroupStateRequest.ReadStateData,
                ReadShareGroupStateRequest.PartitionData,
            ),
            (
                ReadShareGroupStateResponse,
                ReadShareGroupStateResponse.ReadStateResult,
                ReadShareGroupStateResponse.PartitionResult,
            ),
        ),
        ApiKey.WRITE_SHARE_GROUP_STATE: Operation(
            "write share group state",
            ShareShard.write,
            Writing,
            Outcome,
            (
                WriteShareGroupStateRequest,
                WriteShareGroupStateRequest.WriteStateData,
                WriteShareGroupStateRequest.PartitionData,
            ),
            (
                WriteShareGroupStateResponse,
                WriteShareGroupStateResponse.WriteStateResult,
                WriteShareGroupStateResponse.PartitionResult,
            ),
        ),
        ApiKey.DELETE_SHARE_GROUP_STATE: Operation(
            "delete share group state",
            ShareShard.delete,
            Deletion,
            Outcome,
            (
                DeleteShareGroupStateRequest,
                DeleteShareGroupStateRequest.DeleteStateData,
                DeleteShareGroupStateRequest.PartitionData,
            ),
            (
                DeleteShareGroupStateResponse,
                DeleteShareGroupStateResponse.DeleteStateResult,
                DeleteShareGroupStateResponse.PartitionResult,
            ),
        ),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Operation(
            "read share group state summary",
            ShareShard.read_summary,
            Reading,
            SummaryOutcome,
            (
                ReadShareGroupStateSummaryRequest,
                ReadShareGroupStateSummaryRequest.ReadStateSummaryData,
                ReadShareGroupStateSummaryRequest.PartitionData,
            ),
            (
                ReadShareGroupStateSummaryResponse,
                ReadShareGroupStateSummaryResponse.ReadStateSummaryResult,
                ReadShareGroupStateSummaryResponse.PartitionResult,
            ),
        ),
    }
)


def request_of(operation: Operation, group_id: str, items: Sequence[Any]) -> Any:
    """Return the request for these items of one group."""
    request, topic, partition = operation.asked
    topics: dict[bytes, list[Any]] = {}
    for item in items:
        fields = _to_wire(item, partition)
        topics.setdefault(fields.pop("topic_id"), []).append(partition(**fields))
    return request(
        group_id=group_id,
        topics=[topic(topic_id=each, partitions=asked) for each, asked in topics.items()],
    )


def items_of(operation: Operation, request: Any) -> list[Any]:
    """Return the items of a request."""
    names = operation.item._fields[1:]  # behind the topic's id
    return [
        operation.item(topic.topic_id, *(_from_wire(each, name) for name in names))
        for topic in request.topics
        for each in topic.partitions
    ]


def response_of(operation: Operation, items: Sequence[Any], outcomes: Sequence[Any]) -> Any:
    """Return the response. A partition that was asked for twice is in it once, as in Kafka."""
    response, result, partition = operation.answered
    topics: dict[bytes, dict[int, Any]] = {}
    for item, outcome in zip(items, outcomes, strict=True):
        fields = _to_wire(outcome, partition)
        fields["error_code"] = fields.pop("error")
        fields["error_message"] = fields.pop("message")
        answer = partition(partition=item.partition, **fields)
        topics.setdefault(item.topic_id, {})[item.partition] = answer
    return response(
        results=[
            result(topic_id=each, partitions=[*answers.values()])
            for each, answers in topics.items()
        ]
    )


def outcomes_of(operation: Operation, items: Sequence[Any], response: Any) -> list[Any]:
    """Return the outcome of each item; UNKNOWN_SERVER_ERROR for one that has no answer."""
    names = operation.outcome._fields[2:]  # behind the error and its message
    found = {
        (topic.topic_id, each.partition): operation.outcome(
            ErrorCode(each.error_code),
            each.error_message,
            *(_from_wire(each, name) for name in names),
        )
        for topic in response.results
        for each in topic.partitions
    }
    missing = operation.outcome(ErrorCode.UNKNOWN_SERVER_ERROR)
    return [found.get((item.topic_id, item.partition), missing) for item in items]


def _to_wire(value: Any, partition: type[Any]) -> dict[str, Any]:
    fields: dict[str, Any] = value._asdict()
    if "batches" in fields:
        batches = fields.pop("batches")
        fields["state_batches"] = [partition.StateBatch(**each._asdict()) for each in batches]
    return fields


def _from_wire(partition: Any, name: str) -> Any:
    if name != "batches":
        return getattr(partition, name)
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in partition.state_batches
    )
