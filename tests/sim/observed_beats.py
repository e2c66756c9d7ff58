"""The heartbeats of members of KIP-848 groups, from the wire to `histories.calls`.

The calls of classic members of such a group are heartbeats too: JoinGroup says what it has (an
eager one nothing), SyncGroup gets something, LeaveGroup leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from histories.calls import Beat, Outcome
from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from tidelog_protocol.messages.groups import (
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from histories.calls import Place
    from sim.observed import Asked

# What a coordinator answers before it writes anything. After another error it may be done yet.
REFUSED = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
    }
)


def beat_of(asked: Asked) -> Beat:
    """One heartbeat and its answer, if one came."""
    message: Any = asked.message
    rebalance_ms = message.rebalance_timeout_ms
    beat = Beat(
        group=message.group_id,
        member_id=message.member_id,
        epoch=message.member_epoch,
        span=asked.span,
        instance=message.instance_id,
        owned=None if message.topic_partitions is None else places_of(message.topic_partitions),
        rebalance_s=None if rebalance_ms == -1 else rebalance_ms / 1000,
        says_all=rebalance_ms != -1 and message.topic_partitions is not None,
    )
    answer = asked.response
    if answer is None:
        return beat
    error = ErrorCode(answer.error_code)
    beat.error, beat.term = error.name, asked.term
    if error is ErrorCode.NONE:
        beat.outcome, beat.answered_epoch = Outcome.OK, answer.member_epoch
        if answer.assignment is not None:
            beat.assigned = places_of(answer.assignment.topic_partitions)
    elif error in REFUSED:
        beat.outcome = Outcome.FAILED
    return beat


def places_of(listed: Iterable[Any]) -> frozenset[Place]:
    """Topics by their ids, and partitions."""
    return frozenset((bytes(each.topic_id).hex(), n) for each in listed for n in each.partitions)


def classic_beat_of(asked: Asked, place_of: Callable[[str, int], Place | None]) -> Beat | None:
    """One call of a classic member; None before it has an id."""
    message, answer = asked.message, asked.response
    beat = Beat(message.group_id, "", 0, asked.span, is_classic=True)  # type: ignore[attr-defined]
    if isinstance(message, LeaveGroupRequest):
        beat.epoch, beat.member_id = -1, message.members[0].member_id
    else:
        beat.member_id = message.member_id  # type: ignore[attr-defined]
    if isinstance(message, JoinGroupRequest):
        beat.owned = _placed(owned_topics(message.protocols[0].metadata), place_of)
        beat.rebalance_s = message.rebalance_timeout_ms / 1000
        if answer is not None and answer.error_code == ErrorCode.NONE:
            beat.member_id, beat.answered_epoch = answer.member_id, answer.generation_id
    elif not isinstance(message, LeaveGroupRequest):
        beat.epoch = beat.answered_epoch = message.generation_id  # type: ignore[attr-defined]
    if answer is not None:
        error = ErrorCode(answer.error_code)
        beat.error, beat.term = error.name, asked.term
        if error in REFUSED:
            beat.outcome = Outcome.FAILED
        elif error is ErrorCode.NONE:
            beat.outcome = Outcome.OK
            if isinstance(message, SyncGroupRequest):
                beat.assigned = _placed(assigned_topics(answer.assignment), place_of)
    return beat if beat.member_id else None


def _placed(
    topics: Iterable[tuple[str, list[int]]], place_of: Callable[[str, int], Place | None]
) -> frozenset[Place]:
    found = (place_of(name, index) for name, indexes in topics for index in indexes)
    return frozenset(place for place in found if place is not None)


def owned_topics(subscription: bytes) -> Iterator[tuple[str, list[int]]]:
    """The topics of which a classic member says that it has partitions, with these."""
    version = int.from_bytes(subscription[:2], "big")
    decoded = codec(ConsumerProtocolSubscription, version).decode(subscription, 2)
    for each in decoded.owned_partitions:
        yield each.topic, each.partitions


def assigned_topics(assignment: bytes) -> Iterator[tuple[str, list[int]]]:
    """The topics of a classic member's assignment, with their partitions."""
    if assignment:
        version = int.from_bytes(assignment[:2], "big")
        decoded = codec(ConsumerProtocolAssignment, version).decode(assignment, 2)
        for each in decoded.assigned_partitions:
            yield each.topic, each.partitions
