"""The world of a run: brokers, network, remote tier, the application's processes, invariants.

The faults and the application act on it. It ends the run at the first step after which something
has failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import TYPE_CHECKING, Any

from tidelog.simulation.app_loop import AppLoop
from tidelog.simulation.machine import in_lane
from tidelog.simulation.machines import Machines, replication_of
from tidelog.simulation.processes import Process
from tidelog.simulation.shared_store import SharedStore, tier_settings
from tidelog_storage.base_error import TidelogError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.simulation.machine import Machine

APPLICATION = "application"  # its host, beside those of its processes
SETTINGS: Mapping[str, str] = {"auto.create.topics.enable": "true", "num.partitions": "3"}
RESTART_S = 0.3
STEPS_BETWEEN_COLLECTIONS = 200_000  # finalizers run at the same steps in each replay


class SimulationBrokenError(TidelogError):
    """A simulated broker failed by itself, or the cluster did not start: no fault of the
    application."""


class World:
    """All that a run has: the loop, the machines, the application and its processes."""

    def __init__(
        self, seed: int, brokers: int, settings: Mapping[str, str], *, is_tiered: bool
    ) -> None:
        self.seed = seed
        self.loop = AppLoop(seed)  # type: ignore[abstract]  # no ABC when it runs
        tier = tier_settings(*replication_of(brokers)) if is_tiered else {}
        self.machines = Machines(self.loop, seed, brokers, {**SETTINGS, **tier, **settings})
        self.store = SharedStore(seed) if is_tiered else None
        for machine in self.machines:
            machine.store = self.store
        self.network = self.loop.network = self.machines.network
        self.loop.hosts = {machine.host for machine in self.machines}
        self.processes: list[Process] = []
        self.invariants: list[Callable[[], object]] = []
        self.calm = asyncio.Event()
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
        self.spawn(self._live(machine))

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

    def start(self) -> None:
        """Start all brokers."""
        for machine in self.machines:
            self.spawn(self._live(machine))

    def fail(self, error: BaseException) -> None:
        """End the run with this error, unless an earlier one has."""
        self._failure = self._failure or error

    def spawn(self, coroutine: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
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
