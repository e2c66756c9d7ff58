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

from tidelog.simulation.app_loop import AppLoop
from tidelog.simulation.faults import Strikes
from tidelog.simulation.machine import PORT, in_lane
from tidelog.simulation.machines import Machines, replication_of
from tidelog.simulation.processes import Process
from tidelog.simulation.sealing import SimulationRefusedError, sealed
from tidelog.simulation.shared_store import SharedStore, tier_settings
from tidelog_storage.base_error import TidelogError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.simulation.faults import Fault
    from tidelog.simulation.machine import Machine
    from tidelog.simulation.timeline import Event

APPLICATION = "application"  # its host, beside those of its processes
SETTINGS: Mapping[str, str] = {"auto.create.topics.enable": "true", "num.partitions": "3"}
START_S_MAX = 60.0
RESTART_S = 0.3
STEPS_BETWEEN_COLLECTIONS = 200_000  # finalizers run at the same steps in each replay


class SimulationBrokenError(TidelogError):
    """A simulated broker failed by itself, or the cluster did not start: no fault of the
    application."""


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
        self.seed = world.plan.seed
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


class World:
    """All that a run has: the loop, the machines, the application and its processes."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = AppLoop(plan.seed)  # type: ignore[abstract]  # no ABC when it runs
        tier = tier_settings(*replication_of(plan.brokers)) if plan.tiered else {}
        settings = {**SETTINGS, **tier, **dict(plan.settings)}
        self.machines = Machines(self.loop, plan.seed, plan.brokers, settings)
        self.store = SharedStore(plan.seed) if plan.tiered else None
        for machine in self.machines:
            machine.store = self.store
        self.network = self.loop.network = self.machines.network
        self.loop.hosts = {machine.host for machine in self.machines}
        self.processes: list[Process] = []
        self.invariants: list[Callable[[], object]] = []
        self.calm = asyncio.Event()
        self.strikes = Strikes(self, plan.faults)
        self._failure: BaseException | None = None
        self._is_down: set[str] = set()  # hosts that a fault keeps down
        self._may_end: set[str] = set()  # hosts on which a fault may end the broker
        self._tasks: list[asyncio.Task[Any]] = []
        self._image: ClusterImage | None = None
        self._collect_at = STEPS_BETWEEN_COLLECTIONS
        self.loop.after_step = self._after_step

    # -- what the application and the faults ask ---------------------------------------------------

    def add_process(
        self, name: str, start: Callable[[], Coroutine[Any, Any, object]], *, restarts: bool
    ) -> Process:
        """One more process."""
        if name in self.client_hosts() or name in self.loop.hosts:
            raise ValueError(f"name={name!r}: there is a process or broker of this name")
        process = Process(self.loop, self.network, name, start, restarts=restarts)
        self.processes.append(process)
        return process

    def client_hosts(self) -> list[str]:
        """Hosts of the application."""
        return [APPLICATION, *(process.name for process in self.processes)]

    def take_down(self, machine: Machine, how: str) -> None:
        """End a broker's life; it stays down until `bring_up`."""
        self._is_down.add(machine.host)
        machine.die(how)

    def bring_up(self, machine: Machine) -> None:
        """Start a broker that a fault took down."""
        self._is_down.discard(machine.host)
        self._spawn(self._live(machine))

    @contextlib.contextmanager
    def may_end(self, machine: Machine) -> Iterator[None]:
        """A broker may end by itself because of a fault, and is started again."""
        self._may_end.add(machine.host)
        try:
            yield
        finally:
            self._may_end.discard(machine.host)

    async def is_whole_within(self, seconds: float) -> bool:
        """Wait until all brokers run with all replicas in sync; False if that takes longer."""
        end_s = self.loop.time() + seconds
        while not self._is_whole():
            if self.loop.time() > end_s:
                return False
            await asyncio.sleep(0.05)
        return True

    def _is_whole(self) -> bool:
        image = self.machines.image()
        if image is None or self.machines.controller() is None:
            return False
        for machine in self.machines:
            if not machine.is_ready or not image.is_alive(machine.config.node_id):
                return False
        return all(
            state.leader >= 0 and set(state.isr) == set(state.replicas)
            for topic in image.topics.values()
            for state in topic.partitions
        )

    # -- the run -----------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """End the run with this error, unless an earlier one has."""
        self._failure = self._failure or error

    def _spawn(self, coroutine: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        """A task of the simulation itself."""
        task = in_lane("simulation", coroutine)
        self._tasks.append(task)

        def note_end(done: asyncio.Task[Any]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None:
                self.fail(error)

        task.add_done_callback(note_end)
        return task

    async def _live(self, machine: Machine) -> None:
        """A broker until a fault takes it down. If it ends by itself, the simulation is broken."""
        while True:
            await machine.start()
            if machine.is_ready:
                await machine.ended()
            if machine.host not in self._may_end or machine.host in self._is_down:
                break
            await asyncio.sleep(RESTART_S)
        if machine.host not in self._is_down:
            raise SimulationBrokenError(f"{machine.host} ended: {machine.deaths[-1][1]}")

    async def run(self, app: Callable[[Simulation], Coroutine[Any, Any, object]]) -> None:
        """Start the cluster, run the application under faults, and return when it has."""
        for machine in self.machines:
            self._spawn(self._live(machine))
        if not await self.is_whole_within(START_S_MAX):
            raise SimulationBrokenError(f"the cluster did not start in {START_S_MAX:g} s")
        self.loop.tell("simulation", f"{self.plan.brokers} brokers run; the application starts")
        task = in_lane(APPLICATION, app(Simulation(self)))
        striking = self._spawn(self._strike())
        done, _ = await asyncio.wait([task], timeout=self.plan.timeout_s)
        if not done:
            faults = "all faults were over" if self.calm.is_set() else "faults went on"
            raise TimeoutError(
                f"the application did not return in {self.plan.timeout_s:g} virtual seconds"
                f" ({faults})"
            )
        striking.cancel()
        task.result()

    async def _strike(self) -> None:
        await self.strikes.run()
        if not await self.is_whole_within(START_S_MAX):
            raise SimulationBrokenError(f"the cluster is not whole {START_S_MAX:g} s after a fault")
        self.loop.tell("simulation", "no fault will come, all replicas are in sync")
        self.calm.set()

    def _after_step(self) -> None:
        for process in self.processes:
            if process.failure is not None:
                raise process.failure
        if self._failure is not None:
            raise self._failure
        for check in self.invariants:
            check()
        self._watch_cluster()
        if self.loop.steps >= self._collect_at:
            self._collect_at += STEPS_BETWEEN_COLLECTIONS
            gc.collect()

    def _watch_cluster(self) -> None:
        """Changes of leaders and of the in-sync replicas, for the timeline."""
        image = self.machines.image()
        before, self._image = self._image, image
        if image is before or image is None or before is None or image.topics is before.topics:
            return
        for name, topic in image.topics.items():
            was = before.topics.get(name)
            if was is topic or topic.is_internal:
                continue
            for state in topic.partitions:
                old = before.partition(name, state.partition)
                if old is None or (old.leader, old.isr) != (state.leader, state.isr):
                    leader = f"leader {state.leader}" if state.leader >= 0 else "no leader"
                    in_sync = ",".join(map(str, state.isr))
                    text = f"{leader} in epoch {state.leader_epoch}, in sync {in_sync}"
                    self.loop.tell(f"{name}-{state.partition}", text)


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
    world = World(plan)
    loop = world.loop
    failure, details = None, ""
    with _quietly(world), sealed(loop.time, loop.stall, plan.seed, world.fail):
        try:
            loop.run_until_complete(world.run(app))
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
        dict(world.strikes.done),
        loop.time(),
        loop.steps,
        loop.trace,
        tuple(loop.events),
    )
    loop.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # clients of lives that were killed
        world.machines.bury()
        del world, loop
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
