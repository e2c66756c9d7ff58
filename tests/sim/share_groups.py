"""A share group reads what plain and transactional producers write, while brokers and members come
and go (KIP-932). `share_history.py` says what is promised.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.history import require
from sim.share_history import ShareHistory
from sim.share_members import GROUP, Connections, ShareMember
from sim.share_writers import PlainWriter, TransactionalWriter
from sim.stage import TOPIC, Stage
from sim.wire import Lost
from tidelog.cluster.metadata.image import SHARE_GROUP_STATE_TOPIC
from tidelog.coordinators.share.values import SharePartition
from tidelog.simulation.loop import simulate
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest
from tidelog_protocol.messages.data import DeleteRecordsRequest
from tidelog_protocol.messages.share_group_offsets import DescribeShareGroupOffsetsRequest
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tidelog.simulation.loop import SimLoop

LETTERS = "AB"
PARTITIONS = 2
MEMBERS = 3
FAULTS_S = 6.0
SETTLED_S_MAX = 20.0
LOOK_S = 0.05
GROUP_RESOURCE = 32
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
    "share.coordinator.write.timeout.ms": "1000",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.session.timeout.ms": "2000",
    "group.share.min.session.timeout.ms": "2000",
    "group.share.record.lock.duration.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.partition.max.record.locks": "100",
    "group.share.assignment.interval.ms": "0",
    "group.share.initialize.retry.interval.ms": "500",
}


class ShareGroupPlay:
    """One run."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.loop = loop
        self.seed = seed
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
        members = [self._start(self._members(number)) for number in range(MEMBERS)]
        writers = [
            self._start(PlainWriter(self, "writer").run()),
            self._start(TransactionalWriter(self, "transactional").run()),
        ]
        others = [self._start(self._describe()), self._start(self._delete())]
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
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        entries = {"share.auto.offset.reset": "earliest"}
        if self._is_committed:
            entries["share.isolation.level"] = "read_committed"
        configs = [
            resource.AlterableConfig(name=name, config_operation=0, value=value)
            for name, value in entries.items()
        ]
        asked = resource(resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=configs)
        answer = await self.stage.ask("X", IncrementalAlterConfigsRequest(resources=[asked]), 1)
        assert answer.responses[0].error_code == ErrorCode.NONE, answer

    # -- what clients and checkers ask -------------------------------------------------------------

    def leader_of(self, index: int) -> str:
        """The leader's name by the controller's metadata; "" if there is none."""
        image = self.stage.image
        if image is None:
            return ""
        return self.stage.letters.get(image.partition(TOPIC, index).leader, "")

    def _led(self, name: str, index: int) -> Any:
        server: Any = self.stage.machines[name].server
        if server is None or not server.is_built or not self.stage.machines[name].is_ready:
            return None
        shares = server.parts.shares()
        return shares._led.get(SharePartition(GROUP, self.topic_id, index))

    def term(self, name: str, index: int) -> Any:
        """The life of a share partition at a broker, None without one."""
        led = self._led(name, index)
        if led is not None and led.state is not None:
            self.history.led(index, led, led.state.start_offset)
        return led

    def _keeper(self, name: str) -> tuple[int, int] | None:
        """The broker that keeps the group's states, and its leader epoch; None if the broker of
        this name does not know it: a deposed one may answer with old offsets."""
        server: Any = self.stage.machines[name].server
        own = server.replicas.image if server is not None and server.is_built else None
        found = [
            None if image is None else image.partition(SHARE_GROUP_STATE_TOPIC, 0)
            for image in (self.stage.image, own)
        ]
        places = [None if each is None else (each.leader, each.leader_epoch) for each in found]
        return places[0] if places[0] == places[1] else None

    # -- members -----------------------------------------------------------------------------------

    async def _members(self, number: int) -> None:
        """One life after the other; the last one stays until the end."""
        rng = random.Random(f"{self.seed}:share member {number}")
        life = 0
        while not self.is_over:
            life += 1
            member = ShareMember(self, f"member-{number}-{life}", rng)
            tasks = [asyncio.ensure_future(work) for work in (member.beat(), member.read())]
            try:
                await self._live(member, tasks, rng)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(rng.choice((0.01, 0.3)))

    async def _live(
        self, member: ShareMember, tasks: list[asyncio.Task[None]], rng: random.Random
    ) -> None:
        """Until it leaves or vanishes; raise what it raises."""
        end_s = self.loop.time() + rng.choice((0.7, 2.0, 5.0, 9.0))
        vanishes = rng.random() < 0.5
        while not any(task.done() for task in tasks):
            if self.loop.time() >= end_s and not self.is_quiet and vanishes:
                member.vanish()
                return
            member.is_leaving = self.is_over or (self.loop.time() >= end_s and not self.is_quiet)
            await asyncio.sleep(LOOK_S)
        for task in tasks:
            if task.done():
                task.result()

    # -- administrators ----------------------------------------------------------------------------

    async def _describe(self) -> None:
        """Start offsets, now and then."""
        connections = Connections(self, "describer")
        group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
        message = DescribeShareGroupOffsetsRequest(groups=[group(group_id=GROUP, topics=None)])
        while not self.is_over:
            await asyncio.sleep(0.4)
            sent_s, name = self.loop.time(), connections.coordinator
            keeper = self._keeper(name) if name else None
            try:
                answer = await connections.ask_coordinator(message, 1)
            except Lost:
                continue
            (found,) = answer.groups
            if found.error_code:
                connections.coordinator = ""
            if keeper is None or keeper != self._keeper(name):
                continue
            for part in [part for topic in found.topics for part in topic.partitions]:
                if not part.error_code and part.start_offset >= 0:
                    index, now_s = part.partition_index, self.loop.time()
                    self.history.described(index, sent_s, now_s, part.start_offset)
        connections.close()

    async def _delete(self) -> None:
        """Records, now and then, in some runs."""
        rng = random.Random(f"{self.seed}:share deletions")
        connections = Connections(self, "deleter")
        is_on = rng.random() < 0.4
        while is_on and not self.is_quiet:
            await asyncio.sleep(rng.uniform(0.3, 2.5))
            known = rng.choice(self.history.partitions)
            name, end = self.leader_of(known.index), max(known.facts, default=0)
            if not name or not end:
                continue
            offset = rng.randint(end // 2, end)
            known.delete_bound = max(known.delete_bound, offset)
            of_topic = DeleteRecordsRequest.DeleteRecordsTopic
            part = of_topic.DeleteRecordsPartition(partition_index=known.index, offset=offset)
            topic = of_topic(name=TOPIC, partitions=[part])
            message = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
            try:
                answer = await connections.ask(name, message, 2)
            except Lost:
                continue
            result = answer.topics[0].partitions[0]
            if result.error_code == ErrorCode.NONE:
                known.log_starts.append((self.loop.time(), result.low_watermark))
                self.history.count("records deleted")
        connections.close()

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
        while what := self._unsettled():
            require(self.loop.time() < end_s, f"not after {SETTLED_S_MAX:g} s: {what}")
            await asyncio.sleep(LOOK_S)

    def _unsettled(self) -> str:
        """The first partition with records that no member is done with, "" without one."""
        for index in range(PARTITIONS):
            name = self.leader_of(index)
            led = self._led(name, index) if name else None
            if led is None or led.state is None:
                return f"share partition {index} is not loaded at {name}"
            server: Any = self.stage.machines[name].server
            end = server.replicas.hosted(TopicPartition(TOPIC, index)).log.log_end_offset
            if led.state.start_offset < end:
                return f"share partition {index} at {name}, end {end}: {led.state.in_flight.spans}"
        return ""


def run_share_groups(seed: int) -> dict[str, int]:
    """One seed's run; what was seen."""
    result, _ = simulate(f"share-group-{seed}", lambda loop: ShareGroupPlay(loop, seed).run())
    return result
