"""A share group reads what plain and transactional producers write, while brokers and members come
and go (KIP-932). `share_history.py` says what is promised.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.history import require
from sim.share_clients import LOOK_S, delete_records, describe, live_as_members, unsettled
from sim.share_history import ShareHistory
from sim.share_world import TIMES, settings_of_group
from sim.share_writers import PlainWriter, TransactionalWriter
from sim.stage import TOPIC, Stage
from tidelog.cluster.metadata.image import SHARE_GROUP_STATE_TOPIC
from tidelog.simulation.loop import simulate
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from sim.share_history import SharedPartition
    from tidelog.simulation.loop import SimLoop
    from tidelog.simulation.machine import Machine
    from tidelog.simulation.network import SimNetwork

LETTERS = "AB"
PARTITIONS = 2
MEMBERS = 3
FAULTS_S = 6.0
SETTLED_S_MAX = 20.0
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    **TIMES,
}


class ShareGroupPlay:
    """One run."""

    topic = TOPIC

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.loop = loop
        self.seed: int | str = seed
        self.is_quiet = self.is_over = False
        self.topic_id = bytes(16)
        self._rng = random.Random(f"{seed}:share group")
        self._deliveries_max = self._rng.choice((2, 3, 5))
        self._is_committed = self._rng.random() < 0.8
        self.history = ShareHistory(
            PARTITIONS, self._deliveries_max, is_committed=self._is_committed
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> dict[str, int]:
        """From empty disks to the verdict; what was seen."""
        limit = {"group.share.delivery.count.limit": str(self._deliveries_max)}
        async with Stage(self.loop, LETTERS, {**SETTINGS, **limit}) as self.stage:
            await self.stage.create_topic(LETTERS, partitions=PARTITIONS)
            self.topic_id = self.stage.topic_id
            await self._configure()
            try:
                await self._play()
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
        return self.history.counts

    async def _play(self) -> None:
        members = [self._start(live_as_members(self, number)) for number in range(MEMBERS)]
        writers = [
            self._start(PlainWriter(self, "writer").run()),
            self._start(TransactionalWriter(self, "transactional").run()),
        ]
        others = [
            self._start(describe(self)),
            self._start(delete_records(self, self._deleted)),
        ]
        await self._until_done(self._start(self._faults()))
        self.is_quiet = True
        await self._until_done(*writers)
        await self._until_done(self._start(self._settle()))
        self.is_over = True
        await self._until_done(*members, *others)
        self.history.check_end()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._tasks.append(asyncio.ensure_future(work))
        return self._tasks[-1]

    async def _until_done(self, *waited: asyncio.Task[None]) -> None:
        """Wait for some tasks; raise what any task raises."""
        while True:
            for task in self._tasks:
                if task.done():
                    task.result()
            if all(task.done() for task in waited):
                return
            await asyncio.sleep(LOOK_S)

    async def _configure(self) -> None:
        request = settings_of_group(is_committed=self._is_committed)
        answer = await self.stage.ask("X", request, 1)
        assert answer.responses[0].error_code == ErrorCode.NONE, answer

    # -- what clients and checkers ask -------------------------------------------------------------

    def leader_of(self, index: int) -> str:
        """The leader's name by the controller's metadata; "" if there is none."""
        image = self.stage.image
        if image is None:
            return ""
        return self.stage.letters.get(image.partition(TOPIC, index).leader, "")

    @property
    def network(self) -> SimNetwork:
        """Of all."""
        return self.stage.network

    def brokers(self) -> Sequence[str]:
        """Those with the partitions, and the voters."""
        return list(self.stage.ids)

    def name_of(self, node_id: int) -> str:
        """The broker with this id."""
        return self.stage.letters[node_id]

    def machine(self, name: str) -> Machine:
        """The machine of a broker."""
        return self.stage.machines[name]

    def keeper(self, name: str, index: int) -> Any:
        """The broker that keeps the group's states, and its leader epoch; None if the broker of
        this name does not know it: a deposed one may answer with old offsets."""
        del index
        server: Any = self.stage.machines[name].server
        own = server.replicas.image if server is not None and server.is_built else None
        found = [
            None if image is None else image.partition(SHARE_GROUP_STATE_TOPIC, 0)
            for image in (self.stage.image, own)
        ]
        places = [None if each is None else (each.leader, each.leader_epoch) for each in found]
        return places[0] if places[0] == places[1] else None

    def is_rotten(self, _name: str, _index: int) -> bool:
        """Nothing rots here."""
        return False

    def begins(self, host: str) -> None:
        """Nobody asks who there is."""

    def _deleted(self, known: SharedPartition, low_watermark: int) -> None:
        known.log_starts.append((self.loop.time(), low_watermark))

    # -- faults, and the end -----------------------------------------------------------------------

    async def _faults(self) -> None:
        rng = self._rng
        end_s = self.loop.time() + FAULTS_S
        while self.loop.time() < end_s:
            await asyncio.sleep(rng.uniform(0.1, 1.2))
            name = rng.choice(LETTERS)
            if rng.random() < 0.35:
                self.stage.kill(name)
                await asyncio.sleep(rng.choice((0.1, 0.5, 2.0)))
                await self.stage.start(name)
                continue
            others = [each for each in (*LETTERS, "X", "Y") if each != name]
            if rng.random() < 0.6:
                others = [rng.choice(others)]
            pairs = [pair for each in others for pair in ((name, each), (each, name))]
            for pair in pairs:
                self.stage.cut(*pair)
            await asyncio.sleep(rng.choice((0.2, 1.0, 2.5)))
            dies = rng.random() < 0.3  # with what it could not write
            if dies:
                self.stage.kill(name)
            for pair in pairs:
                self.stage.heal(*pair)
            if dies:
                await self.stage.start(name)

    async def _settle(self) -> None:
        """Everything is done with; also when others lead."""
        await self._settled()
        for name in dict.fromkeys(map(self.leader_of, range(PARTITIONS))):
            self.stage.kill(name)
            await self.stage.start(name)
        await self._settled()

    async def _settled(self) -> None:
        end_s = self.loop.time() + SETTLED_S_MAX
        while what := unsettled(self):
            require(self.loop.time() < end_s, f"not after {SETTLED_S_MAX:g} s: {what}")
            await asyncio.sleep(LOOK_S)


def run_share_groups(seed: int) -> dict[str, int]:
    """One seed's run; what was seen."""
    result, _ = simulate(f"share-group-{seed}", lambda loop: ShareGroupPlay(loop, seed).run())
    return result
