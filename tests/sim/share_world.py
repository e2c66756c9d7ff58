"""What clients of a share group need of the run they are in: a play, or a random one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tidelog.coordinators.share.values import SharePartition
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim.share_history import ShareHistory
    from tidelog.simulation.loop import SimLoop
    from tidelog.simulation.machine import Machine
    from tidelog.simulation.network import SimNetwork

GROUP = "g"
GROUP_RESOURCE = 32
# Short times, so that a run of some virtual seconds sees them end.
TIMES: Mapping[str, str] = {
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
    "share.coordinator.write.timeout.ms": "1000",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.session.timeout.ms": "2000",
    "group.share.min.session.timeout.ms": "2000",
    "group.share.record.lock.duration.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.partition.max.record.locks": "100",
    "group.share.assignment.interval.ms": "0",
    "group.share.initialize.retry.interval.ms": "500",
}


class ShareWorld(Protocol):
    """One group that reads one topic. Brokers are named by their hosts.

    `is_quiet`: no fault will come. `is_over`: all records are done with.
    """

    @property
    def seed(self) -> int | str: ...

    @property
    def loop(self) -> SimLoop: ...

    @property
    def network(self) -> SimNetwork: ...

    @property
    def history(self) -> ShareHistory: ...

    @property
    def topic(self) -> str: ...

    @property
    def topic_id(self) -> bytes: ...

    @property
    def is_quiet(self) -> bool: ...

    @property
    def is_over(self) -> bool: ...

    def brokers(self) -> Sequence[str]:
        """All that may be asked for a coordinator."""
        ...

    def name_of(self, node_id: int) -> str:
        """The broker with this id."""
        ...

    def machine(self, name: str) -> Machine:
        """The machine of a broker; Lost if it was taken away."""
        ...

    def leader_of(self, index: int) -> str:
        """The leader of a partition by the newest metadata, "" if there is none."""
        ...

    def keeper(self, name: str, index: int) -> Any:
        """Who keeps the state of a share partition, None if this broker may know another one."""
        ...

    def is_rotten(self, name: str, index: int) -> bool:
        """Whether a fault explains a bad checksum in what this broker has of a partition."""
        ...

    def begins(self, host: str) -> None:
        """A client on a host of its own comes."""
        ...


def settings_of_group(*, is_committed: bool) -> IncrementalAlterConfigsRequest:
    """A request that makes the group begin at the start of logs."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    entries = {"share.auto.offset.reset": "earliest"}
    if is_committed:
        entries["share.isolation.level"] = "read_committed"
    configs = [
        resource.AlterableConfig(name=name, config_operation=0, value=value)
        for name, value in entries.items()
    ]
    asked = resource(resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[asked])


def led_partition(world: ShareWorld, name: str, index: int) -> Any:
    """The share partition as its leader has it, None if it has none."""
    machine = world.machine(name)
    server: Any = machine.server
    if server is None or not server.is_built or not machine.is_ready:
        return None
    return server.parts.shares()._led.get(SharePartition(GROUP, world.topic_id, index))


def term(world: ShareWorld, name: str, index: int) -> Any:
    """The life of a share partition at a broker, None without one."""
    led = led_partition(world, name, index)
    if led is not None and led.state is not None:
        world.history.led(index, led, led.state.start_offset)
    return led


def is_punctual(world: ShareWorld, name: str) -> bool:
    """Whether the timers of a broker run: one that stands still may hear of an acknowledgement
    before it ends the lock."""
    return world.machine(name).lane not in world.loop._paused_lanes
