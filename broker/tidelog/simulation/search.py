"""Looks for a seed at which an application fails: `tidelog.simulation.run()`.

Each seed runs in a fork of this process, so that the application's modules are as after their
import at each of them, and a step that never ends can be killed. The order of sets of strings hangs
on PYTHONHASHSEED: a process with another one than 0 hands the search to a new process.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import pickle
import re
import select
import signal
import sys
import time
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from tidelog.config.broker import BrokerConfig
from tidelog.simulation.application import Plan, Simulation, Verdict, play
from tidelog.simulation.faults import OF_THE_TIER, draw_plan, rates_of
from tidelog.simulation.shrinking import shrink
from tidelog.simulation.timeline import lines
from tidelog.simulation.world import SimulationBrokenError
from tidelog_storage.base_error import TidelogError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping

    from tidelog.simulation.faults import Rates

    App = Callable[[Simulation], Coroutine[Any, Any, object]]

HASH_SEED = "0"
SEED_S_MAX = 300.0  # real seconds of one seed
SHRINKING_S_MAX = 60.0  # real seconds
TIMELINE_LINES_MAX = 60
LINE_MAX = 160
BROKERS_MAX = 9


class SimulationFailedError(TidelogError, AssertionError):
    """The application failed at a seed. The text is the report; `seed` and `faults` replay it."""

    def __init__(self, report: str, seed: int, faults: tuple[int, ...]) -> None:
        super().__init__(report)
        self.seed, self.faults = seed, faults

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.seed, self.faults)


class Options(NamedTuple):
    """What `run` was asked for. `only_faults` are places in the plan of each seed."""

    seeds: tuple[int, ...]
    brokers: int = 3
    faults: Rates = True
    fault_s: float = 20.0
    settings: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 300.0
    only_faults: tuple[int, ...] | None = None
    tiered: bool = False


class Searched(NamedTuple):
    """All seeds held."""

    seeds: int
    virtual_s: float
    real_s: float
    traces: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.seeds} seeds hold, {self.virtual_s:.1f} virtual seconds in {self.real_s:.1f} s"
        )


def options_of(
    *,
    seeds: int | Iterable[int] = 50,
    brokers: int = 3,
    faults: Rates = True,
    fault_s: float = 20.0,
    settings: Mapping[str, object] | None = None,
    timeout_s: float = 300.0,
    only_faults: Iterable[int] | None = None,
    tiered: bool = False,
) -> Options:
    """Check the arguments of `run`."""
    chosen = tuple(range(1, seeds + 1)) if isinstance(seeds, int) else tuple(seeds)
    if not chosen:
        raise ValueError(f"seeds={seeds!r}: give a number above 0, or seeds")
    if not 1 <= brokers <= BROKERS_MAX:
        raise ValueError(f"brokers={brokers!r}: a simulation has 1 to {BROKERS_MAX} brokers")
    if fault_s < 0 or timeout_s <= 0:
        raise ValueError(f"fault_s={fault_s!r}, timeout_s={timeout_s!r}: these are seconds")
    needs_tier = sorted(OF_THE_TIER & rates_of(faults, brokers).keys())
    if needs_tier and not tiered:
        raise ValueError(f"faults: {needs_tier[0]!r} needs tiered=True")
    kept = None if only_faults is None else tuple(only_faults)
    words = {name: _setting(value) for name, value in (settings or {}).items()}
    BrokerConfig.from_properties(
        {"node.id": "1", **words}
    )  # refuses what is unknown or out of range
    given = tuple(words.items())
    return Options(chosen, brokers, faults, fault_s, given, timeout_s, kept, tiered)


def _setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def run(app: App, **options: Any) -> Searched:
    """Run `app(simulation)` at each seed, until one fails.

    - `seeds=50`: how many, or which;
    - `brokers=3`;
    - `faults=True`: the usual kinds; False for none; a list of kinds; or kinds and their strikes a
      virtual minute (`tidelog.simulation.KINDS`);
    - `fault_s=20`: faults strike in the first so many virtual seconds of the application;
    - `tiered=False`: whether all topics of the application have a remote tier;
    - `settings={}`: of the brokers, by Kafka's names;
    - `timeout_s=300`: virtual seconds after which an application that has not returned has failed;
    - `only_faults=None`: of each seed's faults those at these places alone, as a report names them.

    Raises SimulationFailedError with the report of the first seed that fails. Started with another
    PYTHONHASHSEED than 0, the search runs in a new process; then `app` must be importable.
    """
    checked = options_of(**options)
    if not sys.flags.hash_randomization:
        return search(app, checked, functools.partial(_replay_of_run, app, checked))
    context = multiprocessing.get_context("spawn")
    try:
        pickle.dumps(app)
        with _hash_seed(), ProcessPoolExecutor(1, mp_context=context) as pool:
            return pool.submit(run, app, **options).result()
    except (pickle.PicklingError, AttributeError, TypeError, BrokenProcessPool) as error:
        raise TidelogError(
            "the simulation starts a new process with PYTHONHASHSEED=0, which cannot import"
            f" {app!r}: put it into a module on sys.path, or set PYTHONHASHSEED=0 yourself"
        ) from error


@contextlib.contextmanager
def _hash_seed() -> Iterator[None]:
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = HASH_SEED
    try:
        yield
    finally:
        del os.environ["PYTHONHASHSEED"]
        if before is not None:
            os.environ["PYTHONHASHSEED"] = before


def _replay_of_run(app: App, options: Options, seed: int, faults: tuple[int, ...]) -> str:
    function = app.func if isinstance(app, functools.partial) else app
    name = getattr(function, "__name__", type(function).__name__)
    rest = f"brokers={options.brokers}, seeds=[{seed}], only_faults={list(faults)}"
    return f"tidelog.simulation.run({name}, {rest}, ...)"


def search(app: App, options: Options, replay: Callable[[int, tuple[int, ...]], str]) -> Searched:
    """Run the seeds in forks of this process. `replay` says how a failure is seen again."""
    import_first()
    started = time.monotonic()
    virtual_s = 0.0
    traces = []
    for count, seed in enumerate(options.seeds, 1):
        plan = plan_of(seed, options)
        if len(options.seeds) == 1:
            verdict = play(app, plan)  # here, for a debugger
        else:
            verdict = in_fork(functools.partial(play, app, plan), plan)
        if verdict.failure is not None:
            raise _report(app, verdict, options, replay, f"{count} of {len(options.seeds)}")
        virtual_s += verdict.virtual_s
        traces.append(verdict.trace)
    real_s = time.monotonic() - started
    return Searched(len(options.seeds), virtual_s, real_s, tuple(traces))


def import_first() -> None:
    """Import what a fork would import again at each seed."""
    with contextlib.suppress(ImportError):
        import aiokafka  # noqa: PLC0415 - an extra
        import aiokafka.admin  # noqa: PLC0415, F401


def plan_of(seed: int, options: Options) -> Plan:
    """The run of a seed."""
    drawn = draw_plan(seed, rates_of(options.faults, options.brokers), options.fault_s)
    kept = options.only_faults
    if kept is not None:
        drawn = tuple(fault for place, fault in enumerate(drawn) if place in kept)
    return Plan(seed, options.brokers, drawn, options.settings, options.timeout_s, options.tiered)


# -- forks -----------------------------------------------------------------------------------------


def in_fork(work: Callable[[], Verdict], plan: Plan) -> Verdict:
    """Run one seed in a fork; one that takes too long is killed, and has failed."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: of threads, which a fork lacks
        pid = os.fork()
    if not pid:
        _child(work, writing)
    os.close(writing)
    try:
        payload = _read(reading, time.monotonic() + SEED_S_MAX)
    finally:
        os.kill(pid, signal.SIGKILL)  # it has written all, or is late, or this process gives up
        os.close(reading)
        os.waitpid(pid, 0)
    if payload is None:
        text = f"a step did not end: the seed ran for more than {SEED_S_MAX:g} real seconds"
        return Verdict(plan, text, "", {}, 0.0, 0, "", ())
    # What a fork of this process wrote.
    result = pickle.loads(payload) if payload else "the process ended without a verdict"  # noqa: S301
    if isinstance(result, str):
        raise SimulationBrokenError(f"seed {plan.seed}: {result}")
    verdict: Verdict = result
    return verdict


def _read(reading: int, until_s: float) -> bytes | None:
    """All that a pipe gives; None if that takes too long."""
    parts: list[bytes] = []
    while select.select([reading], [], [], max(0.0, until_s - time.monotonic()))[0]:
        part = os.read(reading, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return None


def _child(work: Callable[[], Verdict], writing: int) -> NoReturn:
    """Run, write the verdict or the traceback, and end without any of the parent's finalizers."""
    try:
        result: Verdict | str = work()
    except BaseException:  # noqa: BLE001 - for the parent
        result = traceback.format_exc()
    with os.fdopen(writing, "wb") as pipe:
        pickle.dump(result, pipe)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


# -- the report ------------------------------------------------------------------------------------


def _report(
    app: App,
    failed: Verdict,
    options: Options,
    replay: Callable[[int, tuple[int, ...]], str],
    progress: str,
) -> SimulationFailedError:
    """Shrink the plan of a failed run, run it again, and say how."""
    plan = failed.plan
    until_s = time.monotonic() + SHRINKING_S_MAX

    def once(faults: tuple[Any, ...]) -> Verdict:
        shorter = plan._replace(faults=faults)
        return in_fork(functools.partial(play, app, shorter), shorter)

    def again(faults: tuple[Any, ...]) -> Verdict | None:
        if time.monotonic() > until_s:
            return None
        verdict = once(faults)
        return verdict if _kind(verdict.failure) == _kind(failed.failure) else None

    best = failed
    if options.only_faults is None and failed.steps:
        best = shrink(failed, lambda verdict: verdict.plan.faults, again)
    is_exact = not failed.steps or once(best.plan.faults).trace == best.trace
    all_faults = plan_of(plan.seed, options._replace(only_faults=None)).faults
    places = tuple(place for place, one in enumerate(all_faults) if one in best.plan.faults)
    text = "\n".join(
        [
            f"the simulation fails at seed {plan.seed} ({progress} seeds): {best.failure}",
            *_faults_of(best, places, len(all_faults)),
            *_timeline_of(best),
            *([best.details.rstrip()] if best.details else []),
            f"trace {best.trace}" + ("" if is_exact else ": " + _INEXACT),
            f"replay: {replay(plan.seed, places)}",
        ]
    )
    return SimulationFailedError(text, plan.seed, places)


_INEXACT = (
    "a second run of the same seed differed. Something in the application hangs on what the"
    " simulation does not control, such as the order of a set of objects or a cache of its modules"
)


def _kind(failure: str | None) -> str | None:
    """The failure without the figures in it."""
    return None if failure is None else re.sub(r"\S*\d\S*", "", failure)


def _faults_of(verdict: Verdict, places: tuple[int, ...], count: int) -> Iterator[str]:
    yield f"faults that show it: {len(places)} of {count}"
    for number, (place, fault) in enumerate(zip(places, verdict.plan.faults, strict=True)):
        text = verdict.struck.get(number, f"{fault.kind} (was not over, or had no place)")
        yield f"  [{place}] {fault.at_s:9.3f} s  {text}"


def _timeline_of(verdict: Verdict) -> Iterator[str]:
    shown = list(lines(verdict.timeline))
    left_out = len(shown) - TIMELINE_LINES_MAX
    yield "timeline:" + (f" ({left_out} earlier lines are left out)" if left_out > 0 else "")
    for line in shown[-TIMELINE_LINES_MAX:]:
        yield f"  {line}"[:LINE_MAX]
