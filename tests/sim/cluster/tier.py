"""The remote tier joins a run: topics in it, a store in all weather, what is asked and checked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sim.cluster.admin import AdminClient
from sim.cluster.client import PAUSE_S
from sim.cluster.tier_checkers import TierCheckers
from sim.cluster.tier_habits import has_tier, store_name, tier_settings, tiered_topic
from sim.cluster.tier_readers import Auditor
from sim.history import require
from sim.raw_logs import read_log
from sim.remote_store import forget_weather, new_weather
from tidelog.cluster.metadata.image import REMOTE_LOG_METADATA_TOPIC
from tidelog.simulation.machines import replication_of
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import DeleteTopicsRequest
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim.cluster.faults import ClusterFault
    from sim.history import TopicHistory
    from sim.raw_logs import RawBatch
    from tidelog.simulation.machine import Machine

QUIET_S_MAX = 60.0  # after the last fault nothing is left in the store that nobody needs
EMPTY_S_MAX = 60.0
# A controller that is cut off refuses by what it knew, as Kafka's, until it gives up.
ZOMBIE_S_MAX = 5.0
_SET, _TOPIC_RESOURCE = 0, 2


class Tier:
    """The remote tier of one run, if its seed has one."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.is_on = has_tier(world.seed) if world.has_tier is None else world.has_tier
        self.weather = new_weather(store_name(world.seed))
        self.weather.now = world.loop.time
        self._checkers: TierCheckers | None = None

    def settings(self, brokers: int) -> dict[str, str]:
        """Of all brokers."""
        return tier_settings(self.world.seed, *replication_of(brokers)) if self.is_on else {}

    def topic_config(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        """What a topic is created with."""
        return tiered_topic(self.world.seed, name, config) if self.is_on else dict(config)

    def movable_topics(self) -> list[str]:
        """Topics of its own whose replicas may be moved."""
        return [REMOTE_LOG_METADATA_TOPIC] if self.is_on else []

    @property
    def checkers(self) -> TierCheckers:
        """What must hold."""
        if self._checkers is None:
            world = self.world
            self._checkers = TierCheckers(
                world.machines, world.history, world.checkers, self.weather
            )
        return self._checkers

    def batches(self, machine: Machine, partition: Any) -> list[RawBatch]:
        """All that a replica has, in whichever tier."""
        if self.is_on:
            return self.checkers.batches(machine, partition)
        return read_log(machine.disk, partition.log.folder).batches()

    def copied_to(self, topic_id: bytes, index: int) -> int:
        """The end of all that was ever begun to be copied of a partition; -1 for nothing."""
        known = self.checkers.truth.segments.get((topic_id, index), {}) if self.is_on else {}
        return max((segment.end_offset for segment in known.values()), default=-1)

    def look(self, changed: Sequence[Any]) -> None:
        """After a step of a broker that changed these replicas."""
        if changed or self.weather.deleted:
            self.checkers.look(changed)

    # -- the store ---------------------------------------------------------------------------------

    async def strike(self, fault: ClusterFault) -> None:
        """The store does what stores do, for a while."""
        weather, machines = self.weather, self.world.machines
        match fault.kind:
            case "store errors" | "store outage":
                weather.bad = fault.amount
            case "late sight":
                weather.late_s = fault.amount
            case "rotten reads":
                weather.rotten = fault.amount
            case "slow store":
                machines.store_delay_s = (fault.amount / 10, fault.amount)
        await asyncio.sleep(fault.for_s)
        match fault.kind:
            case "store errors" | "store outage":
                weather.bad = 0.0
            case "late sight":
                weather.late_s = 0.0
            case "rotten reads":
                weather.rotten = 0.0
            case "slow store":
                machines.store_delay_s = None

    def calm(self) -> None:
        """The faults are over."""
        self.weather.calm()
        self.world.machines.store_delay_s = None
        for what, count in self.weather.errors.items():
            self.world.history.count(f"store: {what} failed", count)

    # -- the end -----------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Soon nothing is in the store that nobody needs; whatever is there can be read."""
        if not self.is_on:
            return
        await self.world.within(QUIET_S_MAX, "the remote tier is not quiet", self._unquiet)
        self.checkers.check()
        auditor = Auditor(self.world)
        await self.world.served([self.world.spawn("auditor", auditor.run())], "reading it all")

    def _unquiet(self) -> str | None:
        unready: str | None = self.world.lag()
        if unready is not None:
            return unready
        image = self.world.machines.image()
        assert image is not None
        return self.checkers.unquiet(image)

    async def end(self) -> None:
        """All topics go, and with them all that is in the store."""
        if not self.is_on:
            return
        admin = AdminClient(self.world, "tier-admin")
        image = self.world.machines.image()
        assert image is not None
        for topic in list(image.topics.values()):
            if topic.name.startswith("__"):
                continue
            state = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic.topic_id)
            result, _ = await admin.until_known(
                DeleteTopicsRequest(topics=[state], timeout_ms=3000), 6, lambda r: r.responses[0]
            )
            error = ErrorCode(result.error_code)
            require(
                error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID),
                f"DeleteTopics {topic.name}: {error.name}",
            )
        admin.cluster.close()
        await self.world.within(EMPTY_S_MAX, "deleted topics are in the store", self._left)

    def _left(self) -> str | None:
        left = list(self.weather.disk.names)
        return f"{len(left)} objects: {left[:3]}" if left else None

    def close(self) -> None:
        """The run is over."""
        forget_weather(self.weather.name)


class TierAdmin(AdminClient):
    """Changes what concerns the remote tier of topics that are in it (KIP-950)."""

    def __init__(self, world: Any, changes: int) -> None:
        super().__init__(world, "tier-admin")
        self.changes = changes

    async def run(self) -> None:
        """Now this, now that; in the end everything is copied again."""
        for _ in range(self.changes):
            await asyncio.sleep(self.rng.uniform(0.5, 3))
            topics = [
                topic
                for topic in self.world.history.existing()
                if topic.name.startswith("base") and "remote.storage.enable" in topic.config
            ]
            if not topics:
                break
            await self.rng.choice((self._pause, self._leave, self._keep))(self.rng.choice(topics))
        self.cluster.close()

    async def _pause(self, topic: TopicHistory) -> None:
        """Copying stops for a while: all that is local stays, as retention is all there is."""
        await self._alter(topic, {"local.retention.bytes": "-2"})
        await self._alter(topic, {"remote.log.copy.disable": "true"})
        await asyncio.sleep(self.rng.uniform(0.1, 2))
        await self._alter(topic, {"remote.log.copy.disable": "false"})
        await self._keep(topic)
        self.world.history.count("copying disabled")

    async def _leave(self, topic: TopicHistory) -> None:
        """Out of the tier, with all that is remote only; and back."""
        if self.rng.random() < 0.5:
            return
        topic.loses_records = True
        out = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
        await self._alter(topic, out)
        await asyncio.sleep(self.rng.choice((0.0, 0.1, 1.0, 3.0)))
        await self._alter(
            topic, {"remote.storage.enable": "true", "remote.log.delete.on.disable": "false"}
        )
        self.world.history.count("tiers disabled")

    async def _keep(self, topic: TopicHistory) -> None:
        """Another local retention."""
        await self._alter(topic, {"local.retention.bytes": self.rng.choice(("1", "1500", "-2"))})

    async def _alter(self, topic: TopicHistory, config: Mapping[str, str]) -> None:
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        configs = [
            resource.AlterableConfig(name=name, config_operation=_SET, value=value)
            for name, value in config.items()
        ]
        asked = resource(resource_type=_TOPIC_RESOURCE, resource_name=topic.name, configs=configs)
        error, end_s = ErrorCode.INVALID_CONFIG, self.world.loop.time() + ZOMBIE_S_MAX
        while error is ErrorCode.INVALID_CONFIG and self.world.loop.time() < end_s:
            result, _ = await self.until_known(
                IncrementalAlterConfigsRequest(resources=[asked]), 1, lambda r: r.responses[0]
            )
            error = ErrorCode(result.error_code)
            await asyncio.sleep(PAUSE_S)
        require(error is ErrorCode.NONE, f"configuration {config} of {topic.name}: {error.name}")
