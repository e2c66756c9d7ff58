"""A cluster for plays: real brokers, and the verbs of a play.

Actors, named by letters, hold the replicas of the one partition and have no other role. Two more
brokers never stop. They are the voters of the metadata quorum and, except in plays of deleted
topics, hold the remote tier's metadata topic. Elections, fencing and in-sync replicas are the real
controller's.

This module does not depend on the place of the brokers. The voters run in this event loop. Actors
may run in other processes, so a play reaches them through `inside`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from tidelog.cluster.metadata.image import REMOTE_LOG_METADATA_TOPIC
from tidelog.network.peers import PeerChannel
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
)
from tidelog_scenarios.vocabulary import TOPIC, VOTERS, PlayError
from tidelog_storage.checkpoints import read_meta_properties, write_meta_properties
from tidelog_storage.remote.api import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from tidelog.cluster.metadata.image import ClusterImage, PartitionImage
    from tidelog.seams import Clock, Network
    from tidelog.server import BrokerServer
    from tidelog_protocol.schema import Message
    from tidelog_scenarios.inside import Inside
    from tidelog_storage.seams import FileSystem

__all__ = ["Stage"]

WAIT_S_MAX = 120.0
LOOK_AGAIN_S = 0.01


class Stage(ABC):
    """The brokers of one play, used by `async with`.

    Invariant: the voters run as long as it is open.
    """

    def __init__(
        self,
        letters: Iterable[str],
        clock: Clock,
        network: Network,
        *,
        tiered: bool,
        metadata_on: Iterable[str] = VOTERS,
    ) -> None:
        """`network` connects clients to the brokers. `metadata_on` names the replicas of the remote
        tier's metadata topic, the leader first."""
        self.ids = {**{name: n for n, name in enumerate(sorted(letters), 1)}, **VOTERS}
        self.letters = {node_id: name for name, node_id in self.ids.items()}
        self.clock = clock
        self.is_tiered = tiered
        self.metadata_on = tuple(metadata_on)
        self.topic_id = b""
        self._last: PartitionImage | None = None
        self._network = network
        self._channels: dict[str, PeerChannel] = {}

    async def __aenter__(self) -> Self:
        try:
            await self._open()
            if self.is_tiered:
                await self._move_metadata_topic()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        for channel in self._channels.values():
            channel.close()
        await self._close()

    # -- the place of the brokers ------------------------------------------------------------------

    @abstractmethod
    async def _open(self) -> None:
        """Start all brokers, until they know each other; PlayError or StartError."""

    @abstractmethod
    async def _close(self) -> None:
        """Stop all brokers and remove their data."""

    @abstractmethod
    async def _start(self, name: str) -> None:
        """Start a broker, until all others know of it."""

    @abstractmethod
    async def _stop(self, name: str) -> None:
        """Stop a broker in order."""

    @abstractmethod
    async def _crash(self, name: str) -> None:
        """Kill a broker; its files keep what it wrote."""

    @abstractmethod
    def is_running(self, name: str) -> bool:
        """Return whether a broker runs."""

    @abstractmethod
    def inside(self, name: str) -> Inside:
        """Return the inside of a running broker."""

    @abstractmethod
    def voter(self, name: str) -> BrokerServer:
        """Return one of the two voters."""

    @abstractmethod
    def address(self, name: str) -> tuple[str, int]:
        """Return the host and port of a running broker."""

    @abstractmethod
    def files_of(self, name: str) -> FileSystem:
        """Return the file system of a broker, running or not."""

    @abstractmethod
    def data_folder(self, name: str) -> str:
        """Return the log directory of a broker."""

    @property
    @abstractmethod
    def store_folder(self) -> str:
        """Return the directory of the remote store."""

    @property
    @abstractmethod
    def store_files(self) -> FileSystem:
        """Return the file system of the remote store."""

    # -- lives and ends ----------------------------------------------------------------------------

    async def start(self, name: str, *, wipe: bool = False) -> None:
        """Start a broker, with an empty disk if `wipe`; return once its replica is there."""
        if wipe:
            self._wipe(name)
        await self._start(name)
        await self.until(partial(self.has_replica, name), f"{name} has its replica")

    def _wipe(self, name: str) -> None:
        """Give a broker an empty disk, formatted for the same node."""
        files, folder = self.files_of(name), self.data_folder(name)
        owner = read_meta_properties(files, folder)
        assert owner is not None
        files.remove_tree(folder)
        files.make_dirs(folder)
        directory_id = sha256(owner.directory_id).digest()[:16]
        write_meta_properties(files, folder, owner._replace(directory_id=directory_id))

    async def stop(self, name: str) -> None:
        """Stop a broker in order."""
        self._hang_up(name)
        await self._stop(name)

    async def crash(self, name: str) -> None:
        """Kill a broker."""
        self._hang_up(name)
        await self._crash(name)

    def _hang_up(self, name: str) -> None:
        channel = self._channels.pop(name, None)
        if channel is not None:
            channel.close()

    async def until(
        self, condition: Callable[[], bool] | Callable[[], Awaitable[bool]], what: str
    ) -> None:
        """Wait for a condition; PlayError after two minutes."""
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                while True:
                    met = condition()
                    if not isinstance(met, bool):
                        met = await met
                    if met:
                        return
                    await asyncio.sleep(LOOK_AGAIN_S)  # nothing announces it
        except TimeoutError:
            raise PlayError(f"timed out after {WAIT_S_MAX:g} s: {what}") from None

    # -- clients -----------------------------------------------------------------------------------

    async def ask(self, name: str, message: Message) -> Any:
        """Send one request to one broker and return its answer; PeerError without one."""
        channel = self._channels.get(name)
        if channel is None:
            channel = self._channels[name] = PeerChannel(
                self._network, self.clock, self.address(name), client_id="scenario"
            )
        return await channel.ask(message)

    async def create_topic(
        self, name: str, replicas: Iterable[str], configs: Mapping[str, object]
    ) -> None:
        """Create a topic of one partition, with these replicas in this order."""
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

    async def _move_metadata_topic(self) -> None:
        """Move the metadata topic, which the brokers created at their start, to `metadata_on`."""
        topic = REMOTE_LOG_METADATA_TOPIC
        replicas = tuple(self.ids[name] for name in self.metadata_on)
        await self.until(lambda: topic in self.image.topics, f"{topic} is made")
        moved = AlterPartitionReassignmentsRequest.ReassignableTopic(
            name=topic,
            partitions=[
                AlterPartitionReassignmentsRequest.ReassignablePartition(
                    partition_index=0, replicas=list(replicas)
                )
            ],
        )
        response = await self.ask("X", AlterPartitionReassignmentsRequest(topics=[moved]))
        (result,) = response.responses[0].partitions
        if result.error_code != ErrorCode.NONE:
            raise PlayError(f"{topic} does not move: {result.error_message}")
        await self.until(partial(self._is_moved, replicas), f"{topic} has moved")
        elected = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[0])
        await self.ask("X", ElectLeadersRequest(topic_partitions=[elected], timeout_ms=30_000))
        await self.until(partial(self._is_moved, replicas, led=True), f"the first leads {topic}")

    def _is_moved(self, replicas: tuple[int, ...], *, led: bool = False) -> bool:
        found = self.image.partition(REMOTE_LOG_METADATA_TOPIC, 0)
        assert found is not None
        is_there = found.replicas == replicas and set(found.isr) == set(replicas)
        return is_there and (not led or found.leader == replicas[0])

    async def create_play(self, replicas: str, configs: Mapping[str, object]) -> None:
        """Create the topic of the play; return once all replicas are there and the first leads."""
        await self.create_topic(TOPIC, replicas, configs)
        for name in replicas:
            await self.until(partial(self.has_replica, name), f"{name} has its replica")
        self.topic_id = self.image.topics[TOPIC].topic_id
        await self.until(partial(self.leads, replicas[0]), f"{replicas[0]} leads")

    async def commit(self, record: Message) -> None:
        """Write a record into the metadata log that the controller did not decide."""
        for name in VOTERS:
            metadata = self.voter(name).metadata
            if metadata.is_leader:
                await metadata.commit([record])
                return
        raise PlayError("no controller is active")

    # -- looking -----------------------------------------------------------------------------------

    async def has_replica(self, name: str) -> bool:
        """Return whether a broker runs and has its replica open."""
        return self.is_running(name) and await self.inside(name).has_replica()

    async def lacks_replica(self, name: str) -> bool:
        """Return whether a broker does not run, or has no replica."""
        return not await self.has_replica(name)

    async def leads(self, name: str) -> bool:
        """Return whether a broker leads, for the controller and for itself."""
        decided = self.decided
        return (
            decided.leader == self.ids[name]
            and self.is_running(name)
            and await self.inside(name).leads_in() == decided.leader_epoch
        )

    @property
    def remote_partition(self) -> TopicIdPartition:
        """Return the partition as the remote tier names it."""
        return TopicIdPartition(UUID(bytes=self.topic_id), TOPIC, 0)

    def log_folder(self, name: str) -> str:
        """Return the partition's folder on a broker's disk."""
        return f"{self.data_folder(name)}/{TOPIC}-0"

    @property
    def image(self) -> ClusterImage:
        """Return the metadata image of the first voter."""
        return self.voter("X").metadata.image

    @property
    def decided(self) -> PartitionImage:
        """Return the partition in the image; its last state once the topic is deleted."""
        found = self.image.partition(TOPIC, 0)
        if found is not None:
            self._last = found
        assert self._last is not None
        return self._last

    @property
    def is_deleted(self) -> bool:
        """Return whether the topic is deleted."""
        return self._last is not None and self.image.partition(TOPIC, 0) is None

    def is_fenced(self, name: str) -> bool:
        """Return whether the controller has fenced a broker."""
        return not self.image.is_alive(self.ids[name])

    @property
    def in_sync(self) -> list[str]:
        """Return the in-sync replicas in the image, sorted."""
        return sorted(self.letters[node_id] for node_id in self.decided.isr)
