"""Moves the time of one broker, for `clock.py`.

A step runs all periodic work that is due in it, in the order of its moments; at each moment it
waits until the tasks that were woken have done their work. Delayed fetches wait shorter by the
step. With `expires_sessions` the same holds for the sessions of members, for transactions, and for
requests that wait for other brokers; else these keep the time that they had left.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.control.cluster_time import session_rate
from tidelog.control.errors import REFUSED, ControlError
from tidelog.runtime import SystemClock
from tidelog.timeline import LoopTimeline, Pace

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tidelog.control.cluster_time import ClockSetting
    from tidelog.seams import Runtime
    from tidelog.server import BrokerServer

__all__ = ["ClockState", "MovableTime"]

SETTLE_S_MAX = 5.0  # work that takes longer, such as a large copy, ends after the step
SETTLE_APART_S_MAX = 0.1  # the same, while work may wait for a broker that does not answer
TURNS_MAX = 20  # of the loop, before the wait for threads and sockets
LOOK_AGAIN_S = 0.0005
MOMENTS_MAX = 100_000  # in a step


@dataclass(frozen=True)
class ClockState:
    """The clock of one broker."""

    wall_ms: int
    """Its wall clock: milliseconds since 1970."""
    ahead_ms: int
    """How far it was moved ahead of the machine's, without the skew."""
    skew_ms: int
    """How far its wall clock is ahead of the other brokers'."""
    speed: float
    """Seconds that pass in a second; 0 while it is frozen."""


class MovableTime:
    """The clock and the timelines of one runtime, if they are the real ones."""

    def __init__(self, runtime: Runtime) -> None:
        """ControlError if they are not: a simulation moves its own."""
        clock, work, sessions = runtime.clock, runtime.work, runtime.sessions
        if not (
            isinstance(clock, SystemClock)
            and isinstance(work, LoopTimeline)
            and isinstance(sessions, LoopTimeline)
        ):
            text = "the broker was given a clock of its own; move that one"
            raise ControlError(text, status=REFUSED)
        self.clock, self.work, self.sessions = clock, work, sessions

    def state(self) -> ClockState:
        """Return what the clock shows."""
        clock = self.clock
        return ClockState(clock.wall_ms(), clock.ahead_ms, clock.skew_ms, self.work.rate)

    def set(self, setting: ClockSetting) -> None:
        """Take the time of the cluster."""
        self.work.set_line(setting.base_s, setting.since_s, setting.speed)
        if setting.began_ms is None:
            self.clock.follow(None)
        else:
            self.clock.follow(self.work, setting.began_ms)
        self.clock.skew_ms = setting.skew_ms
        self.sessions.paces.list = [Pace._make(pace) for pace in setting.session_paces]

    async def step(
        self,
        server: BrokerServer,
        seconds: float,
        *,
        expires_sessions: bool,
        apart: Collection[int] = (),
    ) -> None:
        """Let so many seconds pass, with all that falls due in them. `apart` are the brokers that
        do not answer others."""
        lines = [self.work]
        settle_s_max = SETTLE_APART_S_MAX if _waits_in_vain(server, apart) else SETTLE_S_MAX
        if expires_sessions:
            lines.append(self.sessions)
        else:
            self.sessions.paces.add(0.0, self.clock.wall_ms())
        _shorten_waits(server, seconds, expires_sessions=expires_sessions)
        for line in lines:
            line.begin_step(seconds)
        try:
            for _ in range(MOMENTS_MAX):
                due = [next_s for line in lines if (next_s := line.next_s()) is not None]
                if not due:
                    break
                for line in lines:
                    line.stand_at(min(due))
                await self._settle(lines, settle_s_max)
        finally:
            for line in lines:
                line.end_step()
            self.sessions.paces.add(session_rate(self.work.rate), self.clock.wall_ms())

    async def _settle(self, lines: Sequence[LoopTimeline], seconds_max: float) -> None:
        """Wait until the tasks that this moment woke have come to rest."""
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            if not any(line.awake() for line in lines):
                return
        end_s = self.clock.monotonic() + seconds_max
        while any(line.awake() for line in lines):
            if self.clock.monotonic() >= end_s:
                for line in lines:
                    line.leave_behind()
                return
            await asyncio.sleep(LOOK_AGAIN_S)


def _waits_in_vain(server: BrokerServer, apart: Collection[int]) -> bool:
    """Return whether work may wait for a broker that does not answer: one that is not fenced yet
    leads partitions and is in sync; one that is cut off itself waits for the others."""
    image = server.metadata.image
    return server.config.node_id in apart or any(map(image.is_alive, apart))


def _shorten_waits(server: BrokerServer, seconds: float, *, expires_sessions: bool) -> None:
    """Let fetches wait shorter for more data; and if sessions expire, also what waits for other
    brokers, such as a produce."""
    replicas = server.replicas
    for purgatory in replicas.purgatories:
        if expires_sessions or purgatory is replicas.fetch_purgatory:
            purgatory.pass_by(seconds)
