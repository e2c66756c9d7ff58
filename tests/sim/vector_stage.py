"""The stage of `tidelog scenario` in the simulation: its players, on `sim.stage.Stage`'s brokers.

What is done inside a broker is done in the lane of its life; a crash is a power failure after the
operating system has written back what it had. The remote store is a directory on a machine that
never dies, and does what it is told (`VectorStore`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from sim.machine import PORT, in_lane
from sim.raw_logs import DATA
from sim.remote_store import PREFIX, _Routed, new_weather, weather_of
from sim.stage import Stage as SimBrokers
from tidelog.scenarios.inside import Inside
from tidelog.scenarios.stage import Stage
from tidelog.scenarios.store import TracedStore
from tidelog.scenarios.turnstile import Turnstile
from tidelog.scenarios.words import TOPIC, VOTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sim.loop import SimLoop
    from tidelog.metadata.image import PartitionImage
    from tidelog_storage.remote import api

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


class Order:
    """What all stores have been told to do: raise `error`, for one operation or for all."""

    def __init__(self) -> None:
        self.error: type[api.RemoteStorageError] | None = None
        self.operation = "all"

    def obey(self, operation: str) -> None:
        """Raise, if it is so."""
        if self.error is not None and self.operation in ("all", operation):
            raise self.error(f"{operation} as ordered")


ORDER = Order()


class VectorStore(TracedStore):
    """All brokers' stores are one directory, and follow `ORDER`."""

    def configure(self, config: Mapping[str, str]) -> None:
        self._files = _Routed(self._files, weather_of(STORE).files)
        super().configure(config)

    def copy_segment(self, segment: api.RemoteSegment, data: api.SegmentFiles) -> Any:
        ORDER.obey("copy")
        return super().copy_segment(segment, data)

    def fetch_segment(self, segment: api.RemoteSegment, start: int, end: int | None = None) -> Any:
        ORDER.obey("fetch")
        return super().fetch_segment(segment, start, end)

    def fetch_index(self, segment: api.RemoteSegment, kind: api.IndexKind) -> Any:
        ORDER.obey("fetch_index")
        return super().fetch_index(segment, kind)

    def delete_segment(self, segment: api.RemoteSegment) -> None:
        ORDER.obey("delete")
        super().delete_segment(segment)


class VectorStage(Stage):
    """Of one play."""

    def __init__(
        self,
        loop: SimLoop,
        letters: str,
        settings: Mapping[str, str],
        *,
        tiered: bool,
        new_inside: Callable[..., Inside] = Inside,
        metadata_on: str = "".join(VOTERS),
    ) -> None:
        """`new_inside` may know more verbs; `metadata_on`: who holds the remote metadata topic."""
        tier = TIER_SETTINGS if tiered else {}
        self.brokers = SimBrokers(loop, letters, {**SETTINGS, **tier, **settings})
        self._turnstile = Turnstile()
        self._new_inside = new_inside
        self._metadata_on = metadata_on
        for name in letters:
            self.brokers.machines[name].new_fetcher = self._turnstile.new_fetcher
        self._last: PartitionImage | None = None
        self._seen: list[PartitionImage] = []  # as the controller made them
        ORDER.error = None
        new_weather(STORE)
        clock = self.brokers.machines["X"].clock
        super().__init__(letters, clock, self.brokers.network.door("client"), tiered=tiered)

    async def _open(self) -> None:
        await self.brokers.__aenter__()
        self.brokers.loop.after_step = self.watch

    async def _close(self) -> None:
        await self.brokers.__aexit__()

    async def _create_metadata_topic(self, replicas: Any = None) -> None:
        await super()._create_metadata_topic(self._metadata_on)

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
        return cast(
            "Inside", _InLane(machine.lane, self._new_inside(machine.server, self._turnstile))
        )

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

    async def until_metadata_is_led(self, name: str) -> None:
        """Wait until a broker leads the metadata topic, and knows it."""

        async def leads() -> bool:
            machine: Any = self.brokers.machines[name]
            return bool(machine.server.tier._client.leader_of(0) == self.ids[name])

        await self.until(leads, f"{name} leads the remote metadata")

    # -- what there was, once the topic is deleted -------------------------------------------------

    @property
    def is_deleted(self) -> bool:
        """Whether the topic was there and is no more."""
        return self._last is not None and self.image.partition(TOPIC, 0) is None

    @property
    def decided(self) -> PartitionImage:
        found = self.image.partition(TOPIC, 0)
        if found is not None:
            self._last = found
        assert self._last is not None
        return self._last

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
