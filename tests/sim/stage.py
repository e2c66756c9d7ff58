"""A cluster for plays: whole brokers on simulated machines, and a test that says what happens when.

    async with Stage(loop, "AB") as stage:
        await stage.create_topic("AB")            # A is the preferred leader
        assert (await stage.produce("A", "m1", acks=-1)).error_code == 0
        stage.kill("A")

Actors have letters: brokers that hold replicas of the one partition, ids in alphabetical order from
1. Two more brokers, which nothing happens to, are the voters of the metadata quorum: elections,
fences and in-sync replicas are the real controller's. Times are those of `cluster/machines.py`.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Self

from sim.raw_logs import DATA, read_log
from sim.wire import Lost, WireConnection
from tidelog.cluster.quorum.core import Role
from tidelog.simulation.machine import PORT, START_MS, Machine, in_lane
from tidelog.simulation.machines import CONTROLLER_PORT, PROPERTIES
from tidelog.simulation.network import SimNetwork
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.data import ProduceRequest
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.cluster.metadata.image import PartitionImage
    from tidelog.replication.partition import Partition
    from tidelog.simulation.loop import SimLoop
    from tidelog_protocol.schema import Message

TOPIC = "play"
FOLDER = f"{DATA}/{TOPIC}-0"
VOTERS = {"X": 8, "Y": 9}
WAIT_S_MAX = 60.0


class Miser(random.Random):
    """A power failure under it keeps what was synced, and nothing else."""

    def randint(self, a: int, b: int) -> int:
        del b
        return a

    def random(self) -> float:
        return 1.0


class Stage:
    """The brokers of one play. Invariant: the voters run as long as it is open."""

    def __init__(
        self, loop: SimLoop, letters: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self.loop = loop
        self.ids = {**{name: n for n, name in enumerate(sorted(letters), 1)}, **VOTERS}
        self.letters = {node_id: name for name, node_id in self.ids.items()}
        self.network = SimNetwork(loop, "stage")
        self.machines = {
            name: self._machine(name, node_id, settings or {}) for name, node_id in self.ids.items()
        }
        self._connections: dict[str, WireConnection] = {}
        self._watches: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        loop.after_step = self.look

    def _machine(self, name: str, node_id: int, settings: Mapping[str, str]) -> Machine:
        votes = name in VOTERS
        listeners = f"PLAINTEXT://{name}:{PORT}"
        own = {
            **PROPERTIES,
            "node.id": str(node_id),
            "process.roles": "broker,controller" if votes else "broker",
            "listeners": f"{listeners},CONTROLLER://{name}:{CONTROLLER_PORT}"
            if votes
            else listeners,
            "controller.quorum.voters": ",".join(
                f"{voter_id}@{voter}:{CONTROLLER_PORT}" for voter, voter_id in VOTERS.items()
            ),
            **settings,
        }
        return Machine(self.loop, self.network, f"stage:{name}", own, host=name)

    async def __aenter__(self) -> Self:
        await self.start(*self.ids)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.loop.after_step = None
        for machine in self.machines.values():
            machine.die("end of the play")
            machine.bury()
        assert not self.loop.failures, self.loop.failures

    # -- what happens ------------------------------------------------------------------------------

    async def start(self, *names: str) -> None:
        """Begin lives, and wait until the controller takes part in them."""
        started = await asyncio.gather(*(self.machines[name].start() for name in names))
        assert all(started), names
        await self.until(lambda: not any(self.is_fenced(name) for name in names), "unfenced")

    async def stop(self, name: str) -> None:
        """An orderly stop."""
        assert await self.machines[name].stop()

    def kill(self, name: str) -> None:
        """The process is gone; what it wrote is not."""
        self.machines[name].die("kill")

    def power_failure(self, name: str) -> None:
        """The machine is gone, and all that was not synced."""
        self.machines[name].disk.rng = Miser()
        self.machines[name].die("power")

    def sync(self, name: str) -> None:
        """The operating system writes back what it has of a machine's files."""
        disk = self.machines[name].disk
        for inode in dict.fromkeys(disk.names.values()):
            disk.sync(inode)

    def cut(self, source: str, target: str) -> None:
        """What one sends does not reach the other until `heal`."""
        self.network.cut([(source, target)])

    def heal(self, source: str, target: str) -> None:
        """It arrives now."""
        self.network.heal([(source, target)])

    def when(self, condition: Callable[[], bool], action: Callable[[], None]) -> None:
        """Do something between the step that makes a condition true and the next."""
        self._watches.append((condition, action))

    def look(self) -> None:
        """After each step."""
        for watch in list(self._watches):
            if watch[0]():
                self._watches.remove(watch)
                watch[1]()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something; fail after a virtual minute."""
        end_s = self.loop.time() + WAIT_S_MAX
        while not condition():
            assert self.loop.time() < end_s, f"not after {WAIT_S_MAX:g} s: {what}; {self.state()}"
            await asyncio.sleep(0.005)

    # -- clients -----------------------------------------------------------------------------------

    async def ask(self, name: str, message: Message, version: int) -> Any:
        """One request to one broker; Lost if there is no answer in three seconds."""
        known = self._connections.get(name)
        if known is None or not known.is_open or known.life != self.machines[name].life:
            known = await WireConnection.open(self.machines[name], "client")
            self._connections[name] = known
        return await known.ask(message, version)

    async def create_topic(self, replicas: str, *, partitions: int = 1, **config: object) -> None:
        """The topic, each partition of it on these brokers in this order."""
        creatable = CreateTopicsRequest.CreatableTopic
        topic = creatable(
            name=TOPIC,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                creatable.CreatableReplicaAssignment(
                    partition_index=index, broker_ids=[self.ids[name] for name in replicas]
                )
                for index in range(partitions)
            ],
            configs=[
                creatable.CreatableTopicConfig(name=key.replace("_", "."), value=str(value).lower())
                for key, value in config.items()
            ],
        )
        response = await self.ask("X", CreateTopicsRequest(topics=[topic], timeout_ms=3000), 7)
        assert response.topics[0].error_code == ErrorCode.NONE, response
        await self.until(lambda: all(map(self.has_replica, replicas)), "replicas")

    async def produce(self, name: str, *values: str, acks: int = 1) -> Any:
        """One batch: the answer, or None if there was none in three seconds (or acks=0)."""
        try:
            response = await self.ask(name, self.produce_request(*values, acks=acks), 12)
        except Lost:
            return None
        return response.responses[0].partition_responses[0]

    def produce_request(self, *values: str, acks: int, index: int = 0) -> ProduceRequest:
        """One batch of version 12 or below, for a partition."""
        now_ms = START_MS + int(self.loop.time() * 1000)
        records = build_batch([Record(n, now_ms, None, v.encode()) for n, v in enumerate(values)])
        partition = ProduceRequest.PartitionProduceData(index=index, records=records)
        topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[partition])
        return ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[topic])

    async def acknowledged(self, name: str, *values: str, acks: int = 1) -> None:
        """Produce, and see that it is taken."""
        answer = await self.produce(name, *values, acks=acks)
        assert answer is not None, "no answer"
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name

    # -- looking -----------------------------------------------------------------------------------

    def partition(self, name: str) -> Partition:
        """The replica of a broker that runs."""
        server: Any = self.machines[name].server
        partition: Partition | None = server.replicas.hosted(TopicPartition(TOPIC, 0))
        assert partition is not None, f"{name} has no replica open"
        return partition

    def has_replica(self, name: str) -> bool:
        """Whether a broker runs and has its replica open."""
        server: Any = self.machines[name].server
        if server is None or not server.is_built:
            return False
        return server.replicas.hosted(TopicPartition(TOPIC, 0)) is not None

    def log_end(self, name: str) -> int:
        """Log end offset, -1 while the broker does not run."""
        return self.partition(name).log.log_end_offset if self.has_replica(name) else -1

    def high_watermark(self, name: str) -> int:
        """High watermark, -1 while the broker does not run."""
        return self.partition(name).log.high_watermark if self.has_replica(name) else -1

    def values(self, name: str) -> list[str]:
        """The records on a broker's disk, whether it runs or not."""
        return [value for _, value, _ in self.records(name)]

    def records(self, name: str) -> list[tuple[int, str, int]]:
        """(offset, value, leader epoch) of each."""
        return [
            (record.offset, (record.value or b"").decode(), batch.header.leader_epoch)
            for batch in read_log(self.machines[name].disk, FOLDER).batches()
            for record in batch.records()
        ]

    def checkpointed(self, name: str) -> int:
        """The high watermark in a broker's checkpoint, -1 if there is none."""
        file = self.machines[name].disk.names.get(f"{DATA}/replication-offset-checkpoint")
        text = "" if file is None else bytes(file.data).decode()
        lines = (line.split() for line in text.splitlines()[2:])
        return {topic: int(offset) for topic, _, offset in lines}.get(TOPIC, -1)

    async def checkpoint(self, name: str) -> None:
        """Wait until the checkpoint has the broker's high watermark."""
        await self.until(
            lambda: self.checkpointed(name) == self.high_watermark(name), f"checkpoint of {name}"
        )

    def _controller(self) -> Any:
        """The broker whose controller is active; None between two."""
        for voter in VOTERS:
            server: Any = self.machines[voter].server
            core = None if server is None else server.membership.core
            if core is not None and core.role is Role.LEADER:
                return server
        return None

    @property
    def has_controller(self) -> bool:
        """Whether a controller is active."""
        return self._controller() is not None

    @property
    def controller(self) -> str:
        """The voter whose controller is active, "" if none is."""
        server = self._controller()
        return next((v for v in VOTERS if server and self.machines[v].server is server), "")

    @property
    def image(self) -> Any:
        """The metadata as the active controller has it, None without one."""
        controller = self._controller()
        return None if controller is None else controller.metadata.image

    async def commit(self, record: Message) -> None:
        """Write a decision into the metadata log that the controller has not taken."""
        done = in_lane("test", self._controller().metadata.commit([record]))
        await done

    def is_fenced(self, name: str) -> bool:
        """Whether the controller counts on a broker."""
        image = self.image
        return image is None or not image.is_alive(self.ids[name])

    @property
    def decided(self) -> PartitionImage:
        """The partition as the controller has it."""
        image = self.image
        assert image is not None, "no controller is active"
        partition: PartitionImage = image.partition(TOPIC, 0)
        return partition

    @property
    def topic_id(self) -> bytes:
        """Of the one topic."""
        topic_id: bytes = self.image.topics[TOPIC].topic_id
        return topic_id

    @property
    def leader(self) -> str:
        """Who leads, by the controller; "" if nobody."""
        return self.letters.get(self.decided.leader, "")

    @property
    def in_sync(self) -> str:
        """The in-sync replicas, by the controller, in alphabetical order."""
        return "".join(sorted(self.letters[node_id] for node_id in self.decided.isr))

    def leads(self, name: str) -> bool:
        """Whether a broker leads, by the controller and by itself."""
        return self.leader == name and self.has_replica(name) and self.partition(name).is_leader

    def is_whole(self) -> bool:
        """Whether all replicas are in sync, at one log end, and all of it is committed."""
        names = [self.letters[node_id] for node_id in self.decided.replicas]
        offsets = {offset for n in names for offset in (self.log_end(n), self.high_watermark(n))}
        return self.in_sync == "".join(sorted(names)) and len(offsets) == 1

    async def whole(self) -> None:
        """Wait until `is_whole`."""
        await self.until(self.is_whole, "all caught up and in sync")

    def state(self) -> str:
        """All of it in one line, for a failure."""
        logs = {name: (self.high_watermark(name), self.records(name)) for name in self.ids}
        return f"leader {self.leader}, in sync {self.in_sync}, {logs}"
