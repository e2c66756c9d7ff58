"""The heartbeats of members of streams groups, from the wire to `histories.calls`.

A task is a place: the topic that its subtopology reads first, and the partition. A standby task may
be at several members, and so is a place of its member alone: it takes time to be given back too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from histories.calls import Beat, Outcome
from sim.observed_beats import REFUSED
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from histories.calls import Place
    from sim.observed import Asked


class StreamsBeats:
    """The heartbeats of a run, in the order in which they were made."""

    def __init__(self, place_of: Callable[[str, int], Place | None]) -> None:
        self._place_of = place_of
        self._topics: dict[str, dict[str, str]] = {}  # by group and subtopology

    def beat_of(self, asked: Asked) -> Beat:
        """One heartbeat and its answer, if one came."""
        message: Any = asked.message
        if message.topology is not None:
            self._topics[message.group_id] = {
                each.subtopology_id: _first_topic(each) for each in message.topology.subtopologies
            }
        rebalance_ms = message.rebalance_timeout_ms
        beat = Beat(
            group=message.group_id,
            member_id=message.member_id,
            epoch=message.member_epoch,
            span=asked.span,
            owned=self._places(message, message),
            rebalance_s=None if rebalance_ms == -1 else rebalance_ms / 1000,
            says_all=message.member_epoch == 0,
        )
        answer = asked.response
        if answer is None:
            return beat
        error = ErrorCode(answer.error_code)
        beat.error, beat.term = error.name, asked.term
        if error is ErrorCode.NONE:
            beat.outcome, beat.answered_epoch = Outcome.OK, answer.member_epoch
            beat.assigned = self._places(message, answer)
        elif error in REFUSED:
            beat.outcome = Outcome.FAILED
        return beat

    def _places(self, message: Any, tasks: Any) -> frozenset[Place] | None:
        """The tasks in a message or in its answer."""
        if tasks.active_tasks is None:
            return None
        names = self._topics.get(message.group_id, {})
        active = ((names[key], n) for key, n in _listed(tasks.active_tasks))
        standby = _listed(tasks.standby_tasks)
        return frozenset(
            (
                *(self._place_of(*place) or place for place in active),
                *((f"{names[key]} beside {message.member_id}", n) for key, n in standby),
            )
        )


def _listed(tasks: Iterable[Any]) -> Iterator[tuple[str, int]]:
    return ((each.subtopology_id, n) for each in tasks for n in each.partitions)


def _first_topic(subtopology: Any) -> str:
    internal = (topic.name for topic in subtopology.repartition_source_topics)
    return next(iter((*subtopology.source_topics, *internal)))
