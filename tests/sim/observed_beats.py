"""The heartbeats of members of KIP-848 groups, from the wire to `histories.calls`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from histories.calls import Beat, Outcome
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from histories.calls import Place
    from sim.observed import Asked

# What a coordinator answers before it writes anything. After another error it may be done yet.
REFUSED = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.INVALID_REQUEST,
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
