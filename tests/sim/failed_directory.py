"""One of two log directories of a broker fails a sync; in some seeds it cannot be read at the next
start either, in some the other broker is away. The broker goes on with its other directory, and the
other broker leads what was in the failed one; what no other broker has in sync comes back with the
directory, and all that was acknowledged with it.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.history import require
from sim.raw_logs import DATA, MORE, read_log
from sim.stage import TOPIC, Stage
from sim.wire import Lost
from tidelog.simulation.loop import simulate
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.cluster.metadata.image import PartitionImage
    from tidelog.simulation.loop import SimLoop

PARTITIONS = 4
AGAIN_S_MAX = 20.0


def run_failed_directory(seed: int) -> None:
    """Violation if a promise is broken."""
    simulate(f"failed-directory-{seed}", lambda loop: _Play(loop, seed).run())


class _Play:
    """One run. `name` is the broker whose directory fails, `there` are its partitions in it."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        rng = random.Random(f"{seed}:failed directory")
        self.loop = loop
        self.name, self.other = rng.choice(("AB", "BA"))
        self.is_alone = rng.random() < 0.5
        self.is_unread = rng.random() < 0.5
        self.stage = Stage(loop, "AB", {"log.dirs": f"{DATA},{MORE}"})
        self.there: set[int] = set()
        self.acknowledged: dict[int, list[str]] = {index: [] for index in range(PARTITIONS)}

    async def run(self) -> None:
        """From a whole cluster to a whole cluster."""
        stage, machine = self.stage, self.stage.machines[self.name]
        async with stage:
            await stage.create_topic("AB", partitions=PARTITIONS, flush_messages=1)
            await self._look_where()
            await self._written(range(PARTITIONS))
            if self.is_alone:
                stage.kill(self.other)
                await self._until(lambda: all(len(self._state(n).isr) == 1 for n in self.all))
            machine.disk.trouble.sync_fails = lambda path: path.startswith(f"{MORE}/")
            await self._goes_on()
            if self.is_unread:
                machine.disk.trouble.unreadable = MORE
                stage.kill(self.name)
                await stage.start(self.name)
                await self._goes_on()
            require(machine.is_ready, f"{self.name} has ended")
            machine.disk.trouble.calm()
            stage.kill(self.name)
            await stage.start(self.name, *(self.other if self.is_alone else ""))
            await self._written(self.all)
            await self._until(lambda: all(len(self._state(n).isr) == 2 for n in self.all))
            self._check_records()

    @property
    def all(self) -> range:
        """All partitions."""
        return range(PARTITIONS)

    async def _look_where(self) -> None:
        server: Any = self.stage.machines[self.name].server
        logs = server.logs
        await self._until(
            lambda: all(server.replicas.hosted(TopicPartition(TOPIC, n)) for n in self.all)
        )
        self.there = {n for n in self.all if logs.log_dir(TopicPartition(TOPIC, n)) == MORE}
        require(0 < len(self.there) < PARTITIONS, f"{MORE} has {self.there}")

    async def _goes_on(self) -> None:
        """The broker leads what is in its other directory, and the other one the rest."""
        if not self.is_alone:
            await self._written(self.all)
            own, other = self.stage.ids[self.name], self.stage.ids[self.other]
            await self._until(
                lambda: all(
                    self._state(n).isr == (other,)
                    if n in self.there
                    else set(self._state(n).isr) == {own, other}
                    for n in self.all
                )
            )
            return
        # The failure is met by a write to a partition there.
        await asyncio.gather(*(self._refusal(n, "met") for n in self.there))
        await self._until(lambda: all(self._state(n).leader == -1 for n in self.there))
        await self._written(set(self.all) - self.there)

    async def _written(self, partitions: Iterable[int]) -> None:
        """Each of these takes a record."""
        for index in partitions:
            end_s = self.loop.time() + AGAIN_S_MAX
            value = f"{index}-{len(self.acknowledged[index])}"
            while (why := await self._refusal(index, value)) is not None:
                require(self.loop.time() < end_s, f"{index} not after {AGAIN_S_MAX:g} s: {why}")
                await asyncio.sleep(0.1)
            self.acknowledged[index].append(value)

    async def _refusal(self, index: int, value: str) -> str | None:
        """Why a partition does not take a record; None if it does."""
        if self.stage.image is None:
            return "no controller"
        leader = self.stage.letters.get(self._state(index).leader)
        if leader is None:
            return f"no leader: {self._state(index)}"
        request = self.stage.produce_request(value, acks=-1, index=index)
        try:
            response = await self.stage.ask(leader, request, 12)
        except Lost:
            return f"no answer of {leader}"
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        return None if code is ErrorCode.NONE else f"{leader}: {code.name}"

    def _state(self, index: int) -> PartitionImage:
        state: PartitionImage = self.stage.image.partition(TOPIC, index)
        return state

    async def _until(self, condition: Callable[[], bool]) -> None:
        end_s = self.loop.time() + AGAIN_S_MAX
        while self.stage.image is None or not condition():
            states = self.stage.image and [self._state(n) for n in self.all]
            require(self.loop.time() < end_s, f"not after {AGAIN_S_MAX:g} s: {states}")
            await asyncio.sleep(0.1)

    def _check_records(self) -> None:
        for index, values in self.acknowledged.items():
            for name in (self.name, self.other):
                log = read_log(self.stage.machines[name].disk, f"{DATA}/{TOPIC}-{index}")
                found = {
                    (record.value or b"").decode()
                    for batch in log.batches()
                    for record in batch.records()
                }
                require(set(values) <= found, f"{name} lacks some of {values} of {index}: {found}")
