"""The calls on time: `clock.advance`, `freeze`, `resume`, `speed`, `skew`, `reset`, `describe`.

All brokers of a cluster have one time. An advance moves them together, in steps that get shorter
towards its end: a month takes about 300 steps, and no broker is far ahead of another.

Two kinds of time (the table is in docs/testing.md):

- Time that moves: the wall clock, retention, flush, compaction, checkpoints, scrubbing, expiry of
  offsets, producer ids and transactional ids, remote copy, expiry and deletion, elections of
  preferred leaders, and the waits of fetches. With `expire_sessions` also the sessions of group
  members, transactions, and requests that wait for other brokers.
- Time that never moves, because both of its ends live in real time: heartbeats and sessions of
  brokers, the quorum's elections, replica lag, time-outs of requests between brokers, quotas,
  retries, idle connections.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.control.broker_clock import ClockState, MovableTime
from tidelog.control.calls import Call, Nothing
from tidelog.control.cluster_time import ClockSetting
from tidelog.control.errors import ControlError
from tidelog.runtime import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl

__all__ = ["CALLS", "Clocks", "reset"]

DAYS_MAX = 36_525
SPEED_MAX = 1000.0
SKEW_MS_MAX = DAYS_MAX * 86_400_000
STEP_S_MIN = 1.0
STEPS_AHEAD = 10  # a step is at most this part of what is left

_machine = SystemClock()


@dataclass(frozen=True)
class Advance:
    """How much time is to pass: the sum of these."""

    days: float = 0.0
    hours: float = 0.0
    minutes: float = 0.0
    seconds: float = 0.0
    expire_sessions: bool = False


@dataclass(frozen=True)
class Speed:
    """How many seconds are to pass in a second."""

    speed: float


@dataclass(frozen=True)
class Skew:
    """How far the wall clock of one broker is to be ahead of the others; behind if negative."""

    broker: int
    ms: int


@dataclass(frozen=True)
class Clocks:
    """The clocks of a cluster."""

    speed: float
    """Seconds that pass in a second; 0 while time is frozen."""
    brokers: dict[int, ClockState]
    """Those of the running brokers, by node id."""


@dataclass(frozen=True)
class Step:
    """A part of an advance."""

    seconds: float
    expire_sessions: bool
    apart: tuple[int, ...] = ()
    """Brokers that others may wait for in vain: they do not run, are frozen, or cut off."""


# -- the cluster -----------------------------------------------------------------------------------


async def _describe(control: ClusterControl, _: Nothing) -> Clocks:
    """Return the clocks of the running brokers."""
    return Clocks(control.time.speed, await control.ask_all("broker.clock", {}))


async def _advance(control: ClusterControl, args: Advance) -> Clocks:
    """Let time pass at once on all running brokers, with all work that falls due.

    Members' sessions and open transactions outlive it, unless `expire_sessions` is set. Clients'
    own clocks do not move. Brokers that do not run or are frozen are not in the result; work that
    waits for one of them goes on after the call.
    """
    seconds = _seconds(args)
    async with control.one_at_a_time:
        control.time.change(since_s=_machine.monotonic())
        await _align(control)
        for step_s in _steps(seconds):
            begun_s = _machine.monotonic()
            expires = args.expire_sessions
            control.time.change(since_s=begun_s, seconds=step_s, expires_sessions=expires)
            step = Step(step_s, args.expire_sessions, control.apart())
            await control.ask_all("broker.clock_step", vars(step))
        return await _align(control)


def _seconds(args: Advance) -> float:
    total_s = 0.0
    for field, length_s in (("days", 86_400), ("hours", 3600), ("minutes", 60), ("seconds", 1)):
        value = getattr(args, field)
        if value < 0:
            raise ControlError(f"time cannot go back: must be 0 or more, not {value}", field=field)
        total_s += value * length_s
        if not total_s <= DAYS_MAX * 86_400:  # nor if it is no number
            raise ControlError(f"at most {DAYS_MAX} days at once, not {value}", field=field)
    if total_s == 0:
        raise ControlError("must be above 0, as the other lengths are 0", field="seconds")
    return total_s


def _steps(seconds: float) -> Iterator[float]:
    """Return the lengths of the steps: short near the end, where work must be on time."""
    left_s = seconds
    while left_s > 0:
        step_s = min(left_s, max(STEP_S_MIN, left_s / STEPS_AHEAD))
        left_s -= step_s
        yield step_s


async def _align(control: ClusterControl) -> Clocks:
    """Set the clocks of all running brokers to the time of the cluster."""
    states = {}
    for node in control.running():
        setting = control.time.setting(node.node_id)
        states[node.node_id] = await node.ask("broker.clock_set", vars(setting))
    return Clocks(control.time.speed, states)


async def _freeze(control: ClusterControl, _: Nothing) -> Clocks:
    """Stop the wall clock and all periodic work; sessions go on in real time."""
    return await _change_speed(control, 0.0)


async def _resume(control: ClusterControl, _: Nothing) -> Clocks:
    """Let time pass as fast as the machine's again, from where it is."""
    return await _change_speed(control, 1.0)


async def _speed(control: ClusterControl, args: Speed) -> Clocks:
    """Let time pass faster or slower; sessions go on in real time."""
    if not 0 < args.speed <= SPEED_MAX:
        text = f"must be above 0 and at most {SPEED_MAX:g}, not {args.speed}; freeze stops time"
        raise ControlError(text, field="speed")
    return await _change_speed(control, args.speed)


async def _change_speed(control: ClusterControl, speed: float) -> Clocks:
    async with control.one_at_a_time:
        control.time.change(since_s=_machine.monotonic(), speed=speed)
        return await _align(control)


async def _skew(control: ClusterControl, args: Skew) -> Clocks:
    """Let the wall clock of one broker be wrong by so many milliseconds; its timers are not."""
    control.node(args.broker)
    if abs(args.ms) > SKEW_MS_MAX:
        raise ControlError(f"must be within {SKEW_MS_MAX}, not {args.ms}", field="ms")
    async with control.one_at_a_time:
        control.time.skew(args.broker, args.ms)
        return await _align(control)


async def reset(control: ClusterControl, _: Nothing) -> Clocks:
    """Show the machine's wall clock again on all brokers, at normal speed and without skew."""
    async with control.one_at_a_time:
        control.time.reset()
        return await _align(control)


# -- one broker ------------------------------------------------------------------------------------


def _clock_here(control: BrokerControl, _: Nothing) -> ClockState:
    """Return this broker's clock."""
    return MovableTime(control.server.runtime).state()


async def _step_here(control: BrokerControl, args: Step) -> Nothing:
    """Let a step of an advance pass on this broker."""
    time = MovableTime(control.server.runtime)
    await time.step(
        control.server, args.seconds, expires_sessions=args.expire_sessions, apart=args.apart
    )
    return Nothing()


def _set_here(control: BrokerControl, args: ClockSetting) -> ClockState:
    """Set this broker's clock to the time of its cluster."""
    time = MovableTime(control.server.runtime)
    time.set(args)
    return time.state()


CALLS = (
    Call("clock.describe", "cluster", Nothing, Clocks, _describe),
    Call("clock.advance", "cluster", Advance, Clocks, _advance),
    Call("clock.freeze", "cluster", Nothing, Clocks, _freeze),
    Call("clock.resume", "cluster", Nothing, Clocks, _resume),
    Call("clock.speed", "cluster", Speed, Clocks, _speed),
    Call("clock.skew", "cluster", Skew, Clocks, _skew),
    Call("clock.reset", "cluster", Nothing, Clocks, reset),
    Call("broker.clock", "broker", Nothing, ClockState, _clock_here),
    Call("broker.clock_step", "broker", Step, Nothing, _step_here),
    Call("broker.clock_set", "broker", ClockSetting, ClockState, _set_here),
)
