"""A broker's worth of group coordination for tests: real logs, replicas, dispatch and codecs.

Only the outside is made up: the clock and its timers (moved by hand), chance (counted), the disk
(the simulation's), and the cluster's images, which a test changes as a controller would.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from support.metadata import names_by_id
from support.share_groups import SlowPersister
from tidelog.api.consumer_groups import ConsumerGroupsApi
from tidelog.api.group_admin import GroupAdminApi
from tidelog.api.group_offsets import GroupOffsetsApi
from tidelog.api.groups import GroupsApi
from tidelog.api.share_group_offsets import ShareGroupOffsetsApi
from tidelog.api.share_groups import ShareGroupsApi
from tidelog.api.streams_groups import StreamsGroupsApi
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.features import initial_levels
from tidelog.cluster.metadata.image import (
    GROUP_METADATA_TOPIC,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from tidelog.config.broker import DEVELOPER_PROFILE, BrokerConfig
from tidelog.coordinators.groups.admin import GroupAdmin
from tidelog.coordinators.groups.classic.membership import ClassicMembership
from tidelog.coordinators.groups.consumer.membership import ConsumerMembership
from tidelog.coordinators.groups.coordinator import GroupCoordinator
from tidelog.coordinators.groups.records import decode
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.groups.share.driven import DrivenTasks
from tidelog.coordinators.groups.share.end_offsets import EndOffsets
from tidelog.coordinators.groups.share.membership import ShareMembership
from tidelog.coordinators.groups.share.offsets import ShareOffsets
from tidelog.coordinators.groups.share.state_changes import StateChanges
from tidelog.coordinators.groups.streams.membership import StreamsMembership
from tidelog.coordinators.groups.streams.topic_creation import TopicCreation
from tidelog.network.dispatch import Dispatcher, RequestContext
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.security.authorizer import Authorizer
from tidelog.security.principal import ANONYMOUS
from tidelog.simulation.disk import SimDisk
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.frames import RequestHeader, decode_response_header, request_frame
from tidelog_protocol.records import iter_batches, iter_records
from tidelog_storage.config import LogConfig
from tidelog_storage.manager import LogManager

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidelog.security.acls import Acl
    from tidelog_protocol.messages.admin import CreateTopicsRequest

    CreatableTopic = CreateTopicsRequest.CreatableTopic
    OnCreated = Callable[[Mapping[str, str]], None]

NODE_ID = 1
WALL_MS = 1_795_247_400_000
ASSIGNMENT_INTERVAL = "group.consumer.assignment.interval.ms"


class Handle:
    """A timer that may be cancelled."""

    def __init__(self, callback: Any, args: Any) -> None:
        self.callback, self.args, self.cancelled = callback, args, False

    def cancel(self) -> None:
        self.cancelled = True


class Time:
    """Clock and timers in one, moved by `pass_`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.heap: list[tuple[float, int, Handle]] = []
        self.ties = itertools.count()
        self.set_count = 0

    def time(self) -> float:
        return self.seconds

    monotonic = time

    def wall_ms(self) -> int:
        return WALL_MS + round(self.seconds * 1000)

    def call_at(self, when: float, callback: Any, *args: Any) -> Handle:
        self.set_count += 1
        handle = Handle(callback, args)
        heapq.heappush(self.heap, (when, next(self.ties), handle))
        return handle

    def pass_(self, seconds: float = 0) -> None:
        end = self.seconds + seconds
        while self.heap and self.heap[0][0] <= end + 1e-9:
            when, _, handle = heapq.heappop(self.heap)
            self.seconds = max(self.seconds, when)
            if not handle.cancelled:
                handle.callback(*handle.args)
        self.seconds = end


class Rng:
    """Ids that count, or given ones first."""

    def __init__(self) -> None:
        self.given: list[bytes] = []
        self.count = 0

    def bytes(self, length: int) -> bytes:
        return self.uuid()[:length]

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2

    def uuid(self) -> Any:
        if self.given:
            return self.given.pop(0)
        self.count += 1
        return self.count.to_bytes(16, "big")


class Peer:
    """A connection that keeps its answers."""

    client_host, client_port = "127.0.0.1", 50000
    listener = "PLAINTEXT"
    principal = ANONYMOUS
    software = ("unknown", "unknown")

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def at_close(self, callback: Callable[[], None]) -> None:
        """There is no connection behind the request."""

    def throttle(self, seconds: float) -> None:
        """There is no connection behind the request."""

    def complete(self, context: RequestContext, response: Any) -> None:
        assert context.answer is None
        context.answer = self.dispatcher.encode(context, response)


def topic(
    name: str, topic_id: bytes, count: int, *, leader: int = NODE_ID, epoch: int = 0
) -> TopicImage:
    """A topic whose partitions have one replica, here, and perhaps follow another broker."""
    partitions = tuple(
        PartitionImage(index, leader, epoch, epoch, (NODE_ID, 2), (leader,))
        if leader != NODE_ID
        else PartitionImage(index, NODE_ID, epoch, epoch, (NODE_ID,), (NODE_ID,))
        for index in range(count)
    )
    return TopicImage(name, topic_id, partitions, name.startswith("__"))


class Creation(NamedTuple):
    """Topics that are being created."""

    topics: list[CreatableTopic]
    on_done: OnCreated


class Pending:
    """A request that was sent."""

    def __init__(self, context: RequestContext) -> None:
        self.context = context

    @property
    def frame(self) -> bytes | None:
        if self.context.answer is None:
            return None
        return b"".join(bytes(part) for part in self.context.answer)

    @property
    def answer(self) -> Any:
        frame = self.frame
        assert frame is not None, "still parked"
        api, version = API[self.context.api_key], self.context.api_version
        _, position = decode_response_header(api, version, frame[4:])
        return api.response_codec(version).decode(frame[4:], position)

    @property
    def parked(self) -> bool:
        return self.context.answer is None


class GroupBroker:
    """One broker that coordinates groups; `restart` and `kill` give it another life."""

    def __init__(
        self, *, partitions: int = 4, acls: dict[bytes, Acl] | None = None, **settings: str
    ) -> None:
        """`acls`: with an authorizer, which these are for."""
        self.acls = acls or {}
        self.disk = SimDisk(0)
        self.time = Time()
        self.rng = Rng()
        self.persister = SlowPersister()
        self.config = BrokerConfig.from_properties(
            {"log.dirs": "/data", **DEVELOPER_PROFILE, ASSIGNMENT_INTERVAL: "0"}
            | {name.replace("_", "."): value for name, value in settings.items()}
        )
        self.authorizer = None
        if acls is not None:
            self.authorizer = Authorizer(self.config, lambda: self.image.acls)
        self.correlation_ids = itertools.count()
        self.group_configs: dict[str, dict[str, str]] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.features = {**initial_levels(), "share.version": 1, "streams.version": 1}
        self.created: list[str] = []
        self.creations: list[Creation] = []
        self.topics = {
            "a": topic("a", b"a" * 16, 3),
            "b": topic("b", b"b" * 16, 1),
            GROUP_METADATA_TOPIC: topic(GROUP_METADATA_TOPIC, b"_" * 16, partitions),
        }
        if not partitions:
            del self.topics[GROUP_METADATA_TOPIC]
        self.start()

    def start(self) -> None:
        self.image = ClusterImage(cluster_id="c")
        self.logs = LogManager(self.disk.files(), ["/data"], LogConfig.from_broker({}))
        self.logs.open(
            now_ms=self.time.wall_ms(),
            cluster_id="cluster",
            node_id=NODE_ID,
            new_directory_id=self.rng.uuid,
        )
        self.replica_manager = ReplicaManager(
            NODE_ID,
            self.time,
            self.time,
            self.logs,
            lambda _image, _name: LogConfig.from_broker({}),
        )
        self.coordinator = self.new_coordinator()
        self.admin = GroupAdmin(self.coordinator, self.time)
        states = StateChanges(self.coordinator, self.persister)
        self.admin.share_states = lambda: states
        membership = ShareMembership(self.coordinator, states)
        tasks = DrivenTasks()
        ends = EndOffsets(self.replica_manager, lambda: self.image, None, tasks)
        offsets = ShareOffsets(self.coordinator, states, ends)
        creation = TopicCreation(self.create_all, self.time.time)
        members = StreamsMembership(self.coordinator, creation)
        classic = ClassicMembership(self.coordinator, self.rng)
        handlers = {
            **StreamsGroupsApi(self.admin, lambda: self.image, members, self.authorizer).handlers(),
            **ShareGroupsApi(self.admin, lambda: self.image, membership).handlers(),
            **ShareGroupOffsetsApi(offsets, lambda: self.image).handlers(),
            **GroupsApi(classic, lambda: self.image, self, self.authorizer).handlers(),
            **GroupAdminApi(self.admin).handlers(),
            **ConsumerGroupsApi(
                self.admin,
                lambda: self.image,
                ConsumerMembership(self.coordinator, self.rng),
                self.authorizer,
            ).handlers(),
            **GroupOffsetsApi(
                self.admin,
                lambda: self.image,
                self.time,
                metadata_bytes_max=self.config.offset_metadata_max_bytes,
            ).handlers(),
        }
        self.dispatcher = Dispatcher(handlers)
        self.peer = Peer(self.dispatcher)
        if self.logs.has_new_directory:  # topics come after the first image, else theirs were lost
            topics, self.topics = self.topics, {}
            self.apply(first=True)
            self.topics = topics
            self.apply()
        else:
            self.apply(first=True)

    def new_coordinator(self) -> GroupCoordinator:
        """Over the replica manager as it is."""
        return GroupCoordinator(
            config=self.config,
            clock=self.time,
            timers=self.time,
            replica_manager=self.replica_manager,
        )

    def apply(self, *, first: bool = False) -> None:
        """Publish an image of `topics`, as the metadata log does."""
        old = self.image
        self.image = ClusterImage(
            cluster_id="c",
            features=self.features,
            controller_id=NODE_ID,
            brokers={
                NODE_ID: BrokerImage(NODE_ID, "127.0.0.1", 22412),
                2: BrokerImage(2, "127.0.0.1", 22413),
            },
            topics=dict(self.topics),
            topic_names=names_by_id(self.topics),
            acls=dict(self.acls),
            group_configs=self.group_configs,
            broker_configs=self.broker_configs,
        )
        delta = MetadataDelta(None if first else old, self.image)
        self.replica_manager.apply(delta, self.image)
        self.coordinator.on_image(delta, self.image)

    async def auto_create(self, names: list[str]) -> None:
        self.created += names
        for name in names:
            self.topics[name] = topic(name, name.encode()[:16].ljust(16), 4)
        self.apply()

    def create_all(self, topics: Sequence[CreatableTopic], on_done: OnCreated) -> None:
        """Internal topics of streams groups; `create` or a test ends this."""
        self.creations.append(Creation(list(topics), on_done))

    def create(self) -> None:
        """The controller creates what it was asked for."""
        for creation in self.creations:
            for each in creation.topics:
                topic_id = each.name.encode()[:16].ljust(16)
                self.topics[each.name] = topic(each.name, topic_id, each.num_partitions)
            creation.on_done({})
        self.creations.clear()
        self.apply()

    def kill(self) -> None:
        """kill -9, and a new start from what the operating system has."""
        self.disk.kill()
        self.time.heap.clear()
        self.start()
        self.time.pass_()

    # ---- requests ------------------------------------------------------------------------------

    def send(self, message: Any, version: int, *, client_id: str = "c") -> Pending:
        """Encode a request, dispatch it, keep what becomes of it."""
        api = next(api for api in API.values() if type(message).__name__ == f"{api.name}Request")
        header = RequestHeader(api.key, version, next(self.correlation_ids), client_id)
        frame = b"".join(bytes(part) for part in request_frame(api, header, message))[4:]
        return Pending(self.dispatcher.dispatch(self.peer, memoryview(bytearray(frame))))

    def ask(self, message: Any, version: int, **more: Any) -> Any:
        """The answer of a request that is answered at once."""
        return self.send(message, version, **more).answer

    def log_bytes(self, index: int) -> bytes:
        path = f"/data/{GROUP_METADATA_TOPIC}-{index}/{0:020}.log"
        return self.disk.files().read_bytes(path)

    def compacted(self, group_id: str) -> Any:
        """Load a group from what compaction leaves, with no tombstones."""
        index = self.coordinator.partition_for(group_id)
        log = self.log_bytes(index)
        latest: dict[bytes, bytes | None] = {}
        for position, _ in iter_batches(log):
            for record in iter_records(log, position):
                latest.pop(record.key, None)
                latest[record.key] = record.value
        shard = GroupShard(index, 0)
        for key, value in latest.items():
            change = decode(key, value)
            if value is not None and change is not None:
                shard.replay(change, 0, self.coordinator.now())
        return shard.groups.get(group_id, ErrorCode.GROUP_ID_NOT_FOUND)


def version_range(key: ApiKey) -> range:
    """All versions served of an API."""
    return range(API[key].min_version, API[key].max_version + 1)
