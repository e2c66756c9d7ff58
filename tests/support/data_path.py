"""A broker's data path without sockets: real logs, replica manager and handlers over a folder.

path = DataPath(tmp_path)
path.create("foo", partitions=2)
response = path.produce("foo", 0, batch(3))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.handler_calls import RecordingPeer
from support.metadata import names_by_id
from tidelog.api.fetch import FetchApi
from tidelog.api.log_dirs import LogDirsApi
from tidelog.api.offsets import OffsetsApi
from tidelog.api.produce import ProduceApi
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidelog.config.broker import BrokerConfig
from tidelog.coordinators.transactions.transactions import Transactions
from tidelog.metrics.meters import DataPathCounts, Meters
from tidelog.network.dispatch import Deferred, Handler, RequestContext
from tidelog.replication.partition import Partition
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.replication.topic_configs import topic_configs
from tidelog.runtime import ThreadExecutor
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchRequest, FetchResponse, ProduceRequest
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.config import LogConfig
from tidelog_storage.manager import LogManager
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


NODE_ID = 1
NOW_MS = 1_700_000_000_000


class ManualClock:
    """Both clocks, moved by the test."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000


class ManualTimer:
    def __init__(self, when: float, callback: Any, args: tuple[Any, ...]) -> None:
        self.when = when
        self.run = lambda: callback(*args)
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualTimers:
    """A loop's timers, run by `advance`."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.pending: list[ManualTimer] = []

    def time(self) -> float:
        return self.clock.monotonic()

    def elapsed_ms(self, since_ms: int, now_ms: int) -> int:
        return now_ms - since_ms

    def call_at(self, when: float, callback: Any, *args: Any) -> ManualTimer:
        timer = ManualTimer(when, callback, args)
        self.pending.append(timer)
        return timer

    def advance_ms(self, milliseconds: int) -> None:
        end = self.clock.now_ms + milliseconds
        while True:
            due = [t for t in self.pending if not t.cancelled and t.when * 1000 <= end + 1e-6]
            if not due:
                break
            timer = min(due, key=lambda timer: timer.when)
            self.pending.remove(timer)
            self.clock.now_ms = max(self.clock.now_ms, round(timer.when * 1000))
            timer.run()
        self.clock.now_ms = end


class CountingRng:
    def __init__(self) -> None:
        self.drawn = 0

    def bytes(self, length: int) -> bytes:
        self.drawn += 1
        return self.drawn.to_bytes(length, "big")

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2

    def uuid(self) -> bytes:
        return self.bytes(16)


def batch(
    count: int = 1, value: bytes = b"value", *, timestamp: int = NOW_MS, **options: Any
) -> memoryview:
    """A batch as a producer sends it, in a buffer that may be written to."""
    records = [
        Record(index, timestamp + index, b"key-%d" % index, value + b"-%d" % index)
        for index in range(count)
    ]
    return memoryview(bytearray(build_batch(records, **options)))


def topic_id(name: str, incarnation: int = 0) -> bytes:
    """Ids that tests can foretell."""
    return name.encode()[:15].rjust(15, b"\1") + bytes((incarnation,))


def _decoded(context: RequestContext, response: Any) -> Any:
    """The message, where a handler has given it as it goes out."""
    if isinstance(response, list):
        codec = API[context.api_key].response_codec(context.api_version)
        return codec.decode(b"".join(response))
    return response


async def no_producer_ids() -> range:
    """There is no controller."""
    raise StorageError(ErrorCode.NOT_CONTROLLER)


async def no_offsets(_index: int, _marker: memoryview) -> ErrorCode:
    """There is no group coordinator."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


class DataPath:
    """One broker's partitions and the handlers over them."""

    def __init__(
        self,
        folder: Path,
        *,
        apply_first: bool = True,
        node_id: int = NODE_ID,
        clock: ManualClock | None = None,
        syncs: bool = True,
        log_dirs: Sequence[str] = (),
        meters: Meters | None = None,
        **properties: str,
    ) -> None:
        self.node_id = node_id
        self.clock = clock or ManualClock()
        self.timers = ManualTimers(self.clock)
        self.config = BrokerConfig.from_properties(
            {"node.id": str(node_id)}
            | {name.replace("_", "."): value for name, value in properties.items()}
        )
        self.logs = LogManager(
            OsFileSystem(syncs=syncs),
            list(log_dirs) or [str(folder)],
            LogConfig.from_broker({}),
            remote_storage_system_enable=self.config.remote_log_storage_system_enable,
        )
        self.logs.open(
            now_ms=NOW_MS,
            cluster_id="test-cluster-id-000000",
            node_id=node_id,
            new_directory_id=CountingRng().uuid,
        )
        self.replicas = ReplicaManager(
            node_id,
            self.clock,
            self.timers,
            self.logs,
            topic_configs({}, node_id),
        )
        if meters is not None:
            self.replicas.counts = DataPathCounts(meters)
        self.image = ClusterImage(
            cluster_id="test", brokers={node_id: BrokerImage(node_id, "127.0.0.1", 9092)}
        )
        if apply_first:
            self.replicas.apply(MetadataDelta(None, self.image), self.image)
        self.transactions = Transactions(
            config=self.config,
            sessions=self.timers,  # type: ignore[arg-type]
            work=self.timers,  # type: ignore[arg-type]
            replica_manager=self.replicas,
            allocate_producer_ids=no_producer_ids,
            end_of_offsets=no_offsets,
        )
        self.produce_api = ProduceApi(self.replicas, self.transactions, ThreadExecutor())
        self.fetch_api = FetchApi(self.replicas, self.config, CountingRng())
        self.offsets_api = OffsetsApi(self.replicas)
        self.log_dirs_api = LogDirsApi(self.logs)
        self.handlers: dict[ApiKey, Handler] = {
            **self.produce_api.handlers(),
            **self.fetch_api.handlers(),
            **self.offsets_api.handlers(),
            **self.log_dirs_api.handlers(),
        }

    # -- the cluster's image -----------------------------------------------------------------------

    def apply(self, **changes: Any) -> None:
        """A new image, changed as told."""
        old = self.image
        if "topics" in changes:
            changes["topic_names"] = names_by_id(changes["topics"])
        self.image = old._replace(**changes)
        self.replicas.apply(MetadataDelta(old, self.image), self.image)

    def create(
        self,
        name: str,
        partitions: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        replicas: tuple[int, ...] = (NODE_ID,),
        isr: tuple[int, ...] = (NODE_ID,),
        incarnation: int = 0,
    ) -> bytes:
        """A topic led by this broker; its id."""
        identity = topic_id(name, incarnation)
        topic = TopicImage(
            name,
            identity,
            tuple(
                PartitionImage(index, NODE_ID, 0, 0, replicas, isr) for index in range(partitions)
            ),
        )
        self.apply(
            topics={**self.image.topics, name: topic},
            topic_configs={**self.image.topic_configs, name: dict(configs or {})},
        )
        return identity

    def delete(self, name: str) -> None:
        """Delete a topic."""
        self.apply(topics={n: topic for n, topic in self.image.topics.items() if n != name})

    def change(self, name: str, index: int = 0, **changes: Any) -> None:
        """Publish a changed partition with the next partition epoch."""
        topic = self.image.topics[name]
        state = topic.partitions[index]
        changes.setdefault("partition_epoch", state.partition_epoch + 1)
        states = list(topic.partitions)
        states[index] = state._replace(**changes)
        self.apply(topics={**self.image.topics, name: topic._replace(partitions=tuple(states))})

    def partition(self, name: str, index: int = 0) -> Partition:
        """A replica of this broker."""
        partition = self.replicas.partition(name, index)
        assert isinstance(partition, Partition), partition
        return partition

    # -- requests ----------------------------------------------------------------------------------

    def call(self, api_key: ApiKey, version: int, request: Any, **options: Any) -> Any:
        """The response, or None if there is none (yet); `self.context` is the request's."""
        self.context = RequestContext(
            RecordingPeer(), api_key, version, 1, options.get("client_id", "test")
        )
        response = self.handlers[api_key](self.context, request)
        if isinstance(response, Deferred):
            assert response is self.context.deferred
            return self.answer_of(self.context)
        return _decoded(self.context, response)

    @staticmethod
    def answer_of(context: RequestContext) -> Any:
        """What a parked request was answered, None so far."""
        peer = context.peer
        assert isinstance(peer, RecordingPeer)
        return _decoded(context, peer.responses[-1]) if peer.responses else None

    def produce(
        self,
        topic: str,
        index: int,
        records: memoryview | None,
        *,
        acks: int = -1,
        version: int = 12,
        **options: Any,
    ) -> Any:
        """Produce one batch; the partition's answer, or None if there is none (yet)."""
        data = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            acks=acks,
            timeout_ms=options.pop("timeout_ms", 1000),
            transactional_id=options.pop("transactional_id", None),
            topic_data=[
                data(
                    name=topic,
                    topic_id=options.pop("topic_id", bytes(16)),
                    partition_data=[data.PartitionProduceData(index=index, records=records)],
                )
            ],
        )
        response = self.call(ApiKey.PRODUCE, version, request, **options)
        return None if response is None else response.responses[0].partition_responses[0]

    def fetch(self, *partitions: Any, version: int = 12, **options: Any) -> FetchResponse | None:
        """Fetch; `partitions` are (topic, index, offset), with more fields in a dict behind."""
        request = fetch_request(*partitions, by_id=version >= 13, **options)
        response: FetchResponse | None = self.call(ApiKey.FETCH, version, request)
        return response


def fetch_request(*partitions: Any, by_id: bool = False, **options: Any) -> FetchRequest:
    """A Fetch request that does not wait, of as many topic entries as partitions."""
    topic = FetchRequest.FetchTopic
    topics = []
    for name, index, offset, *more in partitions:
        fields: dict[str, Any] = {"partition_max_bytes": 1 << 20, **(more[0] if more else {})}
        asked = topic.FetchPartition(partition=index, fetch_offset=offset, **fields)
        label = {"topic_id": name} if by_id else {"topic": name}
        topics.append(topic(partitions=[asked], **label))
    options.setdefault("max_wait_ms", 0)
    options.setdefault("min_bytes", 1)
    options.setdefault("max_bytes", 1 << 26)
    return FetchRequest(topics=topics, **options)


def data_of(response: FetchResponse, index: int = 0) -> Any:
    """The n-th partition's data of an answer, over all topics."""
    return [data for topic in response.responses for data in topic.partitions][index]


def bytes_of(data: Any) -> bytes:
    """The records of a partition's data."""
    records = data.records
    return b"".join(records) if isinstance(records, (list, tuple)) else bytes(records)
