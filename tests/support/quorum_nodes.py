"""Nodes of a metadata quorum, whole but for the broker around it, in a seeded simulation.

Real driver, log, handlers, dispatcher, connections and peer channels; simulated loop, network,
disk and chance. Each life of a node is a lane of the loop, on one disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
from typing import TYPE_CHECKING, Any

from tidelog.api.describe_quorum import DescribeQuorumApi
from tidelog.api.quorum import QuorumApi, view_of
from tidelog.api.raft_voters import RaftVotersApi
from tidelog.api.versions import VersionsApi
from tidelog.cluster.metadata.image import ClusterImage
from tidelog.cluster.metadata.log import MetadataLog
from tidelog.cluster.metadata.quorum_state import Election, write_quorum_state
from tidelog.cluster.metadata.settings import MetadataLogSettings
from tidelog.cluster.metadata.snapshots import write_snapshot
from tidelog.cluster.metadata.voters import Voter, Voters
from tidelog.cluster.quorum.channels import Addresses, ControllerChannels
from tidelog.cluster.quorum.driver import Quorum
from tidelog.cluster.quorum.voter_changes import VoterChanges
from tidelog.network.connections import Connections
from tidelog.network.dispatch import Dispatcher
from tidelog.network.peers import PeerChannel
from tidelog.simulation.disk import SimDisk
from tidelog.simulation.loop import LANE, SimLoop
from tidelog.simulation.machine import SimClock, SimExecutor, SimRng
from tidelog.simulation.network import SimNetwork
from tidelog_protocol.messages import metadata_records as tables
from tidelog_storage.folders import make_durable_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidelog.cluster.quorum.core import Timeouts

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
PORT = 9093
PROBED = "7"  # the broker of `setting`: a new cluster has settings of all brokers


def setting(name: str, value: str | None = "1") -> tables.ConfigRecord:
    """A record that the image shows (`settings_in`)."""
    return tables.ConfigRecord(resource_type=4, resource_name=PROBED, name=name, value=value)


def settings_in(image: ClusterImage) -> dict[str, str]:
    """What an image shows of `setting` records."""
    return dict(image.broker_configs.get(PROBED, {}))


class QuorumNode:
    """One node: its disk, and its lives."""

    def __init__(self, world: QuorumWorld, node_id: int) -> None:
        self.world, self.node_id = world, node_id
        self.loop = world.loop
        self.host = f"node{node_id}"
        self.disk = SimDisk(f"{world.seed}:{node_id}")
        self.clock = SimClock(world.loop)
        self.life = 0
        self.lane = ""
        self.alive = False
        self.failures: list[BaseException] = []
        self.seen: list[tuple[ClusterImage | None, ClusterImage]] = []
        self.leadership: list[tuple[bool, int]] = []
        self._delays = random.Random(f"{world.seed}:{node_id}:delays")
        self._graves: list[Any] = []
        self.options: dict[str, Any] = {}
        self.timeouts: Timeouts | None = None
        self.cluster_id = CLUSTER_ID
        self.more_endpoints: tuple[tuple[str, str, int], ...] = ()
        self.directory_id = node_id.to_bytes(16, "big")

    @property
    def own(self) -> Voter:
        """This node as a voter that the log may name."""
        listener = ("CONTROLLER", self.host, PORT)
        return Voter(self.node_id, self.directory_id, (listener, *self.more_endpoints))

    def format(self, voters: Voters) -> None:
        """Begin a log that names these voters; none: a node that joins."""
        folder = "data/__cluster_metadata-0"
        files = self.disk.files()
        make_durable_folder(files, "data")
        make_durable_folder(files, folder)
        if voters:
            write_snapshot(files, folder, ClusterImage(cluster_id="", voters=voters), 0)
        write_quorum_state(files, folder, Election(), None)

    def draw_disk_delay(self) -> float:
        return self._delays.uniform(0.0005, 0.005)

    async def start(self) -> None:
        """A new life on what the disk holds."""
        assert not self.alive
        self.life += 1
        self.lane = f"{self.host}.{self.life}"
        self.alive = True
        await self.run(self._start())

    async def _start(self) -> None:
        door = self.world.network.door(self.host)
        rng = SimRng(f"{self.world.seed}:{self.node_id}:{self.life}")
        self.metadata = MetadataLog(
            MetadataLogSettings(
                voters=() if self.world.is_named else self.world.voters,
                own=self.own,
                files=self.disk.files(),
                executor=SimExecutor(self),  # type: ignore[arg-type]
                clock=self.clock,
                directory="data",
                node_id=self.node_id,
                cluster_id=self.cluster_id,
                on_failure=self.failures.append,
                **self.options,
            )
        )
        self.metadata.subscribe(lambda delta, new: self.seen.append((delta.old, new)))
        self.metadata.subscribe_leadership(lambda *what: self.leadership.append(what))
        self.metadata.open()

        def new_channel(host: str, port: int) -> PeerChannel:
            return PeerChannel(
                door, self.clock, (host, port), client_id=f"quorum-{self.node_id}", rng=rng
            )

        servers = self.world.addresses
        addresses = (
            Addresses(self.metadata, "CONTROLLER", list(servers.values()))
            if self.world.is_named
            else Addresses(self.metadata, "CONTROLLER", [], servers)
        )
        self.quorum = Quorum(
            self.metadata,
            ControllerChannels(addresses, new_channel),
            node_id=self.node_id,
            clock=self.clock,
            rng=rng,
            timeouts=self.timeouts,
        )
        self.quorum.learn = addresses.learn
        self.changes = VoterChanges(self.quorum, "CONTROLLER", new_channel)
        connections = Connections(
            frame_bytes_max=1 << 24, idle_ms_max=600_000, connections_max=1000
        )
        await door.listen(self.host, PORT, connections.factory)
        self.quorum.start()
        handlers = {
            **QuorumApi(self.quorum, self._address_of).handlers(),
            **DescribeQuorumApi(lambda: view_of(self.quorum), list).handlers(),
        }
        voters_api = RaftVotersApi(self.quorum, self.changes, list)
        handlers |= {**voters_api.handlers(), **voters_api.of_voters()}
        handlers |= VersionsApi(
            served=handlers,
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            image=lambda: self.metadata.image,
        ).handlers()
        self.dispatcher = Dispatcher(handlers)
        connections.open(self.dispatcher)

    def _address_of(self, node_id: int) -> tuple[str, int] | None:
        """Where the others reach a controller, by the log, else by the settings."""
        voter = self.metadata.voter(node_id)
        if voter is not None:
            return voter.address("CONTROLLER")
        return None if self.world.is_named else self.world.addresses.get(node_id)

    async def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run something as this life of the node."""
        token = LANE.set(self.lane)
        try:
            task = self.loop.create_task(coroutine)
        finally:
            LANE.reset(token)
        return await task

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start something as this life of the node."""
        token = LANE.set(self.lane)
        try:
            return self.loop.create_task(coroutine)
        finally:
            LANE.reset(token)

    async def stop(self) -> None:
        """An orderly end."""
        await self.run(self._stop())
        self._end()
        self.disk.kill()

    async def _stop(self) -> None:
        await self.quorum.stop()
        await self.metadata.close()

    def kill(self, *, power: bool = False) -> None:
        """The process dies, or the machine."""
        self._graves.append((self.metadata, self.quorum, list(asyncio.all_tasks(self.loop))))
        self._end()
        if power:
            self.disk.power_failure()
        else:
            self.disk.kill()

    def _end(self) -> None:
        self.alive = False
        self.loop.close_lane(self.lane)
        self.world.network.drop_host(self.host)

    @property
    def settings(self) -> dict[str, str]:
        """What the image shows of `setting` records."""
        return settings_in(self.metadata.image)

    async def commit(self, *names: str) -> None:
        """Commit settings as one operation."""
        await self.run(self.metadata.commit([setting(name) for name in names]))


class QuorumWorld:
    """All nodes of a run."""

    def __init__(
        self,
        loop: SimLoop,
        seed: int | str = 0,
        voters: int = 3,
        observers: int = 0,
        *,
        is_named: bool = False,
    ) -> None:
        """`is_named`: the log names the voters, first those of static quorums."""
        self.loop, self.seed, self.is_named = loop, seed, is_named
        self.network = SimNetwork(loop, seed)
        self.voters = tuple(range(1, voters + 1))
        self.nodes = {n: QuorumNode(self, n) for n in range(1, voters + observers + 1)}
        if is_named:
            first = tuple(self.nodes[n].own for n in self.voters)
            for node in self.nodes.values():
                node.format(first if node.node_id in self.voters else ())

    async def start(self) -> None:
        for node in self.nodes.values():
            await node.start()

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """The addresses of the first voters, as settings give them."""
        return {voter: (f"node{voter}", PORT) for voter in self.voters}

    @property
    def live(self) -> list[QuorumNode]:
        return [node for node in self.nodes.values() if node.alive]

    def leader(self) -> QuorumNode | None:
        """The live active controller of the newest epoch."""
        leaders = [node for node in self.live if node.metadata.is_leader]
        return max(leaders, key=lambda node: node.metadata.leader_epoch, default=None)

    async def until(self, what: Callable[[], Any], seconds: float = 20.0) -> Any:
        """Wait until something holds."""
        end = self.loop.time() + seconds
        while not (value := what()):
            assert self.loop.time() < end, f"not within {seconds} s"
            await asyncio.sleep(0.005)
        return value

    async def elected(self, seconds: float = 20.0) -> QuorumNode:
        """The leader, once there is one."""
        node = await self.until(self.leader, seconds)
        assert isinstance(node, QuorumNode)
        return node

    def is_settled(self) -> bool:
        """Whether all live nodes show what the leader has."""
        leader = self.leader()
        return leader is not None and all(
            node.metadata.image.offset + 1 == leader.metadata.next_offset
            and node.metadata.leader_id == leader.node_id
            for node in self.live
        )


def simulate(
    story: Callable[[QuorumWorld], Coroutine[Any, Any, Any]],
    seed: int | str = 0,
    voters: int = 3,
    observers: int = 0,
    *,
    is_named: bool = False,
) -> str:
    """Run a story in a world of its own; the trace."""
    loop = SimLoop(seed)
    world = QuorumWorld(loop, seed, voters, observers, is_named=is_named)
    try:
        loop.run_until_complete(story(world))
        trace = loop.trace
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        bury(loop)
    for node in world.nodes.values():
        assert node.failures == [], node.failures
    assert loop.failures == []
    return trace


def bury(loop: SimLoop) -> None:
    """End what is left in silence, as `Machine.bury` does."""
    for task in asyncio.all_tasks(loop):
        coroutine = task.get_coro()
        with contextlib.suppress(BaseException):
            for value in list(inspect.getcoroutinelocals(coroutine).values()):
                if inspect.iscoroutine(value):
                    value.close()
        with contextlib.suppress(BaseException):
            coroutine.close()  # type: ignore[union-attr]
