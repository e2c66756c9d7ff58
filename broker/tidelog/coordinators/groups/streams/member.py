"""One member of a streams group: what it says about itself, its epoch and its tasks.

Members are values: a step makes a new one. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.coordinators.groups.modern.states import MemberState
from tidelog.coordinators.groups.streams.tasks import NOTHING, HeldTasks

__all__ = ["Description", "Endpoint", "StreamsMember"]


class Endpoint(NamedTuple):
    """Where a member answers interactive queries."""

    host: str
    port: int


class Description(NamedTuple):
    """What a member says about itself. Kafka 4.3 has no static members of streams groups."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()  # by key


class StreamsMember(NamedTuple):
    """A member.

    Invariant: no task is both in `assigned` and in `revoking`.
    """

    member_id: str
    description: Description = Description()
    epoch: int = 0
    previous_epoch: int = 0  # accepted in a heartbeat, because an answer may be lost
    state: MemberState = MemberState.STABLE
    assigned: HeldTasks = NOTHING
    revoking: HeldTasks = NOTHING

    def moved(
        self, state: MemberState, epoch: int, assigned: HeldTasks, revoking: HeldTasks
    ) -> StreamsMember:
        """Return the member after a step."""
        return self._replace(
            state=state,
            epoch=epoch,
            previous_epoch=self.epoch,
            assigned=assigned,
            revoking=revoking,
        )
