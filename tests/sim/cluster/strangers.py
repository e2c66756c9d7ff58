"""Processes and clients that are not what they say: a second process with a broker's id, Fetches
with a made-up replica epoch, quorum requests out of range, a voter whose vote has rotted.

Each seed draws them from a stream of their own. A second process is what the cluster sees of it,
its requests: a copy of a disk has the directory ids, and no proof that the first process has ended.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.history import Violation, require
from tidelog.cluster.lifecycle import State
from tidelog.cluster.metadata.features import supported_levels
from tidelog.cluster.metadata.quorum_state import QUORUM_STATE
from tidelog.network.peers import PeerChannel, PeerError
from tidelog.simulation.disk import Inode
from tidelog.simulation.machine import PORT, SimRng
from tidelog.simulation.machines import CONTROLLER_PORT, host_of
from tidelog_protocol.messages.controller import BrokerRegistrationRequest
from tidelog_protocol.messages.data import FetchRequest
from tidelog_protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    VoteRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.cluster.faults import ClusterFaults
    from tidelog.assembly import Parts
    from tidelog.cluster.metadata.delta import MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.simulation.machine import Machine
    from tidelog_protocol.schema import Message

STRANGERS = (
    "second process",
    "broker replaced",
    "replica epoch claimed",
    "quorum out of range",
    "vote rots",
)
SEEDS_WITH_IT = 0.06  # of each kind
LOOK_S = 0.002
RETRY_S = 0.04  # as a broker that registers
FRESH_S = 0.3  # a heartbeat came within this time
INTRUSION_S = 0.9  # and with that a session ends after more than this time
MOMENT_S_MAX = 6.0
NOTICED_S_MAX = 8.0
EPOCH_MAX = (1 << 31) - 1
EPOCH_LIMIT = 1 << 20  # no run comes near it
TOPIC = "__cluster_metadata"


def draw_strangers(seed: int | str, plan_s: float) -> list[tuple[float, str]]:
    """What a seed gets of them, and when."""
    rng = random.Random(f"{seed}:strangers")
    drawn = [(rng.random(), rng.uniform(0.5, plan_s), kind) for kind in STRANGERS]
    return [(at_s, kind) for chance, at_s, kind in drawn if chance < SEEDS_WITH_IT]


class Stranger:
    """One of them."""

    def __init__(self, faults: ClusterFaults, node_id: int, name: str) -> None:
        self.faults, self.world, self.machines = faults, faults.world, faults.machines
        self.machine: Machine = self.machines.by_id[node_id]  # a voter: it is never taken away
        self.node_id = node_id
        self.rng = random.Random(f"{self.world.seed}:{name}")
        self._channels: dict[tuple[str, int], PeerChannel] = {}

    async def run(self, kind: str) -> None:
        """The whole of it."""
        await getattr(self, "_" + kind.replace(" ", "_"))()
        for channel in self._channels.values():
            channel.close()

    # -- looking -----------------------------------------------------------------------------------

    def _life(self) -> Any:
        """The broker's server while it is registered and does not leave, else None."""
        server: Any = self.machine.server
        if server is None or not self.machine.is_ready:
            return None
        is_running = server.membership._parts.lifecycle.state is State.RUNNING
        return server if is_running and not server.metadata.has_failed else None

    def _controller(self) -> Parts | None:
        """The parts of the broker with the active controller, as far as one can be seen."""
        for _, server in self.machines.servers():
            if server.is_built and server.metadata.is_leader:
                return server.parts
        return None

    def _is_fresh(self) -> bool:
        """Whether the active controller has just had a heartbeat of the broker."""
        leading, server = self._controller(), self._life()
        sessions: Any = None if leading is None else leading.controller._sessions
        if leading is None or server is None or sessions is None:
            return False
        registered = leading.metadata.latest.brokers.get(self.node_id)
        if registered is None or registered.fenced or registered.in_controlled_shutdown:
            return False
        known = sessions._sessions.get(self.node_id)
        if known is None or registered.epoch != server.membership.broker_epoch:
            return False
        return bool(known.heard and self.world.loop.time() - known.last_contact < FRESH_S)

    async def _until(self, is_so: Callable[[], Any], seconds: float) -> bool:
        end_s = self.world.loop.time() + seconds
        while not is_so():
            if self.world.loop.time() >= end_s:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    # -- asking ------------------------------------------------------------------------------------

    async def _ask(self, node_id: int, port: int, request: Message, version: int) -> Any:
        """One answer, None if there is none."""
        key = (host_of(node_id), port)
        if key not in self._channels:
            self._channels[key] = PeerChannel(
                self.machines.network.door("stranger"),
                self.machine.clock,
                key,
                client_id="stranger",
                rng=SimRng(f"{self.world.seed}:stranger"),
            )
        try:
            return await self._channels[key].ask(request, version, timeout_s=0.3)
        except PeerError:
            return None

    def _registration(self) -> BrokerRegistrationRequest:
        """What a process on a copied disk sends."""
        directories = self.machine.server.logs.directories  # type: ignore[union-attr]
        return BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=self.machines.image().cluster_id,  # type: ignore[union-attr]
            incarnation_id=self.rng.randbytes(16),
            listeners=[
                BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="stranger", port=PORT)
            ],
            features=[
                BrokerRegistrationRequest.Feature(
                    name=name, min_supported_version=low, max_supported_version=high
                )
                for name, (low, high) in supported_levels().items()
            ],
            log_dirs=[directory.directory_id for directory in directories],
        )

    async def _register(self, request: BrokerRegistrationRequest) -> bool:
        """Ask all controllers; whether one has registered it."""
        voters = range(1, self.machines.voters + 1)
        answers = [await self._ask(voter, CONTROLLER_PORT, request, 4) for voter in voters]
        return any(answer is not None and not answer.error_code for answer in answers)

    # -- two processes with one id -----------------------------------------------------------------

    async def _second_process(self) -> None:
        """It may not register while the first one has a session, whoever the controller is."""
        if not await self._until(self._is_fresh, MOMENT_S_MAX):
            return
        request, first = self._registration(), self._life()
        self.world.history.count("second processes")
        if self.rng.random() < 0.6:
            leader = self.machines.controller()
            if leader not in (None, self.node_id) and self.faults.may_strike(leader):
                self.machines.by_id[leader].die("kill")
        end_s = self.world.loop.time() + INTRUSION_S
        while self.world.loop.time() < end_s and self._life() is first:
            is_registered = await self._register(request)
            is_there = self._life() is first or "another process" in str(first.failure)
            require(
                not (is_registered and is_there),
                f"another process took the place of broker {self.node_id}, which has a session",
            )
            await asyncio.sleep(RETRY_S)

    async def _broker_replaced(self) -> None:
        """A broker stands still until its session is over and another process has its id. When it
        goes on it ends, and acts on no image of the other's life."""
        await self.faults.until_may_strike(self.node_id)
        first = self._life()
        if first is None or self.machines.controller() == self.node_id:
            return
        request, machine, life = self._registration(), self.machine, self.machine.life
        epoch = first.membership.broker_epoch

        def look(_delta: MetadataDelta, new: ClusterImage) -> None:
            known = new.brokers.get(self.node_id)
            if machine.life == life and (known is None or known.epoch != epoch):
                what = f"broker {self.node_id} acts on the image of another life of it"
                self.world._failure = self.world._failure or Violation(what)

        first.metadata.subscribe(look)
        is_replaced = False
        with self.faults.cut_off(self.node_id):
            self.world.loop.pause_lane(machine.lane)
            lane = machine.lane
            if await self._until(self._is_fenced, 4.0) and machine.life == life:
                is_replaced = await self._register(request)
            self.world.loop.resume_lane(lane)
            if is_replaced and machine.life == life:
                self.world.history.count("brokers replaced")
                is_over = await self._until(lambda: machine.life != life, NOTICED_S_MAX)
                require(is_over, f"broker {self.node_id} was replaced, and goes on")

    def _is_fenced(self) -> bool:
        image = self.machines.image()
        known = None if image is None else image.brokers.get(self.node_id)
        return known is not None and known.fenced

    # -- claims ------------------------------------------------------------------------------------

    async def _replica_epoch_claimed(self) -> None:
        """Nothing is known by it of the followers; the run ends only when they are in sync."""
        claimed = self.rng.choice((1 << 62, (1 << 63) - 1, 1 << 40))
        image = self.machines.image()
        for topic in () if image is None else list(image.topics.values()):
            for state in topic.partitions:
                for follower in state.replicas:
                    if state.leader not in (-1, follower):
                        await self._claim(topic.topic_id, state, follower, claimed)

    async def _claim(self, topic_id: bytes, state: Any, follower: int, epoch: int) -> None:
        partition = FetchRequest.FetchPartition(
            partition=state.partition,
            current_leader_epoch=state.leader_epoch,
            fetch_offset=0,
            partition_max_bytes=1,
        )
        request = FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=follower, replica_epoch=epoch),
            max_wait_ms=0,
            topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])],
        )
        if await self._ask(state.leader, PORT, request, 17) is not None:
            self.world.history.count("replica epochs claimed")

    async def _quorum_out_of_range(self) -> None:
        """Epochs stay in their range, and the quorum goes on."""
        for _ in range(self.rng.randint(4, 10)):
            request: Any = self.rng.choice((self._begin, self._end, self._vote))()
            if await self._ask(self.node_id, CONTROLLER_PORT, request, 1) is not None:
                self.world.history.count("quorum requests out of range")
            for node_id, core in self.machines.cores():
                require(core.epoch < EPOCH_LIMIT, f"node {node_id} is in epoch {core.epoch}")

    def _sender(self) -> int:
        others = [node for node in range(1, self.machines.voters + 1) if node != self.node_id]
        return self.rng.choice((*others, *others, self.node_id, -1, EPOCH_MAX))

    def _epoch(self) -> int:
        return self.rng.choice((EPOCH_MAX, EPOCH_MAX - 1, 1 << 30, EPOCH_LIMIT * 2, -1, -EPOCH_MAX))

    def _begin(self) -> BeginQuorumEpochRequest:
        partition = BeginQuorumEpochRequest.PartitionData(
            partition_index=0, leader_id=self._sender(), leader_epoch=self._epoch()
        )
        topic = BeginQuorumEpochRequest.TopicData(topic_name=TOPIC, partitions=[partition])
        return BeginQuorumEpochRequest(cluster_id=None, topics=[topic])

    def _end(self) -> EndQuorumEpochRequest:
        partition = EndQuorumEpochRequest.PartitionData(
            partition_index=0, leader_id=self._sender(), leader_epoch=self._epoch()
        )
        topic = EndQuorumEpochRequest.TopicData(topic_name=TOPIC, partitions=[partition])
        return EndQuorumEpochRequest(cluster_id=None, topics=[topic])

    def _vote(self) -> VoteRequest:
        partition = VoteRequest.PartitionData(
            partition_index=0,
            replica_epoch=self._epoch(),
            replica_id=self._sender(),
            last_offset_epoch=self.rng.choice((-1, 0, 0, EPOCH_MAX - 2)),
            last_offset=self.rng.choice((-1, 0, 1 << 40, 1 << 40)),
        )
        topic = VoteRequest.TopicData(topic_name=TOPIC, partitions=[partition])
        return VoteRequest(cluster_id=None, topics=[topic])

    # -- a vote that rots --------------------------------------------------------------------------

    async def _vote_rots(self) -> None:
        """A voter that cannot know its vote does not start, until the file is put back."""
        await self.faults.until_may_strike(self.node_id)
        machine, disk = self.machine, self.machine.disk
        path = f"data/{TOPIC}-0/{QUORUM_STATE}"
        if path not in disk.names or not self.faults.may_strike(self.node_id):
            return
        with self.faults.cut_off(self.node_id):
            machine.die("kill")
            good = bytes(disk.names[path].data)
            bad = bytearray(good)
            bad[self.rng.randrange(10)] ^= 1 << self.rng.randrange(7)  # in the first field's name
            self._put(path, self.rng.choice((b"", good[:-1], bytes(bad), bytes(bad))))
            self.world.history.count("votes rotted")
            end_s = self.world.loop.time() + self.rng.uniform(0.3, 2.5)
            while self.world.loop.time() < end_s:
                server: Any = machine.server
                votes = server is not None and server.membership.core is not None
                require(not votes, f"node {self.node_id} votes without knowing how it voted")
                await asyncio.sleep(LOOK_S)
            if path in disk.names:  # else another fault has taken the whole disk
                self._put(path, good)

    def _put(self, path: str, data: bytes) -> None:
        disk = self.machine.disk
        inode = Inode()
        inode.data += data
        disk.change("create", path, inode)
        disk.sync(inode)


async def play_stranger(faults: ClusterFaults, kind: str, node_id: int, name: str) -> None:
    """The whole of one."""
    await Stranger(faults, node_id, name).run(kind)
