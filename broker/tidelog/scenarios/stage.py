"""A cluster for plays: real brokers in this event loop, and who says what happens to them.

Actors have letters: they are brokers, and no more, that hold the replicas of the one partition. Two
more brokers, which nothing happens to, are the voters of the metadata quorum and hold the remote
tier's metadata topic: elections, fences and in-sync replicas are the real controller's. All data is
in a temporary folder; nothing of it is forced to disk.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from tidelog.doors.cluster_settings import node_properties, temporary_data_dir
from tidelog.doors.nodes import LocalNode, until_whole
from tidelog.doors.ports import Ports
from tidelog.doors.tiered import tiered_settings, with_tier
from tidelog.foundation import new_cluster_id
from tidelog.metadata.image import REMOTE_LOG_METADATA_TOPIC
from tidelog.peers import PeerChannel
from tidelog.runtime import system_runtime
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_storage.remote.api import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidelog.doors.nodes import Node
    from tidelog.metadata.image import ClusterImage, PartitionImage
    from tidelog.remote.tasks import TieredPartition
    from tidelog.remote.tier import RemoteTier
    from tidelog.replication.partition import Partition
    from tidelog.server import BrokerServer
    from tidelog_protocol.schema import Message

__all__ = ["TOPIC", "VOTERS", "PlayError", "Stage"]

TOPIC = "play"
VOTERS = {"X": 8, "Y": 9}
WAIT_S_MAX = 60.0
LOOK_AGAIN_S = 0.01
HOST = "127.0.0.1"
# Whoever dies is missed soon; nothing else happens by itself while people read.
SETTINGS = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3600000",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "86400000",
    "log.cleaner.enable": "false",
}
TIER_SETTINGS = {
    "remote.log.storage.manager.class.name": "tidelog.scenarios.store.TracedStore",
    "remote.log.manager.task.interval.ms": "86400000",
    "remote.fetch.max.wait.ms": "30000",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
}


class PlayError(Exception):
    """The cluster does not do what the scenario says; the text says what."""


class Stage:
    """The brokers of one play, used by `async with`.

    Invariant: the voters run as long as it is open.
    """

    def __init__(
        self, letters: Iterable[str], new_fetcher: Callable[..., Any], *, tiered: bool
    ) -> None:
        """`new_fetcher` makes the actors' fetchers."""
        self.ids = {**{name: n for n, name in enumerate(sorted(letters), 1)}, **VOTERS}
        self.letters = {node_id: name for name, node_id in self.ids.items()}
        self.is_tiered = tiered
        self.topic_id = b""
        self._new_fetcher = new_fetcher
        self._runtime = system_runtime(durable=False)
        self.folder = temporary_data_dir(self._runtime.rng)
        self.files = self._runtime.files
        self.nodes: dict[str, LocalNode] = {}
        self._ports = Ports()
        self._channels: dict[str, PeerChannel] = {}

    async def __aenter__(self) -> Self:
        try:
            await self._build()
            await self._start_all()
            await until_whole(list(self.nodes.values()))
            if self.is_tiered:
                await self._create_metadata_topic()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._end()

    async def _start_all(self) -> None:
        """All at once: none is ready before most are."""
        tasks = [asyncio.ensure_future(node.start()) for node in self.nodes.values()]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _build(self) -> None:
        ports = await self._ports.take(self._runtime, HOST, len(self.ids) + len(VOTERS))
        voters = {node_id: f"{HOST}:{ports.pop()}" for node_id in VOTERS.values()}
        settings = dict(SETTINGS)
        if self.is_tiered:
            settings |= tiered_settings(True) | TIER_SETTINGS
            settings["rsm.config.dir"] = self.store_folder
        cluster_id = new_cluster_id(self._runtime.rng.uuid)
        for name, node_id in self.ids.items():
            properties = node_properties(
                settings,
                node_id=node_id,
                voters=voters,
                host=HOST,
                port=ports.pop(),
                data_dir=self.data_folder(name),
            )
            self.nodes[name] = LocalNode(
                with_tier(properties, self.folder, len(VOTERS)),
                runtime=None,
                new_fetcher=None if name in VOTERS else self._new_fetcher,
                cluster_id=cluster_id,
                durable=False,
                on_start=self._started,
                on_end=lambda: None,
            )

    async def _started(self, node: Node[Any]) -> None:
        """Each is waited for by who started it."""

    async def _end(self) -> None:
        for channel in self._channels.values():
            channel.close()
        try:
            await asyncio.gather(*(node.kill() for node in self.nodes.values()))
        finally:
            self._ports.release()
            self.files.remove_tree(self.folder)

    # -- what happens ------------------------------------------------------------------------------

    async def start(self, name: str, *, wipe: bool = False) -> None:
        """Begin a life, on an empty disk if `wipe`, until all know of it and its replica is
        there."""
        if wipe:
            self.files.remove_tree(self.data_folder(name))
        node = self.nodes[name]
        await node.start()
        await until_whole([node, *self.nodes.values()])
        await self.until(lambda: self.has_replica(name), f"{name} has its replica")

    async def stop(self, name: str) -> None:
        """An orderly stop."""
        self._hang_up(name)
        await self.nodes[name].stop()

    async def kill(self, name: str) -> None:
        """It is gone from one moment to the next; what it wrote is in its files."""
        self._hang_up(name)
        await self.nodes[name].kill()

    def _hang_up(self, name: str) -> None:
        channel = self._channels.pop(name, None)
        if channel is not None:
            channel.close()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something; PlayError after a minute."""
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                while not condition():  # noqa: ASYNC110 - brokers tell nobody what they do
                    await asyncio.sleep(LOOK_AGAIN_S)
        except TimeoutError:
            raise PlayError(f"after {WAIT_S_MAX:g} s still not: {what}") from None

    # -- clients -----------------------------------------------------------------------------------

    async def ask(self, name: str, message: Message) -> Any:
        """One request to one broker, and its answer. PeerError if there is none."""
        channel = self._channels.get(name)
        if channel is None:
            host, _, port = self.nodes[name].bootstrap_server.rpartition(":")
            channel = self._channels[name] = PeerChannel(
                self._runtime.network,
                self._runtime.clock,
                asyncio.get_running_loop(),
                host,
                int(port),
                client_id="scenario",
            )
        return await channel.ask(message)

    async def create_topic(
        self, name: str, replicas: Iterable[str], configs: Mapping[str, object]
    ) -> None:
        """A topic of one partition, on these brokers in this order."""
        creatable = CreateTopicsRequest.CreatableTopic
        topic = creatable(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                creatable.CreatableReplicaAssignment(
                    partition_index=0, broker_ids=[self.ids[letter] for letter in replicas]
                )
            ],
            configs=[
                creatable.CreatableTopicConfig(name=key, value=str(value).lower())
                for key, value in configs.items()
            ],
        )
        response = await self.ask("X", CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        (result,) = response.topics
        if result.error_code != ErrorCode.NONE:
            raise PlayError(f"topic {name}: {result.error_message}")

    async def _create_metadata_topic(self) -> None:
        """Where no actor's end can take it away."""
        await self.create_topic(
            REMOTE_LOG_METADATA_TOPIC,
            VOTERS,
            {"cleanup.policy": "delete", "retention.ms": -1, "min.insync.replicas": 1},
        )

    async def create_play(self, replicas: str, configs: Mapping[str, object]) -> None:
        """The topic of the play, until all its replicas are there and the first leads."""
        await self.create_topic(TOPIC, replicas, configs)
        await self.until(lambda: all(map(self.has_replica, replicas)), "all replicas are there")
        self.topic_id = self.image.topics[TOPIC].topic_id
        await self.until(lambda: self.leads(replicas[0]), f"{replicas[0]} leads")

    async def commit(self, record: Message) -> None:
        """Write a decision into the metadata log that the controller has not taken by itself."""
        for name in VOTERS:
            metadata = self.nodes[name].server.metadata
            if getattr(metadata, "is_leader", False):
                await metadata.commit([record])
                return
        raise PlayError("no controller is active")

    # -- looking -----------------------------------------------------------------------------------

    def is_running(self, name: str) -> bool:
        """Whether a broker has a life."""
        return self.nodes[name].is_running

    def server(self, name: str) -> BrokerServer:
        """The broker itself."""
        return self.nodes[name].server

    def has_replica(self, name: str) -> bool:
        """Whether a broker runs and has its replica open."""
        if not self.is_running(name):
            return False
        return not isinstance(self.server(name).replicas.partition(TOPIC, 0), ErrorCode)

    def partition(self, name: str) -> Partition:
        """The replica of a broker that runs."""
        partition = self.server(name).replicas.partition(TOPIC, 0)
        if isinstance(partition, ErrorCode):
            raise PlayError(f"the replica of {name}: {partition.name}")
        return partition

    def tier(self, name: str) -> RemoteTier:
        """The remote tier of a broker that runs."""
        tier = self.server(name).tier
        assert tier is not None, "not a tiered play"
        return tier

    def tiered(self, name: str) -> TieredPartition:
        """The partition's tasks on a broker that runs."""
        return self.tier(name).partitions[TOPIC, 0]

    @property
    def remote_partition(self) -> TopicIdPartition:
        """The partition as the remote tier names it."""
        return TopicIdPartition(self.topic_id, TOPIC, 0)

    @property
    def store_folder(self) -> str:
        """The directory of the remote store."""
        return f"{self.folder}/remote-tier"

    def data_folder(self, name: str) -> str:
        """The log directory of a broker."""
        return f"{self.folder}/{name}"

    def log_folder(self, name: str) -> str:
        """The partition's folder on a broker's disk."""
        return f"{self.data_folder(name)}/{TOPIC}-0"

    @property
    def image(self) -> ClusterImage:
        """The metadata as the first voter has it."""
        return self.server("X").metadata.image

    @property
    def decided(self) -> PartitionImage:
        """The partition as the controller decided."""
        partition = self.image.partition(TOPIC, 0)
        assert partition is not None
        return partition

    def is_fenced(self, name: str) -> bool:
        """Whether the controller counts on a broker no more."""
        return not self.image.is_alive(self.ids[name])

    @property
    def in_sync(self) -> list[str]:
        """The in-sync replicas, by the controller, in alphabetical order."""
        return sorted(self.letters[node_id] for node_id in self.decided.isr)

    def leads(self, name: str) -> bool:
        """Whether a broker leads, by the controller and by itself."""
        return (
            self.decided.leader == self.ids[name]
            and self.has_replica(name)
            and self.partition(name).is_leader
            and self.partition(name).leader_epoch == self.decided.leader_epoch
        )
