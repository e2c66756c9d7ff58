"""The machines of a cluster, and what may be seen of the brokers on them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cluster.quorum.core import Role
from tidelog.simulation.disk import has_names_apart
from tidelog.simulation.machine import PORT, Machine
from tidelog.simulation.network import SimNetwork

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.replication.partition import Partition
    from tidelog.simulation.loop import SimLoop

CONTROLLER_PORT = 9093
RACKS = ("red", "blue")
LAG_S_MAX = 2.0
# Short times, so that a run of some virtual seconds sees them end.
PROPERTIES: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "broker.heartbeat.interval.ms": "250",
    "broker.session.timeout.ms": "1500",
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "900",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.request.timeout.ms": "1200",
    "replica.lag.time.max.ms": str(int(LAG_S_MAX * 1000)),
    "replica.fetch.wait.max.ms": "250",
    "replica.fetch.backoff.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "request.timeout.ms": "3000",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "400",
}


def host_of(node_id: int) -> str:
    """The host a broker lives on."""
    return f"broker-{node_id}"


def replication_of(brokers: int) -> tuple[int, int]:
    """Replication factor and min.insync.replicas of all topics of a cluster of so many."""
    return min(3, brokers), 2 if brokers >= 3 else 1


class LedPartition(NamedTuple):
    """A partition as the broker that leads it (or thinks so) has it."""

    node_id: int
    partition: Partition


class Machines:
    """Brokers 1 to n, each on a machine of its own, all voters of the metadata quorum; and those
    that came later, which are brokers alone."""

    def __init__(
        self,
        loop: SimLoop,
        seed: int | str,
        brokers: int,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`settings` go before those that all clusters have."""
        self.loop, self.seed = loop, seed
        self.settings = settings or {}
        self.network = SimNetwork(loop, seed)
        self.voters = brokers
        self.by_id: dict[int, Machine] = {}  # those that belong to the cluster
        self.all: list[Machine] = []  # and those that were taken away
        self.store_delay_s: tuple[float, float] | None = None  # more than a disk's, if it is slow
        self._store_delays = random.Random(f"{seed}:store delays")
        for node_id in range(1, brokers + 1):
            self.add(node_id)

    def __iter__(self) -> Iterator[Machine]:
        return iter(self.by_id.values())

    @property
    def has_compaction(self) -> bool:
        """Whether the internal topics are compacted while a run lasts."""
        return "log.cleaner.max.compaction.lag.ms" in self.settings

    def add(self, node_id: int) -> Machine:
        """One more machine, with nothing on its disk."""
        host = host_of(node_id)
        machine = Machine(
            self.loop, self.network, f"{self.seed}:{host}", self._settings(node_id), host=host
        )
        machine.disk.is_apart = has_names_apart(self.seed)
        machine.store_delay_s = self._draw_store_delay
        self.by_id[node_id] = machine
        self.all.append(machine)
        return machine

    def _draw_store_delay(self) -> float:
        slow = self.store_delay_s
        return 0.0 if slow is None else self._store_delays.uniform(*slow)

    def _habits(self) -> dict[str, str]:
        """Settings that a seed chooses for all brokers of its cluster: little things often."""
        rng = random.Random(f"{self.seed}:habits")
        return {
            "metadata.log.max.record.bytes.between.snapshots": str(
                rng.choice((1_000, 3_000, 20_000_000))
            ),
            "leader.imbalance.check.interval.seconds": str(rng.choice((1, 3, 300))),
            "num.replica.fetchers": str(rng.choice((1, 1, 2))),
            "replica.fetch.max.bytes": str(rng.choice((500, 5_000, 1_000_000))),
            "replica.fetch.response.max.bytes": str(rng.choice((2_000, 1_000_000))),
        }

    def _settings(self, node_id: int) -> dict[str, str]:
        host = host_of(node_id)
        factor, min_isr = replication_of(self.voters)
        voters = range(1, self.voters + 1)
        listeners = f"PLAINTEXT://{host}:{PORT}"
        settings = {
            **PROPERTIES,
            **self._habits(),
            "node.id": str(node_id),
            "listeners": f"{listeners},CONTROLLER://{host}:{CONTROLLER_PORT}",
            "controller.quorum.voters": ",".join(
                f"{node}@{host_of(node)}:{CONTROLLER_PORT}" for node in voters
            ),
            "broker.rack": RACKS[node_id % len(RACKS)],
            "default.replication.factor": str(factor),
            "min.insync.replicas": str(min_isr),
            "offsets.topic.replication.factor": str(factor),
            "transaction.state.log.replication.factor": str(factor),
            "transaction.state.log.min.isr": str(min_isr),
            "share.coordinator.state.topic.replication.factor": str(factor),
            "share.coordinator.state.topic.min.isr": str(min_isr),
        }
        if node_id not in voters:
            settings |= {"process.roles": "broker", "listeners": listeners}
        return {**settings, **self.settings}

    def bury(self) -> None:
        """The run is over."""
        for machine in self.all:
            machine.bury()

    # -- looking inside ----------------------------------------------------------------------------

    def servers(self) -> Iterator[tuple[int, Any]]:
        """Brokers that live, whether they are ready or not."""
        for node_id, machine in self.by_id.items():
            if machine.server is not None:
                yield node_id, machine.server

    def cores(self) -> Iterator[tuple[int, Any]]:
        """The quorum's state machines."""
        for node_id, server in self.servers():
            core = server.membership.core
            if core is not None:
                yield node_id, core

    def partitions(self) -> Iterator[LedPartition]:
        """All replicas on brokers that live."""
        for node_id, server in self.servers():
            if server.is_built:
                for partition in server.replicas.partitions():
                    yield LedPartition(node_id, partition)

    def controller(self) -> int | None:
        """The node that leads the quorum in its newest epoch, if there is one."""
        leading = [
            (core.epoch, node_id) for node_id, core in self.cores() if core.role is Role.LEADER
        ]
        return max(leading)[1] if leading else None

    def image(self) -> ClusterImage | None:
        """The newest published image."""
        images = [server.metadata.image for _, server in self.servers() if server.is_built]
        return max(images, key=lambda image: image.offset, default=None)
