"""One run of an application: the cluster around it, the faults, the invariants, the verdict.

    play(app, Plan(seed=17, brokers=3)) -> Verdict

The cluster starts; then the application and the faults do. The run ends when the application
returns or fails, an invariant fails, or the virtual time is up.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.simulation.faults import Strikes
from tidelog.simulation.machine import PORT, in_lane
from tidelog.simulation.sealing import SimulationRefusedError, sealed
from tidelog.simulation.world import APPLICATION, SimulationBrokenError, World

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tidelog.simulation.app_loop import AppLoop
    from tidelog.simulation.faults import Fault
    from tidelog.simulation.processes import Process
    from tidelog.simulation.timeline import Event

START_S_MAX = 60.0


class Plan(NamedTuple):
    """What a run is made of. Two runs of one plan are the same, step by step."""

    seed: int
    brokers: int = 3
    faults: tuple[Fault, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 300.0
    tiered: bool = False


class Verdict(NamedTuple):
    """How a run ended. `failure` is one line, None if all went well."""

    plan: Plan
    failure: str | None
    details: str  # the traceback
    struck: dict[int, str]  # what faults did, by their place in the plan
    virtual_s: float
    steps: int
    trace: str
    timeline: tuple[Event, ...]


class Simulation:
    """What the application sees of its simulation.

    `seed` names the run; `rng` is for the tester's own draws; `bootstrap_servers` is for clients.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.seed = world.seed
        self.rng = random.Random(f"{self.seed}:tester")
        self.bootstrap_servers = ",".join(f"{machine.host}:{PORT}" for machine in world.machines)

    def process(
        self,
        name: str,
        start: Callable[[], Coroutine[Any, Any, object]],
        *,
        restarts: bool = True,
    ) -> Process:
        """Run `start()` as a separate process, which faults may kill, pause and cut off.

        After a kill, and after an exception if `restarts`, `start` is called again. An
        AssertionError ends the run.
        """
        return self._world.add_process(name, start, restarts=restarts)

    def invariant(self, check: Callable[[], object]) -> None:
        """Call `check` after each step from now on; an exception ends the run."""
        self._world.invariants.append(check)

    def tell(self, text: str) -> None:
        """Add a line to the timeline."""
        self._world.loop.tell(APPLICATION, text)

    async def calm(self) -> None:
        """Wait until no fault will come and all brokers run with all replicas in sync."""
        await self._world.calm.wait()


class Run:
    """One run of a plan in its world."""

    def __init__(self, plan: Plan, world: World) -> None:
        self._plan, self._world = plan, world
        self.strikes = Strikes(world, plan.faults)

    async def play(self, app: Callable[[Simulation], Coroutine[Any, Any, object]]) -> None:
        """Start the cluster, run the application under faults, and return when it has."""
        world, timeout_s = self._world, self._plan.timeout_s
        world.start()
        if not await world.is_whole_within(START_S_MAX):
            raise SimulationBrokenError(f"the cluster did not start in {START_S_MAX:g} s")
        world.loop.tell("simulation", f"{self._plan.brokers} brokers run; the application starts")
        task = in_lane(APPLICATION, app(Simulation(world)))
        striking = world.spawn(self._strike())
        done, _ = await asyncio.wait([task], timeout=timeout_s)
        if not done:
            faults = "all faults were over" if world.calm.is_set() else "faults went on"
            raise TimeoutError(
                f"the application did not return in {timeout_s:g} virtual seconds ({faults})"
            )
        striking.cancel()
        task.result()

    async def _strike(self) -> None:
        world = self._world
        await self.strikes.run()
        if not await world.is_whole_within(START_S_MAX):
            raise SimulationBrokenError(f"the cluster is not whole {START_S_MAX:g} s after a fault")
        world.loop.tell("simulation", "no fault will come, all replicas are in sync")
        world.calm.set()


class _Log(logging.Handler):
    """Puts warnings of the application into the timeline."""

    def __init__(self, loop: AppLoop) -> None:
        super().__init__(logging.WARNING)
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first line."""
        text, _, _ = record.getMessage().partition("\n")
        self._loop.remark(record.name.partition(".")[0], text[:200])


@contextlib.contextmanager
def _quietly(world: World) -> Iterator[None]:
    """Log into the timeline, and collect garbage at fixed steps alone."""
    handler = _Log(world.loop)
    brokers, root = logging.getLogger("tidelog"), logging.getLogger()
    propagates, brokers.propagate = brokers.propagate, False
    for logger in (brokers, root):
        logger.addHandler(handler)
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        for logger in (brokers, root):
            logger.removeHandler(handler)
        brokers.propagate = propagates


def play(app: Callable[[Simulation], Coroutine[Any, Any, object]], plan: Plan) -> Verdict:
    """Run an application once."""
    world = World(plan.seed, plan.brokers, dict(plan.settings), is_tiered=plan.tiered)
    run, loop = Run(plan, world), world.loop
    failure, details = None, ""
    with _quietly(world), sealed(loop.time, loop.stall, plan.seed, world.fail):
        try:
            loop.run_until_complete(run.play(app))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - pytest.fail() raises one, a dead disk too
            failure, details = _one_line(error), _traceback(error)
    if failure is not None:
        loop.tell("FAILED", failure)
    verdict = Verdict(
        plan,
        failure,
        details,
        dict(run.strikes.done),
        loop.time(),
        loop.steps,
        loop.trace,
        tuple(loop.events),
    )
    loop.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # clients of lives that were killed
        world.machines.bury()
        del run, world, loop
        gc.collect()
    return verdict


def _one_line(error: BaseException) -> str:
    if isinstance(error, SimulationRefusedError):
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


_OWN = (str(Path(__file__).parent), str(Path(asyncio.__file__).parent))


def _traceback(error: BaseException) -> str:
    """The traceback without the frames of the simulation and of asyncio."""
    shown = traceback.TracebackException.from_exception(error)
    kept = [frame for frame in shown.stack if not frame.filename.startswith(_OWN)]
    shown.stack = traceback.StackSummary.from_list(kept or list(shown.stack))
    return "".join(shown.format())
