"""The time of a cluster: a line that all its brokers share, and the skew of each."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidelog.runtime import SystemClock
from tidelog.timeline import Paces

__all__ = ["ClockSetting", "ClusterTime", "session_rate"]

_machine = SystemClock()


@dataclass(frozen=True)
class ClockSetting:
    """The time of a cluster as a line: it was `base_s` at second `since_s` of the machine's clock,
    and `speed` seconds pass in a second. All brokers of a machine read the same one."""

    base_s: float = 0.0
    since_s: float = 0.0
    speed: float = 1.0
    began_ms: float | None = None
    """The wall clock at second 0 of this line; None if the wall clock is the machine's."""
    skew_ms: int = 0
    session_paces: tuple[tuple[float, ...], ...] = ()
    """How fast the time of sessions passed, as `timeline.Paces` has it."""


def session_rate(speed: float) -> float:
    """Return how fast sessions pass by the wall clock, so that they pass in real time."""
    return 1 / speed if speed else 1.0


class ClusterTime:
    """The time of a cluster: what each broker takes when it starts."""

    def __init__(self) -> None:
        self._line = ClockSetting()
        self._skews: dict[int, int] = {}
        self._paces = Paces()

    def setting(self, node_id: int) -> ClockSetting:
        """Return the clock of a broker."""
        skew_ms = self._skews.get(node_id, 0)
        paces = tuple(
            (pace.wall_ms + skew_ms, pace.passed_ms + skew_ms, pace.rate)
            for pace in self._paces.list
        )
        return replace(self._line, skew_ms=skew_ms, session_paces=paces)

    @property
    def speed(self) -> float:
        """Seconds that pass in a second."""
        return self._line.speed

    @property
    def is_moved(self) -> bool:
        """Return whether it is not the machine's."""
        return self._line != ClockSetting() or bool(self._skews)

    def change(
        self,
        *,
        since_s: float,
        seconds: float = 0.0,
        speed: float | None = None,
        expires_sessions: bool = False,
    ) -> None:
        """Let `seconds` have passed at once at that second of the machine's clock."""
        line = self._line
        now_s = line.base_s + (since_s - line.since_s) * line.speed
        began_ms = line.began_ms
        if began_ms is None:
            began_ms = _machine.wall_ms() - 1000 * now_s
        speed = line.speed if speed is None else speed
        self._line = ClockSetting(now_s + seconds, since_s, speed, began_ms)
        if seconds and not expires_sessions:
            self._paces.add(0.0, round(began_ms + 1000 * now_s))
        self._paces.add(session_rate(speed), round(began_ms + 1000 * (now_s + seconds)))

    def skew(self, node_id: int, ms: int) -> None:
        """Set the skew of one broker's wall clock."""
        self._skews[node_id] = ms

    def reset(self) -> None:
        """Show the machine's wall clock again; the time of periodic work does not go back."""
        self.change(since_s=_machine.monotonic(), speed=1.0)
        self._line = replace(self._line, began_ms=None)
        self._skews.clear()
        self._paces = Paces()
