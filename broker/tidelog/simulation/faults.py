"""Faults around an application: what strikes, how often, and for how long.

`draw_plan` draws each kind from a random stream of its own, so that one kind more does not move the
others. `Strikes` carries a plan out. A fault that makes a broker unavailable waits until the one
before is over and all replicas are in sync: with three replicas and `min.insync.replicas=2` an
acknowledged record then survives each of them, and a lost record is the application's fault.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, NamedTuple

from tidelog.simulation.machine import CALM_DISK_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from tidelog.simulation.machine import Machine
    from tidelog.simulation.processes import Process
    from tidelog.simulation.world import World

SLOW_LATENCY_S = (0.02, 0.4)
SLOW_DISK_S = (0.02, 0.5)
WHOLE_S_MAX = 20.0  # a fault waits so long for the one before


class Kind(NamedTuple):
    """A kind of fault: its length in seconds, and strikes a virtual minute by default.

    One that is not `usual` strikes only if it is asked for by its name.
    """

    for_s: tuple[float, float]
    per_minute: float
    text: str
    usual: bool = True


KINDS: Mapping[str, Kind] = {
    "kill": Kind((0.05, 4.0), 6, "a broker's process is killed and started again"),
    "power": Kind((0.1, 4.0), 3, "a broker's machine loses its power: unsynced writes are torn"),
    "pause": Kind((0.1, 4.0), 4, "a broker stands still (SIGSTOP)"),
    "cut": Kind((0.2, 6.0), 4, "the network around a broker is cut, one way or both"),
    "slow-network": Kind((0.5, 5.0), 4, "what a broker sends and gets travels slowly"),
    "slow-disk": Kind((0.5, 5.0), 3, "a broker's disk syncs slowly"),
    "reset": Kind((0.0, 0.0), 6, "a connection is reset"),
    "kill-process": Kind((0.05, 3.0), 6, "a process of the application is killed and restarted"),
    "pause-process": Kind((0.1, 8.0), 4, "a process of the application stands still"),
    "cut-process": Kind((0.2, 6.0), 3, "a process of the application cannot reach the brokers"),
    "clock-skew": Kind((0.5, 8.0), 4, "a broker's wall clock is up to 10 s ahead or behind", False),
    "full-disk": Kind(
        (0.5, 4.0), 3, "a broker's disk is full: it stops until there is room", False
    ),
    "store-outage": Kind((0.5, 6.0), 4, "the remote tier's store is down (`tiered=True`)", False),
    "slow-store": Kind((0.5, 6.0), 4, "the remote tier's store is slow (`tiered=True`)", False),
}
OF_THE_TIER = frozenset({"store-outage", "slow-store"})
SKEW_MS_MAX = 10_000
SLOW_STORE_S = (0.2, 3.0)
_NOT_ALONE = frozenset({"power"})  # a lone broker may lose what it acknowledged
Rates = bool | dict[str, float] | list[str] | tuple[str, ...]


class Fault(NamedTuple):
    """One strike. `pick` in [0, 1) chooses among those that it may strike."""

    at_s: float
    kind: str
    pick: float
    for_s: float


def rates_of(faults: Rates, brokers: int) -> dict[str, float]:
    """Strikes a virtual minute of each kind. True: the usual kinds; a list: these kinds."""
    if faults is False:
        return {}
    if isinstance(faults, dict):
        chosen = dict(faults)
    else:
        usual = [kind for kind, one in KINDS.items() if one.usual]
        kinds: Iterable[str] = usual if faults is True else faults
        chosen = {kind: KINDS[kind].per_minute if kind in KINDS else 0.0 for kind in kinds}
        if brokers == 1 and faults is True:
            chosen = {kind: rate for kind, rate in chosen.items() if kind not in _NOT_ALONE}
    for kind, rate in chosen.items():
        if kind not in KINDS:
            raise ValueError(f"faults: {kind!r} is none of {', '.join(KINDS)}")
        if not 0 <= rate <= 600:
            raise ValueError(f"faults: {kind}={rate}: strikes a minute are between 0 and 600")
    return chosen


def draw_plan(seed: int, rates: Mapping[str, float], duration_s: float) -> tuple[Fault, ...]:
    """The faults of a seed, in the order in which they strike."""
    plan: list[Fault] = []
    for kind, rate in rates.items():
        rng = random.Random(f"{seed}:faults:{kind}")
        at_s = rng.expovariate(rate / 60) if rate else duration_s
        while at_s < duration_s:
            plan.append(Fault(at_s, kind, rng.random(), rng.uniform(*KINDS[kind].for_s)))
            at_s += rng.expovariate(rate / 60)
    return tuple(sorted(plan))


class Strikes:
    """Carries out a plan in a world."""

    def __init__(self, world: World, plan: Iterable[Fault]) -> None:
        self.done: dict[int, str] = {}  # what each fault of the plan did, by its place
        self._world, self._plan = world, tuple(plan)
        self._one_broker = asyncio.Lock()
        self._by_kind: Mapping[str, Callable[[Fault], Awaitable[str]]] = {
            "kill": self._kill,
            "power": self._kill,
            "pause": self._pause,
            "cut": self._cut,
            "slow-network": self._slow_network,
            "slow-disk": self._slow_disk,
            "reset": self._reset,
            "kill-process": self._kill_process,
            "pause-process": self._pause_process,
            "cut-process": self._cut_process,
            "clock-skew": self._skew_clock,
            "full-disk": self._fill_disk,
            "store-outage": self._stop_store,
            "slow-store": self._slow_store,
        }

    async def run(self) -> None:
        """Strike at the times of the plan; returns when all is over."""
        begun_s = self._world.loop.time()
        strikes = []
        for number, fault in enumerate(self._plan):
            await asyncio.sleep(max(0.0, begun_s + fault.at_s - self._world.loop.time()))
            strikes.append(asyncio.ensure_future(self._strike(number, fault)))
        for strike in strikes:
            await strike

    async def _strike(self, number: int, fault: Fault) -> None:
        if fault.kind in {"kill", "power", "pause", "cut", "full-disk"}:
            async with self._one_broker:
                if await self._world.is_whole_within(WHOLE_S_MAX):
                    self.done[number] = await self._by_kind[fault.kind](fault)
        else:
            self.done[number] = await self._by_kind[fault.kind](fault)

    def _tell(self, text: str) -> str:
        self._world.loop.tell("fault", text)
        return text

    # -- brokers -----------------------------------------------------------------------------------

    def _machine(self, fault: Fault) -> Machine:
        machines = list(self._world.machines)
        return machines[int(fault.pick * len(machines))]

    async def _kill(self, fault: Fault) -> str:
        machine = self._machine(fault)
        text = self._tell(f"{fault.kind} {machine.host} for {fault.for_s:.2f} s")
        self._world.take_down(machine, fault.kind)
        await asyncio.sleep(fault.for_s)
        self._world.bring_up(machine)
        return text

    async def _pause(self, fault: Fault) -> str:
        machine = self._machine(fault)
        lane = machine.lane
        text = self._tell(f"pause {machine.host} for {fault.for_s:.2f} s")
        self._world.loop.pause_lane(lane)
        await asyncio.sleep(fault.for_s)
        self._world.loop.resume_lane(lane)
        return text

    async def _cut(self, fault: Fault) -> str:
        host = self._machine(fault).host
        brokers = [machine.host for machine in self._world.machines]
        clients = self._world.client_hosts()
        part = int(fault.pick * 997) % 4
        others = (brokers + clients, brokers, clients, brokers + clients)[part]
        links = [(host, other) for other in others if other != host]
        if part < 3:
            links += [(other, host) for host, other in links]
        names = ("all", "brokers", "clients", "all (what it sends)")
        text = self._tell(f"cut {host} from {names[part]} for {fault.for_s:.2f} s")
        await self._cut_links(links, fault.for_s)
        return text

    async def _cut_links(self, links: list[tuple[str, str]], for_s: float) -> None:
        self._world.network.cut(links)
        await asyncio.sleep(for_s)
        self._world.network.heal(links)

    async def _slow_network(self, fault: Fault) -> str:
        host = self._machine(fault).host
        text = self._tell(f"slow network of {host} for {fault.for_s:.2f} s")
        others = [machine.host for machine in self._world.machines] + self._world.client_hosts()
        links = [(host, other) for other in others] + [(other, host) for other in others]
        slow = self._world.network.slow_links
        slow.update(dict.fromkeys(links, SLOW_LATENCY_S))
        await asyncio.sleep(fault.for_s)
        for link in links:
            slow.pop(link, None)
        return text

    async def _slow_disk(self, fault: Fault) -> str:
        machine = self._machine(fault)
        text = self._tell(f"slow disk of {machine.host} for {fault.for_s:.2f} s")
        machine.disk_delay_s = SLOW_DISK_S
        await asyncio.sleep(fault.for_s)
        machine.disk_delay_s = CALM_DISK_S
        return text

    async def _skew_clock(self, fault: Fault) -> str:
        machine = self._machine(fault)
        skew_ms = int((fault.pick * 997 % 1 * 2 - 1) * SKEW_MS_MAX)
        text = self._tell(
            f"clock-skew: {machine.host} is {skew_ms / 1000:+.1f} s off for {fault.for_s:.2f} s"
        )
        machine.clock.skew_ms += skew_ms
        await asyncio.sleep(fault.for_s)
        machine.clock.skew_ms -= skew_ms
        return text

    async def _fill_disk(self, fault: Fault) -> str:
        """A broker that meets this ends, as one whose log directory has failed; it is started when
        there is room again."""
        machine = self._machine(fault)
        text = self._tell(f"full-disk of {machine.host} for {fault.for_s:.2f} s")
        with self._world.may_end(machine):
            machine.disk.capacity_bytes = machine.disk.used_bytes()
            await asyncio.sleep(fault.for_s)
            machine.disk.capacity_bytes = None
            await self._world.is_whole_within(WHOLE_S_MAX)
        return text

    async def _stop_store(self, fault: Fault) -> str:
        store = self._world.store
        assert store is not None, "the plan was checked"
        text = self._tell(f"store-outage for {fault.for_s:.2f} s")
        store.outages += 1
        await asyncio.sleep(fault.for_s)
        store.outages -= 1
        return text

    async def _slow_store(self, fault: Fault) -> str:
        text = self._tell(f"slow-store for {fault.for_s:.2f} s")
        self._world.machines.store_delay_s = SLOW_STORE_S
        await asyncio.sleep(fault.for_s)
        self._world.machines.store_delay_s = None
        return text

    async def _reset(self, fault: Fault) -> str:
        connections = self._world.network.connections
        if not connections:
            return self._tell("reset: there is no connection")
        index = int(fault.pick * len(connections))
        ends = connections[index]
        text = self._tell(f"reset a connection of {ends[0].host} to {ends[1].host}")
        self._world.network.reset(index)
        return text

    # -- the application's processes ---------------------------------------------------------------

    def _process(self, fault: Fault) -> Process | None:
        running = [process for process in self._world.processes if process.is_running]
        return running[int(fault.pick * len(running))] if running else None

    async def _kill_process(self, fault: Fault) -> str:
        process = self._process(fault)
        if process is None:
            return self._tell("kill-process: there is none that runs")
        text = self._tell(f"kill {process.name} for {fault.for_s:.2f} s")
        process.kill()
        await asyncio.sleep(fault.for_s)
        process.start()
        return text

    async def _pause_process(self, fault: Fault) -> str:
        process = self._process(fault)
        if process is None:
            return self._tell("pause-process: there is none that runs")
        text = self._tell(f"pause {process.name} for {fault.for_s:.2f} s")
        lane = process.pause()
        await asyncio.sleep(fault.for_s)
        process.resume(lane)
        return text

    async def _cut_process(self, fault: Fault) -> str:
        process = self._process(fault)
        if process is None:
            return self._tell("cut-process: there is none that runs")
        text = self._tell(f"cut {process.name} from all for {fault.for_s:.2f} s")
        links = [(process.name, machine.host) for machine in self._world.machines]
        await self._cut_links(links + [(b, a) for a, b in links], fault.for_s)
        return text
