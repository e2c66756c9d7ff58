"""Broker 2 of 3 loses its disk while 3 is behind, and 1, which has the only other copy of a topic,
is away. Nothing acknowledged may be lost, in whatever order they come back.

Had both stopped in good order, 1 leads again. Else 1, which was killed too, waits for 2, as
after any crash: it may lack what 2 had.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.history import require
from sim.raw_logs import DATA, read_log
from sim.wire import Lost, WireConnection
from tidelog.simulation.loop import simulate
from tidelog.simulation.machines import Machines
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.data import ProduceRequest
from tidelog_protocol.records import Record, build_batch

if TYPE_CHECKING:
    from tidelog.simulation.loop import SimLoop
    from tidelog.simulation.machine import Machine
    from tidelog_protocol.schema import Message

TOPIC = "precious"
RECORDS = 5
WAIT_S_MAX = 30.0


class LostVoter:
    """A seed's run of the play."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.rng = random.Random(f"{seed}:lost voter")
        self.is_last_in_sync = self.rng.random() < 0.5
        self.machines = Machines(loop, seed, 3)
        self.loop = loop

    def machine(self, node_id: int) -> Machine:
        return self.machines.by_id[node_id]

    async def run(self) -> None:
        """The whole of it; Violation if the topic is gone."""
        await asyncio.gather(*(machine.start() for machine in self.machines))
        self.machine(3).die("kill")
        await self._until(self._create, "the topic is created")
        await self._until(self._write, "the records are acknowledged")
        await self._end(2)
        self._wipe(2)
        await self._end(1)
        await self._come_back()
        await self._until(self._is_whole, f"{TOPIC} is on 1 with all its records")

    async def _end(self, node_id: int) -> None:
        if self.is_last_in_sync:
            await self.machine(node_id).stop()
        else:
            self.machine(node_id).die("kill")

    async def _come_back(self) -> None:
        """3 and 2 first; 1 after a while."""
        starts = [asyncio.ensure_future(self.machine(node_id).start()) for node_id in (3, 2)]
        await asyncio.sleep(self.rng.uniform(0, 5))
        starts.append(asyncio.ensure_future(self.machine(1).start()))
        _, late = await asyncio.wait(starts, timeout=WAIT_S_MAX)
        require(not late, "a start does not end")

    def _wipe(self, node_id: int) -> None:
        disk = self.machine(node_id).disk
        disk.change("remove_tree", DATA)
        disk.sync_names()

    async def _until(self, done: Any, what: str) -> None:
        end_s = self.loop.time() + WAIT_S_MAX
        while not await done():
            require(self.loop.time() < end_s, f"not after {WAIT_S_MAX:g} s: {what}")
            await asyncio.sleep(0.1)

    async def _ask(self, message: Message, version: int) -> Any:
        try:
            connection = await WireConnection.open(self.machine(1), "client")
            return await connection.ask(message, version)
        except Lost:
            return None

    async def _create(self) -> bool:
        creatable = CreateTopicsRequest.CreatableTopic
        assignment = creatable.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])
        topic = creatable(
            name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=[assignment]
        )
        await self._ask(CreateTopicsRequest(topics=[topic], timeout_ms=3000), 7)
        image = self.machines.image()
        return image is not None and TOPIC in image.topics

    async def _write(self) -> bool:
        records = build_batch([Record(n, 1_700_000_000_000, None, b"x") for n in range(RECORDS)])
        partition = ProduceRequest.PartitionProduceData(index=0, records=records)
        topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[partition])
        response = await self._ask(ProduceRequest(acks=-1, timeout_ms=3000, topic_data=[topic]), 12)
        return response is not None and not response.responses[0].partition_responses[0].error_code

    async def _is_whole(self) -> bool:
        image = self.machines.image()
        state = None if image is None else image.partition(TOPIC, 0)
        log = read_log(self.machine(1).disk, f"{DATA}/{TOPIC}-0")
        count = sum(len(list(batch.records())) for batch in log.batches())
        is_led = state is not None and (state.leader == 1 or not self.is_last_in_sync)
        return is_led and count >= RECORDS


def run_lost_voter(seed: int) -> None:
    """Violation if a promise is broken."""

    async def play(loop: SimLoop) -> None:
        run = LostVoter(loop, seed)
        try:
            await run.run()
        finally:
            for machine in run.machines:
                machine.die("end of the play")
            run.machines.bury()

    simulate(seed, play)
