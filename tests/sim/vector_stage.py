"""The stage of `tidelog scenario` in the simulation: its players, on `sim.stage.Stage`'s brokers.

What is done inside a broker is done in the lane of its life; a crash is a power failure after the
operating system has written back what it had. The remote store is a directory on a machine that
never dies.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from sim.raw_logs import DATA
from sim.remote_store import PREFIX, _Routed, new_weather, weather_of
from sim.stage import Stage as SimBrokers
from tidelog.simulation.machine import PORT, in_lane
from tidelog_scenarios.fetch_gate import FetchGate
from tidelog_scenarios.inside import Inside
from tidelog_scenarios.stage import Stage
from tidelog_scenarios.store import TracedStore
from tidelog_scenarios.vocabulary import VOTERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.cluster.metadata.image import PartitionImage
    from tidelog.simulation.loop import SimLoop

STORE = "vectors"
NEVER = str(sys.maxsize)
# Nothing happens by itself but what a step causes.
SETTINGS = {
    "replica.lag.time.max.ms": "30000",
    "replica.fetch.backoff.ms": "64000",  # the first pause is a thirty-second of it
    "log.retention.check.interval.ms": NEVER,
    "log.cleaner.enable": "false",
}
TIER_SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "sim.vector_stage.VectorStore",
    "rsm.config.dir": f"{PREFIX}{STORE}",
    "remote.log.manager.task.interval.ms": "86400000",
    "remote.partition.remover.task.interval.ms": "86400000",
    "remote.fetch.max.wait.ms": "30000",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "2",
    "rlmm.config.remote.log.metadata.topic.min.isr": "1",
}


class VectorStore(TracedStore):
    """All brokers' stores are one directory."""

    def configure(self, config: Mapping[str, str]) -> None:
        self._files = _Routed(self._files, weather_of(STORE).files)
        super().configure(config)


class VectorStage(Stage):
    """Of one play."""

    def __init__(
        self,
        loop: SimLoop,
        letters: str,
        settings: Mapping[str, str],
        *,
        tiered: bool,
        metadata_on: Iterable[str] = VOTERS,
    ) -> None:
        tier = TIER_SETTINGS if tiered else {}
        self.brokers = SimBrokers(loop, letters, {**SETTINGS, **tier, **settings})
        self._gate = FetchGate()
        for name in letters:
            self.brokers.machines[name].new_fetcher = self._gate.new_fetcher
        self._seen: list[PartitionImage] = []  # as the controller made them
        new_weather(STORE)
        clock = self.brokers.machines["X"].clock
        network = self.brokers.network.door("client")
        super().__init__(letters, clock, network, tiered=tiered, metadata_on=metadata_on)

    async def _open(self) -> None:
        await self.brokers.__aenter__()
        self.brokers.loop.after_step = self.watch

    async def _close(self) -> None:
        await self.brokers.__aexit__()

    async def _start(self, name: str) -> None:
        await self.brokers.start(name)

    async def _stop(self, name: str) -> None:
        await self.brokers.stop(name)

    async def _crash(self, name: str) -> None:
        self.brokers.sync(name)
        self.brokers.power_failure(name)

    def is_running(self, name: str) -> bool:
        return self.brokers.machines[name].is_ready

    def inside(self, name: str) -> Any:
        machine = self.brokers.machines[name]
        assert machine.server is not None
        return cast("Inside", _InLane(machine.lane, Inside(machine.server, self._gate)))

    def voter(self, name: str) -> Any:
        return self.brokers.machines[name].server

    def address(self, name: str) -> tuple[str, int]:
        return name, PORT

    def files_of(self, name: str) -> Any:
        return self.brokers.machines[name].disk.files()

    def data_folder(self, name: str) -> str:
        return DATA

    @property
    def store_folder(self) -> str:
        return f"{PREFIX}{STORE}"

    @property
    def store_files(self) -> Any:
        return weather_of(STORE).files

    async def commit(self, record: Any) -> None:
        await self.brokers.commit(record)

    def slow(self, name: str, delay_s: float) -> None:
        """The remote store takes so much longer to answer a broker."""
        self.brokers.machines[name].store_delay_s = lambda: delay_s

    def watch(self) -> None:
        """After each step of the loop: remember what the controller has decided."""
        self.brokers.look()
        found = self.brokers.decided if self.brokers.has_controller else None
        if found is not None and (not self._seen or self._seen[-1] is not found):
            self._seen.append(found)

    def partition_states(self) -> list[str]:
        """The state, and before it that of the epoch's begin: a leader has recovered at once."""
        state = self.decided
        if state.leader < 0:
            return ["offline"]
        begun = next(s for s in self._seen if s.leader_epoch == state.leader_epoch)
        return ["recovering" if s.leader_recovery_state else "online" for s in (begun, state)]


class _InLane:
    """A broker from inside, in its lane."""

    def __init__(self, lane: str, inside: Inside) -> None:
        self._lane, self._inside = lane, inside

    def __getattr__(self, verb: str) -> Any:
        return lambda *values, **more: in_lane(
            self._lane, getattr(self._inside, verb)(*values, **more)
        )
