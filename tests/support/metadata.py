"""Metadata for tests: images made by hand, a metadata log on the simulated disk, counted chance."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidelog.cluster.auto_topics import AutoTopics
from tidelog.cluster.controller.controller import Controller
from tidelog.cluster.controller.decisions import Decision
from tidelog.cluster.controller.topics import Creation
from tidelog.cluster.metadata.features import supported_levels
from tidelog.cluster.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidelog.cluster.metadata.log import MetadataLog
from tidelog.cluster.metadata.settings import MetadataLogSettings
from tidelog.cluster.quorum.driver import Quorum
from tidelog.config.broker import DEVELOPER_PROFILE, BrokerConfig
from tidelog.simulation.disk import SimDisk
from tidelog_protocol.messages.controller import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidelog_protocol.schema import Message
    from tidelog_storage.seams import FileSystem

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
NODE_ID = 1
NOW_MS = 1_795_247_400_000
DIRECTORY_ID = b"directory-of-one"


def broker_config(**settings: str) -> BrokerConfig:
    """A developer's broker with these settings, dots as underscores."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig.from_properties({**DEVELOPER_PROFILE, **given})


class CountedRng:
    """Chance that counts: uuids are 1, 2, …; uniform is always the low end."""

    def __init__(self) -> None:
        self.uuids = 0

    def bytes(self, length: int) -> bytes:
        return bytes(length)

    def uniform(self, low: float, high: float) -> float:
        assert low <= high
        return low

    def uuid(self) -> bytes:
        self.uuids += 1
        return self.uuids.to_bytes(16, "big")


class FixedClock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.wall = NOW_MS

    def wall_ms(self) -> int:
        return self.wall

    def monotonic(self) -> float:
        return self.wall / 1000


class StepExecutor:
    """Runs what it is given when told to: `hold` keeps work back until `release`."""

    def __init__(self) -> None:
        self.runs = 0
        self.error: BaseException | None = None
        self._gate: asyncio.Event | None = None

    def hold(self) -> None:
        self._gate = asyncio.Event()

    def release(self) -> None:
        assert self._gate is not None
        self._gate.set()
        self._gate = None

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._gate is not None:
            await self._gate.wait()
        else:
            await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.runs += 1
        return function(*args, **kwargs)

    def close(self) -> None:
        pass


def topic(
    name: str, number: int, partitions: int = 1, replicas: tuple[int, ...] = (NODE_ID,)
) -> TopicImage:
    """A topic with the id `number`, led by the first replica."""
    return TopicImage(
        name,
        number.to_bytes(16, "big"),
        tuple(
            PartitionImage(
                partition=index,
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                replicas=replicas,
                isr=replicas,
                directories=(DIRECTORY_ID,) * len(replicas),
            )
            for index in range(partitions)
        ),
        is_internal=name.startswith("__"),
    )


def names_by_id(topics: Mapping[str, TopicImage]) -> dict[bytes, str]:
    """The `topic_names` of an image with these topics."""
    return {topic.topic_id: topic.name for topic in topics.values()}


def cluster(
    *topics: TopicImage,
    brokers: Sequence[BrokerImage] = (),
    topic_configs: Mapping[str, Mapping[str, str]] | None = None,
    broker_configs: Mapping[str, Mapping[str, str]] | None = None,
) -> ClusterImage:
    """An image of one broker, unless others are given."""
    mine = BrokerImage(NODE_ID, "127.0.0.1", 9092, epoch=4, log_dirs=(DIRECTORY_ID,))
    return ClusterImage(
        cluster_id=CLUSTER_ID,
        controller_id=NODE_ID,
        brokers={broker.node_id: broker for broker in brokers or (mine,)},
        topics={topic.name: topic for topic in topics},
        topic_names={topic.topic_id: topic.name for topic in topics},
        topic_configs=topic_configs or {},
        broker_configs=broker_configs or {},
    )


def decide_creation(
    image: ClusterImage, request: Any, config: BrokerConfig, charge: Any = None
) -> Decision[Any]:
    """What a controller with this image writes and answers to a CreateTopics."""
    creation = Creation(request, config, CountedRng(), charge)
    records, results = creation.step(image, len(request.topics))
    results += creation.refusals()
    return Decision([] if request.validate_only else records, results)


def only_voter(
    files: FileSystem,
    executor: StepExecutor,
    clock: FixedClock,
    *,
    node_id: int = 1,
    **settings: Any,
) -> tuple[MetadataLog, Quorum]:
    """The open metadata log of a quorum of one."""
    log = MetadataLog(
        MetadataLogSettings(
            files=files,
            executor=executor,
            clock=clock,
            directory="data",
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            voters=(node_id,),
            **settings,
        )
    )
    quorum = Quorum(log, {}, node_id=node_id, clock=clock, rng=CountedRng())
    log.open()
    quorum.start()
    return log, quorum


class Metadata:
    """A metadata log and its controller over a disk that may be crashed and opened again."""

    def __init__(self, disk: SimDisk | None = None, **settings: str) -> None:
        self.disk = disk or SimDisk(0)
        self.config = broker_config(**settings)
        self.executor = StepExecutor()
        self.clock = FixedClock()
        self.rng = CountedRng()
        self.failures: list[BaseException] = []
        self.seen: list[tuple[ClusterImage | None, ClusterImage]] = []
        self.start()

    def start(self, files: FileSystem | None = None) -> None:
        """A new life on the same disk."""
        self.log, self.quorum = only_voter(
            files or self.disk.files(),
            self.executor,
            self.clock,
            node_id=NODE_ID,
            on_failure=self.failures.append,
        )
        self.log.subscribe(lambda delta, new: self.seen.append((delta.old, new)))
        self.controller = Controller(
            self.log, self.config, self.rng, self.clock, self.clock.monotonic
        )
        self.auto_topics = AutoTopics(self.controller.create_topics, self.config)

    async def register(self) -> int:
        """Register the broker, as the server does once it listens."""
        return await self.register_at("127.0.0.1", 9092, DIRECTORY_ID)

    async def register_at(self, host: str, port: int, directory_id: bytes) -> int:
        """Register a new life of the broker and let it lead, as its life cycle does."""
        registration = BrokerRegistrationRequest(
            broker_id=NODE_ID,
            cluster_id=CLUSTER_ID,
            incarnation_id=self.rng.uuid(),
            listeners=[
                BrokerRegistrationRequest.Listener(
                    name="PLAINTEXT", host=host, port=port, security_protocol=0
                )
            ],
            features=[
                BrokerRegistrationRequest.Feature(
                    name=name, min_supported_version=low, max_supported_version=high
                )
                for name, (low, high) in supported_levels().items()
            ],
            log_dirs=[directory_id],
        )
        epoch = (await self.controller.register_broker(registration)).broker_epoch
        self.log.start_publishing(epoch)
        heartbeat = BrokerHeartbeatRequest(
            broker_id=NODE_ID, broker_epoch=epoch, current_metadata_offset=self.log.image.offset
        )
        await self.controller.heartbeat(heartbeat)
        return epoch

    async def close(self) -> None:
        """An orderly end."""
        await self.quorum.stop()
        await self.log.close()


def names_of(records: Sequence[Message]) -> list[str]:
    """Record types, to compare orders."""
    return [type(record).__name__ for record in records]
