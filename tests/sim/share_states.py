"""Leaders of share partitions write their states while brokers die and links are cut.

What was acknowledged is in every later state: accepted records stay accepted, the start offset does
not go back. A leader is fenced once a later one has read. Snapshots and pruning come every moment.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from sim.history import require
from sim.stage import Stage
from tidelog.coordinators.share.values import (
    Initialization,
    Reading,
    SharePartition,
    StateBatch,
    Writing,
)
from tidelog.simulation.loop import simulate
from tidelog.simulation.machine import Machine, in_lane
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.coordinators.share.persister import Persister
    from tidelog.coordinators.share.values import StateOutcome
    from tidelog.simulation.loop import SimLoop

LETTERS = "ABC"
PARTITIONS = 4
FAULTS_S = 12.0
SETTLED_S_MAX = 30.0
ACCEPTED = 2
FENCED = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "share.coordinator.state.topic.prune.interval.ms": "300",
    "share.coordinator.cold.partition.snapshot.interval.ms": "700",
    "share.coordinator.write.timeout.ms": "1000",
}


@dataclass
class Truth:
    """What is known of a share partition's state."""

    partition: int
    accepted: set[int] = field(default_factory=set)
    start_offset: int = 0
    next_offset: int = 0
    leader_epoch: int = 0  # of the latest leader
    read_epoch: int = 0  # of the latest leader that has read
    written: int = 0
    fenced: int = 0

    def check(self, state: StateOutcome) -> None:
        """Violation if a state lacks something that was acknowledged before it was read."""
        where = f"share partition {self.partition}"
        require(state.start_offset >= self.start_offset, f"{where}: its start went back: {state}")
        found = {
            offset
            for each in state.batches
            if each.delivery_state == ACCEPTED
            for offset in range(each.first_offset, each.last_offset + 1)
        }
        lost = {each for each in self.accepted if each >= state.start_offset} - found
        require(not lost, f"{where}: accepted records came back: {sorted(lost)}")


def run_share_states(seed: int) -> tuple[int, int]:
    """One seed's run; the number of acknowledged writes and of fenced leaders."""
    result, _ = simulate(f"share-states-{seed}", lambda loop: _Play(loop, seed).run())
    return result


class _Play:
    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.loop = loop
        self.rng = random.Random(f"{seed}:share states")
        self.truths = [Truth(partition) for partition in range(PARTITIONS)]
        self.is_over = False
        self.reigns: list[asyncio.Task[None]] = []

    async def run(self) -> tuple[int, int]:
        async with Stage(self.loop, LETTERS, SETTINGS) as self.stage:
            await self.stage.create_topic(LETTERS, partitions=PARTITIONS)
            self.topic_id = self.stage.topic_id
            items = [Initialization(self.topic_id, each, 1, 0) for each in range(PARTITIONS)]
            for outcome in await in_lane("test", self.states("X").initialize("g", items)):
                assert outcome.error is ErrorCode.NONE, outcome
            leaders = [asyncio.ensure_future(self._lead(truth)) for truth in self.truths]
            await self._faults()
            self.is_over = True
            await asyncio.gather(*leaders)
            await self._settle()
            for reign in self.reigns:
                if reign.done():  # those of dead machines never end
                    reign.result()
        return sum(each.written for each in self.truths), sum(each.fenced for each in self.truths)

    def states(self, name: str) -> Persister:
        server: Any = self.stage.machines[name].server
        states: Persister = server.parts.share_states
        return states

    def is_up(self, name: str) -> bool:
        machine = self.stage.machines[name]
        return machine.is_ready and machine.server is not None

    # -- faults ----------------------------------------------------------------------------------

    async def _faults(self) -> None:
        end_s = self.loop.time() + FAULTS_S
        while self.loop.time() < end_s:
            await asyncio.sleep(self.rng.uniform(0.05, 0.8))
            name = self.rng.choice(LETTERS)
            if self.rng.random() < 0.4:
                self.stage.kill(name)
                await asyncio.sleep(self.rng.choice((0.1, 0.5, 2.0)))
                await self.stage.start(name)
                continue
            others = [each for each in (*LETTERS, "X", "Y") if each != name]
            if self.rng.random() < 0.4:
                others = [self.rng.choice(others)]  # else it is alone, with its clients
            pairs = [pair for each in others for pair in ((name, each), (each, name))]
            for pair in pairs:
                self.stage.cut(*pair)
            await asyncio.sleep(self.rng.choice((0.2, 1.0, 2.5, 4.0)))
            for pair in pairs:
                self.stage.heal(*pair)

    async def _settle(self) -> None:
        """Once the faults are over, a new leader reads everything."""
        end_s = self.loop.time() + SETTLED_S_MAX
        for truth in self.truths:
            truth.leader_epoch += 1
            reading = Reading(self.topic_id, truth.partition, truth.leader_epoch)
            [state] = await in_lane("test", self.states("Y").read("g", [reading]))
            require(state.error is ErrorCode.NONE, f"the state cannot be read: {state}")
            truth.check(state)
        require(self.loop.time() < end_s, "the states are read too late")
        for name in filter(self.is_up, self.stage.ids):
            await in_lane(self.stage.machines[name].lane, self._check_log(name))

    async def _check_log(self, name: str) -> None:
        """A coordinator's log, pruned as it is, has what its memory has."""
        server: Any = self.stage.machines[name].server
        coordinator = server.parts.share_states.coordinator
        for shard in coordinator.led.active():
            loaded = coordinator.new_shard(shard.index, shard.leader_epoch)
            for chunk in coordinator.topic.load(shard.index):
                for header, record in chunk:
                    coordinator.replay(loaded, header, record)
            for truth in self.truths:
                key = SharePartition("g", self.topic_id, truth.partition)
                require(loaded.state(key) == shard.state(key), f"{key}: the log lacks something")

    # -- leaders ---------------------------------------------------------------------------------

    async def _lead(self, truth: Truth) -> None:
        """One leader after the other; an earlier one may go on for a while."""
        while not self.is_over:
            names = [name for name in (*LETTERS, "X") if self.is_up(name)]
            machine = self.stage.machines[self.rng.choice(names)]
            life = machine.life
            truth.leader_epoch += 1
            reign = self._reign(self.states(machine.host), truth, truth.leader_epoch)
            task = in_lane(machine.lane, reign)
            self.reigns.append(task)
            patience_s = self.loop.time() + self.rng.choice((0.3, 1.0, 5.0))
            await self.stage.until(
                partial(self._has_ended, task, machine, life, patience_s), "a reign"
            )

    def _has_ended(
        self, reign: asyncio.Task[None], machine: Machine, life: int, patience_s: float
    ) -> bool:
        return reign.done() or machine.life != life or self.loop.time() >= patience_s

    async def _reign(self, states: Persister, truth: Truth, epoch: int) -> None:
        before = truth.read_epoch
        known = Truth(truth.partition, set(truth.accepted), truth.start_offset)
        [state] = await states.read("g", [Reading(self.topic_id, truth.partition, epoch)])
        if state.error is not ErrorCode.NONE:
            truth.fenced += state.error in FENCED
            return
        require(epoch >= before, f"a leader of epoch {epoch} reads after one of {before}")
        known.check(state)
        truth.read_epoch = max(truth.read_epoch, epoch)
        for _ in range(self.rng.randint(1, 8)):
            writes = [self._write(states, truth, epoch) for _ in range(self.rng.randint(1, 3))]
            if not all(await asyncio.gather(*writes)):
                return
            await asyncio.sleep(self.rng.choice((0, 0.02, 0.3)))

    async def _write(self, states: Persister, truth: Truth, epoch: int) -> bool:
        """Accept some records, and perhaps move the start offset; False: another one leads."""
        first = truth.next_offset
        last = first + self.rng.randint(0, 4)
        truth.next_offset = last + 1 + self.rng.randint(0, 1)
        start_offset = max(first - 10, 0) if self.rng.random() < 0.5 else -1
        batches = (StateBatch(first, last, ACCEPTED, 1),)
        writing = Writing(self.topic_id, truth.partition, 1, epoch, start_offset, 0, batches)
        before = truth.read_epoch
        [outcome] = await states.write("g", [writing])
        if outcome.error is ErrorCode.NONE:
            require(epoch >= before, f"a leader of epoch {epoch} writes after one of {before}")
            truth.accepted.update(range(first, last + 1))
            truth.start_offset = max(truth.start_offset, start_offset)
            truth.written += 1
        truth.fenced += outcome.error in FENCED
        return outcome.error not in FENCED
