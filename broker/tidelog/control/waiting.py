"""How long to wait for a state of the cluster, and what to say when it does not come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tidelog.control.errors import UNANSWERED, ControlError
from tidelog.runtime import SystemClock

if TYPE_CHECKING:
    from tidelog.control.state import ClusterState, LogState, PartitionState

__all__ = ["Deadline", "summary"]

PAUSE_S = 0.01
PAUSE_S_MAX = 0.2
LINES_MAX = 200


class Deadline:
    """A limit of real time, and pauses that grow."""

    def __init__(self, timeout_s: float) -> None:
        if not timeout_s >= 0:
            raise ControlError(f"must not be negative, and is {timeout_s:g}", field="timeout_s")
        self._timeout_s = timeout_s
        self._clock = SystemClock()
        self._end_s = self._clock.monotonic() + timeout_s
        self._pause_s = PAUSE_S

    def pause_s(self, state: ClusterState, is_so: Callable[[ClusterState], object]) -> float | None:
        """Return None if it is so, else how long to wait before the next look.

        ControlError after the limit.
        """
        why = ""
        try:
            if is_so(state):
                return None
        except LookupError as error:
            why = f" ({error})"
        left_s = self._end_s - self._clock.monotonic()
        if left_s <= 0:
            text = f"not so after {self._timeout_s:g} s{why}; the last state:\n"
            raise ControlError(text + summary(state), status=UNANSWERED)
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, PAUSE_S_MAX)
        return min(pause_s, left_s)


def summary(state: ClusterState) -> str:
    """Return the state in lines for people."""
    lines = list(_lines(state))
    if len(lines) > LINES_MAX:
        lines[LINES_MAX:] = [f"... and {len(lines) - LINES_MAX} lines more"]
    return "\n".join(lines)


def _lines(state: ClusterState) -> Iterator[str]:
    running = ", ".join(str(broker.node_id) for broker in state.brokers)
    yield f"running brokers: {running or 'none'}; controller: {state.controller}"
    for topic in state.topics:
        for partition in topic.partitions:
            yield _partition_line(partition)
            for log in partition.logs:
                yield _log_line(log)
            for remote in partition.remote:
                yield f"    remote {remote.start_offset}..{remote.end_offset} {remote.state}"
    for group in state.groups:
        members = ", ".join(member.client_id for member in group.members)
        yield (
            f"group {group.group_id}: {group.state}, generation {group.generation}, on broker"
            f" {group.coordinator}, members: {members or 'none'}"
        )
        for one in group.offsets:
            yield f"    {one.topic}-{one.partition}: committed {one.offset}, lag {one.lag}"
    for each in state.transactions:
        yield (
            f"transactional id {each.transactional_id}: {each.state}, producer"
            f" {each.producer_id} epoch {each.producer_epoch}"
        )


def _partition_line(partition: PartitionState) -> str:
    return (
        f"{partition.topic}-{partition.partition}: leader {partition.leader} in epoch"
        f" {partition.leader_epoch}, replicas {list(partition.replicas)}, isr {list(partition.isr)}"
    )


def _log_line(log: LogState) -> str:
    role = "leader" if log.is_leader else "follower"
    return (
        f"    broker {log.broker} ({role}): log start {log.log_start_offset}, local start"
        f" {log.local_log_start_offset}, last stable {log.last_stable_offset}, high watermark"
        f" {log.high_watermark}, log end {log.log_end_offset}, segments {len(log.segments)}"
    )
