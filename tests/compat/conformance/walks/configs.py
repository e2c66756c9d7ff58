"""Walks of the configs of topics, brokers, groups and client metrics.

Those of brokers are taken away at the end: other walks run on the same one. A request has one key:
of several wrong ones, Kafka names the first in the order of a hash table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.walks.topics import CONFIGS, TOPIC, Admin

if TYPE_CHECKING:
    import random

    from compat.conformance.session import Session

STEPS = 50
BROKER, LOGGER, METRICS, GROUP = 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
VALUES: dict[int, tuple[tuple[str, str | None], ...]] = {
    TOPIC: CONFIGS,
    BROKER: (
        ("log.retention.bytes", "100000000"),
        ("log.retention.bytes", "many"),
        ("log.cleaner.threads", "1"),
        ("log.cleaner.threads", "3"),
        ("message.max.bytes", "2000000"),
        ("message.max.bytes", "-1"),
        ("log.segment.bytes", "1"),
        ("background.threads", "11"),
        ("background.threads", "1000"),
        ("node.id", "4"),
        ("no.such.key", "1"),
        ("log.retention.ms", "-1"),
        ("unclean.leader.election.enable", "false"),
        ("log.message.timestamp.type", "CreateTime"),
        ("min.insync.replicas", "1"),
    ),
    METRICS: (
        ("metrics", "org.apache.kafka."),
        ("metrics", "a.,b."),
        ("metrics", ""),
        ("interval.ms", "5000"),
        ("interval.ms", "5"),
        ("match", "client_id=a"),
        ("match", "nothing=a"),
        ("match", "client_id=a,client_software_name=b"),
        ("no.such.key", "1"),
    ),
    GROUP: (
        ("consumer.session.timeout.ms", "50000"),
        ("consumer.session.timeout.ms", "1"),
        ("consumer.heartbeat.interval.ms", "6000"),
        ("consumer.heartbeat.interval.ms", "soon"),
        ("share.auto.offset.reset", "earliest"),
        ("share.auto.offset.reset", "by_duration:PT1H"),
        ("share.auto.offset.reset", "never"),
        ("share.isolation.level", "read_committed"),
        ("share.record.lock.duration.ms", "20000"),
        ("share.record.lock.duration.ms", "1"),
        ("share.delivery.count.limit", "3"),
        ("streams.num.standby.replicas", "1"),
        ("streams.num.standby.replicas", "9"),
        ("no.such.key", "1"),
    ),
}


class Configs(Admin):
    """The resources of a walk."""

    def __init__(self, session: Session, rng: random.Random) -> None:
        super().__init__(session, rng)
        self.names: dict[int, list[str]] = {
            TOPIC: [session.topic(), session.topic(cleanup_policy="compact"), "none", ""],
            BROKER: ["1", "1", "", "2", "one"],
            METRICS: [f"{session.name}.m", f"{session.name}.n", ""],
            GROUP: [session.name, f"{session.name}.other", ""],
        }

    def resource(self) -> dict[str, Any]:
        """A resource, mostly one that there is."""
        kind = self.any_of((40, TOPIC), (20, BROKER), (15, METRICS), (20, GROUP), (2, 9))
        names = self.names.get(kind, ["x"])
        own = self.any_of((90, names[: max(1, len(names) - 2)]), (10, names))
        return {"resource_type": kind, "resource_name": self.rng.choice(own)}

    def _value(self, resource: dict[str, Any]) -> tuple[str, str | None]:
        return self.rng.choice(VALUES.get(resource["resource_type"], CONFIGS))

    def change(self) -> None:
        """IncrementalAlterConfigs of one key."""
        resource = self.resource()
        key, value = self._value(resource)
        how = self.any_of((65, SET), (20, DELETE), (7, APPEND), (7, SUBTRACT), (1, 9))
        row = {"name": key, "config_operation": how, "value": value}
        if how == DELETE and not self.chance(20):
            row["value"] = None
        self.session.ask(
            "IncrementalAlterConfigs",
            1,
            resources=[resource | {"configs": [row]}],
            validate_only=self.chance(20),
        )

    def replace(self) -> None:
        """AlterConfigs, which takes all others away."""
        resource = self.resource()
        key, value = self._value(resource)
        rows = [] if self.chance(20) else [{"name": key, "value": value}]
        self.session.ask(
            "AlterConfigs",
            2,
            resources=[resource | {"configs": rows}],
            validate_only=self.chance(20),
        )

    def describe(self) -> None:
        """DescribeConfigs of some keys with their synonyms, or of those that are not defaults."""
        resource = self.resource()
        keys = sorted({key for key, _ in VALUES.get(resource["resource_type"], CONFIGS)})
        asked = resource | {"configuration_keys": self.any_of((70, keys), (30, keys[:2]))}
        self.session.ask("DescribeConfigs", 4, resources=[asked], include_synonyms=True)

    def listed(self) -> None:
        """ListConfigResources, those of this walk."""
        kinds = self.any_of(
            (1, [GROUP]), (1, [METRICS]), (1, [TOPIC]), (1, [GROUP, METRICS]), (1, [])
        )
        answer = self.session.quietly("ListConfigResources", 1, resource_types=kinds)
        rows = answer["config_resources"]
        mine = [row for row in rows if row["resource_name"].startswith(self.session.name)]
        mine.sort(key=lambda row: (row["resource_type"], row["resource_name"]))
        self.session.record("ListConfigResources", {**answer, "config_resources": mine})

    def tidy(self) -> None:
        """Take the configs of brokers away: first the defaults, which others may hide."""
        for name in ("", "1"):
            rows = [
                {"name": key, "config_operation": DELETE, "value": None}
                for key in sorted({key for key, _ in VALUES[BROKER]})
            ]
            resource = {"resource_type": BROKER, "resource_name": name}
            for row in rows:
                self.session.quietly(
                    "IncrementalAlterConfigs", 1, resources=[resource | {"configs": [row]}]
                )
        self.settle()


def walk(session: Session, rng: random.Random) -> None:
    """Fifty requests."""
    here = Configs(session, rng)
    try:
        for _ in range(STEPS):
            step = here.any_of(
                (45, Configs.change),
                (15, Configs.replace),
                (35, Configs.describe),
                (5, Configs.listed),
            )
            step(here)
            if step not in (Configs.describe, Configs.listed):
                here.settle()
    finally:
        here.tidy()


KINDS = {"configs": walk}
