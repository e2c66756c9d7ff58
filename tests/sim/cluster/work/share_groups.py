"""A share group (KIP-932): members that come and go, in bad manners, and lose answers.

What its members, writers and administrators know is judged while the run lasts by
`share_history.py`. When the faults are over, each record is soon done with, and stays so when other
replicas lead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.admin import creatable_topic
from sim.cluster.admin import AdminClient
from sim.cluster.moves import Mover
from sim.cluster.work.part import Part
from sim.history import TopicHistory, require
from sim.share_clients import delete_records, describe, live_as_members, unsettled
from sim.share_history import ShareHistory
from sim.share_world import GROUP, TIMES, settings_of_group
from sim.share_writers import PlainWriter, TransactionalWriter
from sim.wire import Lost
from tidelog.cluster.metadata.image import SHARE_GROUP_STATE_TOPIC
from tidelog.coordinators.share.values import SharePartition
from tidelog.replication.internal_topics import partition_for
from tidelog.simulation.machines import host_of, replication_of
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from sim.share_history import SharedPartition
    from tidelog.simulation.loop import SimLoop
    from tidelog.simulation.machine import Machine
    from tidelog.simulation.network import SimNetwork

TOPIC = "shared"
SETTLED_S_MAX = 20.0
PRUNED = 0.5  # of the seeds
PRUNING: Mapping[str, str] = {
    "share.coordinator.state.topic.prune.interval.ms": "400",
    "share.coordinator.cold.partition.snapshot.interval.ms": "700",
}
GROUP_IS_STUCK = "records of the share group are not done with"


class ShareMover(Mover):
    """Moves the topic, and where the group's states are."""

    name = "share mover"

    def names(self) -> list[str]:
        """Both."""
        return [TOPIC, SHARE_GROUP_STATE_TOPIC]


class ShareGroups(Part):
    """One group."""

    name = "share groups"
    topic = TOPIC

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.topic_id = bytes(16)
        self.is_over = False
        self._partitions = self.rng.randint(1, 3)
        self._members = self.rng.randint(2, 4)
        self._deliveries_max = self.rng.choice((2, 3, 5))
        self._is_committed = self.rng.random() < 0.8
        self.history = ShareHistory(
            self._partitions, self._deliveries_max, is_committed=self._is_committed
        )
        self.history.counts = world.history.counts

    def settings(self) -> Mapping[str, str]:
        """Short times; perhaps the log of states is pruned all the time."""
        return {
            **TIMES,
            "group.share.delivery.count.limit": str(self._deliveries_max),
            "share.coordinator.state.topic.num.partitions": str(self.rng.choice((1, 3))),
            **(PRUNING if self.rng.random() < PRUNED else {}),
        }

    # -- the run -----------------------------------------------------------------------------------

    async def create(self) -> None:
        """The topic, and the group's settings."""
        admin = AdminClient(self.world, "share admin")
        created = await self._create(admin)
        self.topic_id = created.topic_id
        request = settings_of_group(is_committed=self._is_committed)
        answer, _ = await admin.until_known(request, 1, lambda response: response.responses[0])
        require(answer.error_code == ErrorCode.NONE, f"settings of the group: {answer}")
        admin.cluster.close()
        self._records = created

    async def _create(self, admin: AdminClient) -> TopicHistory:
        """A topic that others neither write to nor let grow."""
        factor, min_isr = replication_of(self.world.machines.voters)
        config = {
            "internal.segment.bytes": str(self.rng.choice((1500, 6000, 1 << 20))),
            "min.insync.replicas": str(min_isr),
        }
        topic = creatable_topic(TOPIC, self._partitions, factor, config)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=3000)
        result, _ = await admin.until_known(request, 7, lambda response: response.topics[0])
        error, topic_id = ErrorCode(result.error_code), bytes(result.topic_id)
        known = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)  # asked for twice
        require(error in known, f"CreateTopics {TOPIC}: {error.name}")
        while error is not ErrorCode.NONE and topic_id == bytes(16):
            response = await admin.cluster.ask_any(MetadataRequest(topics=None), 12)
            found = {each.name: bytes(each.topic_id) for each in response.topics}
            topic_id = found.get(TOPIC, topic_id)
        return TopicHistory(TOPIC, topic_id, self._partitions, config)

    def start(self) -> None:
        """Members come and go; others write, describe and delete groups, and move partitions."""
        self._mover = ShareMover(self.world, self.rng.randint(0, 6), ShareMover.name)
        self.start_client(self._mover)
        for kind, name in ((PlainWriter, "writer"), (TransactionalWriter, "transactional")):
            self.writers.append(self.world.spawn(name, kind(self, name).run()))
        for number in range(self._members):
            self._spawn(f"share member {number}", live_as_members(self, number))
        self._spawn("describer", describe(self))
        self._spawn("deleter", delete_records(self, self._deleted))

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self.clients.append(self.world.spawn(name, work))

    def _deleted(self, known: SharedPartition, low_watermark: int) -> None:
        """A crash may take it back, so that it is no bound for what members get."""
        partition = self._records.partition(known.index)
        self.world.promises.records_deleted(partition, low_watermark)

    async def finish(self) -> None:
        """All records are done with; also when others lead."""
        await self.world.within(SETTLED_S_MAX, GROUP_IS_STUCK, self._unsettled)
        await self.world.served([self.world.spawn(ShareMover.name, self._lead_others())], "moving")
        await self.world.within(SETTLED_S_MAX, GROUP_IS_STUCK, self._unsettled)
        self.is_over = True
        await super().finish()
        self.history.check_end()

    async def _lead_others(self) -> None:
        """Each partition gets another leader, if it can."""
        await self._mover.settle()
        for chosen in self._mover.movable():
            if chosen.name == TOPIC:
                first, *others = chosen.state.replicas
                await self._mover.move(chosen, [*others, first])
                await self._mover.elect(chosen)
        self._mover.cluster.close()

    def _unsettled(self) -> str | None:
        return unsettled(self) or None

    # -- what clients and checkers ask -------------------------------------------------------------

    @property
    def seed(self) -> int | str:
        """Of the run."""
        return f"{self.world.seed}:{self.name}"

    @property
    def loop(self) -> SimLoop:
        """Of the run."""
        loop: SimLoop = self.world.loop
        return loop

    @property
    def network(self) -> SimNetwork:
        """Of all."""
        network: SimNetwork = self.world.machines.network
        return network

    @property
    def is_quiet(self) -> bool:
        """No fault will come."""
        return bool(self.world.is_quiet)

    def brokers(self) -> Sequence[str]:
        """Those of now."""
        return [host_of(node_id) for node_id in self.world.machines.by_id]

    def name_of(self, node_id: int) -> str:
        """Its host."""
        return host_of(node_id)

    def machine(self, name: str) -> Machine:
        """The machine of a broker; Lost if it was taken away."""
        for node_id, machine in self.world.machines.by_id.items():
            if host_of(node_id) == name:
                found: Machine = machine
                return found
        raise Lost(f"{name} was removed")

    def leader_of(self, index: int) -> str:
        """The leader of a partition, "" if it may be another one than the newest metadata has.

        A broker that leads in an earlier epoch, and has not heard of its end, is not asked: it does
        not know what is done.
        """
        image = self._image()
        state = None if image is None else image.partition(TOPIC, index)
        if state is None or state.leader not in self.world.machines.by_id:
            return ""
        server: Any = self.world.machines.by_id[state.leader].server
        if server is not None and server.is_built:
            own = server.replicas.hosted(TopicPartition(TOPIC, index))
            if own is None or (own.is_leader and own.leader_epoch != state.leader_epoch):
                return ""
        return host_of(state.leader)

    def _image(self) -> Any:
        image = self.world.machines.image()
        return None if image is None or self._is_old(image) else image

    def _is_old(self, image: Any) -> bool:
        return bool(self.world.checkers.in_sync.knows_newer_than(image))

    def keeper(self, name: str, index: int) -> Any:
        """Who keeps the state of a share partition, None if this broker may know another one."""
        server: Any = self.machine(name).server
        own = server.replicas.image if server is not None and server.is_built else None
        key = SharePartition(GROUP, self.topic_id, index).coordinator_key
        places = []
        for image in (self._image(), own):
            topic = None if image is None else image.topics.get(SHARE_GROUP_STATE_TOPIC)
            if topic is None:
                return None
            state = topic.partitions[partition_for(key, len(topic.partitions))]
            places.append((state.leader, state.leader_epoch))
        return places[0] if places[0] == places[1] else None

    def is_rotten(self, name: str, index: int) -> bool:
        """Whether a fault explains a bad checksum."""
        node_ids = {host_of(node_id): node_id for node_id in self.world.machines.by_id}
        return bool(self.world.rot.seen(node_ids.get(name, 0), self._records.partition(index)))

    def begins(self, host: str) -> None:
        """It can be isolated."""
        self.world.clients.append(host)
