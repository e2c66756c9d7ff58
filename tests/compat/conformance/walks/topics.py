"""Walks of topics: made, grown, deleted, moved and described.

What a controller has decided is known to a broker a moment later, so each change is followed by
another one that is waited for. UpdateFeatures has one feature: of several, Kafka names the first
wrong one in the order of a hash table.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from compat.conformance.walks.walk import SET, UNKNOWN_ID, Walk

if TYPE_CHECKING:
    import random

    from compat.conformance.session import Session

STEPS = 50
TIMEOUT_MS = 30_000
KNOWN_WITHIN_S = 20.0
TOPIC = 2
CONFIGS = (
    ("retention.ms", "5000"),
    ("retention.ms", "soon"),
    ("retention.ms", None),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "compact,delete"),
    ("cleanup.policy", "never"),
    ("segment.bytes", "2000000"),
    ("segment.bytes", "1"),
    ("min.insync.replicas", "1"),
    ("min.insync.replicas", "0"),
    ("no.such.key", "1"),
    ("local.retention.ms", "4000"),
    ("remote.storage.enable", "false"),
    ("remote.storage.enable", "true"),
    ("max.compaction.lag.ms", "5"),
    ("min.compaction.lag.ms", "10"),
    ("message.timestamp.type", "LogAppendTime"),
    ("unclean.leader.election.enable", "true"),
)


class Admin(Walk):
    """What all walks of an administrator share."""

    def __init__(self, session: Session, rng: random.Random) -> None:
        super().__init__(session, rng)
        self._mark = session.topic()
        self._marks = 10_000

    def settle(self) -> None:
        """Wait until the broker knows all that its controller has decided before.

        Kafka applies changes in the order of its log, each before it looks at the next.
        """
        for _ in range(2):
            self._marks += 1
            value = str(self._marks)
            row = {"name": "retention.ms", "config_operation": SET, "value": value}
            resource = {"resource_type": TOPIC, "resource_name": self._mark}
            changed = resource | {"configs": [row]}
            self.session.quietly("IncrementalAlterConfigs", 1, resources=[changed])
            asked = resource | {"configuration_keys": ["retention.ms"]}

            end = time.monotonic() + KNOWN_WITHIN_S
            while self._value_of(asked) != value and time.monotonic() < end:
                time.sleep(0.002)

    def _value_of(self, asked: dict[str, Any]) -> Any:
        answer = self.session.quietly("DescribeConfigs", 4, resources=[asked])
        return answer["results"][0]["configs"][0]["value"]

    def some(self, values: Any, most: int = 2) -> list[Any]:
        """So many of these values at most, perhaps one of them twice."""
        return self.rng.choices(values, k=self.rng.randint(1, most))


class Topics(Admin):
    """The topics of a walk."""

    def __init__(self, session: Session, rng: random.Random) -> None:
        super().__init__(session, rng)
        self.names = [f"{session.name}.{letter}" for letter in "bcd"]
        self.odd = [f"{session.name}_b", f"{session.name}.a b", "", "..", "x" * 250]
        self.ids = dict.fromkeys(self.names, UNKNOWN_ID)

    def name(self) -> str:
        return str(self.any_of((92, self.rng.choice(self.names)), (8, self.rng.choice(self.odd))))

    def look(self) -> None:
        """Metadata of all of them; their ids get their names in this order."""
        asked = [{"name": name} for name in self.names]
        answer = self.session.ask("Metadata", 12, topics=asked, allow_auto_topic_creation=False)
        for topic in answer["topics"]:
            if not topic["error_code"]:
                self.ids[topic["name"]] = topic["topic_id"]

    def create(self) -> None:
        """CreateTopics of one or two, perhaps with an assignment."""
        names = [self.name() for _ in range(self.any_of((80, 1), (20, 2)))]
        topics = []
        for name in names:
            row: dict[str, Any] = {
                "name": name,
                "num_partitions": self.any_of((60, 1), (15, 3), (15, -1), (5, 0), (5, -2)),
                "replication_factor": self.any_of((60, 1), (30, -1), (5, 2), (5, 0)),
                "configs": [{"name": k, "value": v} for k, v in self._configs()],
            }
            if self.chance(15):
                replicas = self.any_of((80, [1]), (5, []), (5, [7]), (5, [1, 1]), (5, [1, 7]))
                indexes = self.any_of((60, [0]), (20, [0, 1]), (10, [1]), (10, [0, 0]))
                row["assignments"] = [
                    {"partition_index": index, "broker_ids": replicas} for index in indexes
                ]
                if not self.chance(20):
                    row |= {"num_partitions": -1, "replication_factor": -1}
            topics.append(row)
        self.session.ask(
            "CreateTopics",
            self.any_of((3, 7), (1, 5)),
            topics=topics,
            timeout_ms=TIMEOUT_MS,
            validate_only=self.chance(20),
        )

    def _configs(self) -> list[tuple[str, str | None]]:
        if not self.chance(30):
            return []
        return list(dict(self.some(CONFIGS)).items())

    def grow(self) -> None:
        """CreatePartitions."""
        row: dict[str, Any] = {"name": self.name(), "count": self.rng.randint(0, 6)}
        replicas = self.any_of((80, [1]), (5, []), (5, [7]), (5, [1, 1]))
        row["assignments"] = self.any_of(
            (75, None), (20, [{"broker_ids": replicas}]), (5, [{"broker_ids": replicas}] * 2)
        )
        self.session.ask(
            "CreatePartitions",
            3,
            topics=[row],
            timeout_ms=TIMEOUT_MS,
            validate_only=self.chance(20),
        )

    def delete(self) -> None:
        """DeleteTopics, by names and by ids."""
        rows: list[dict[str, Any]] = []
        for _ in range(self.any_of((85, 1), (15, 2))):
            name = self.name()
            by_id = {"name": None, "topic_id": self.ids.get(name, UNKNOWN_ID)}
            both = {"name": name, "topic_id": self.ids.get(name, UNKNOWN_ID)}
            rows.append(self.any_of((60, {"name": name}), (35, by_id), (5, both)))
        self.session.ask("DeleteTopics", 6, topics=rows, timeout_ms=TIMEOUT_MS)

    def describe(self) -> None:
        """DescribeTopicPartitions, perhaps from a cursor."""
        names = sorted(set(self.some([*self.names, *self.odd[:2]], 3)))
        cursor = {"topic_name": self.rng.choice(names), "partition_index": self.rng.randint(-1, 3)}
        self.session.ask(
            "DescribeTopicPartitions",
            0,
            topics=[{"name": name} for name in names],
            response_partition_limit=self.any_of((60, 2000), (30, 2), (10, 1)),
            cursor=self.any_of((60, None), (40, cursor)),
        )

    def elect(self) -> None:
        """ElectLeaders."""
        rows = [
            {"topic": self.name(), "partitions": self.any_of((70, [0]), (20, [0, 1]), (10, [9]))}
        ]
        self.session.ask(
            "ElectLeaders",
            2,
            election_type=self.any_of((60, 0), (35, 1), (5, 9)),
            topic_partitions=self.any_of((90, rows), (10, [])),
            timeout_ms=self.any_of((95, TIMEOUT_MS), (5, 0)),
        )

    def move(self) -> None:
        """AlterPartitionReassignments and ListPartitionReassignments."""
        if self.chance(40):
            rows = [{"name": self.name(), "partition_indexes": [0, 9]}]
            topics = self.any_of((70, rows), (30, None))
            self.session.ask("ListPartitionReassignments", 0, topics=topics, timeout_ms=TIMEOUT_MS)
            return
        replicas = self.any_of((50, [1]), (20, None), (10, [7]), (10, [1, 1]), (5, []), (5, [1, 7]))
        row = {"partition_index": self.any_of((85, 0), (15, 9)), "replicas": replicas}
        self.session.ask(
            "AlterPartitionReassignments",
            1,
            allow_replication_factor_change=not self.chance(30),
            topics=[{"name": self.name(), "partitions": [row]}],
            timeout_ms=TIMEOUT_MS,
        )

    def features(self) -> None:
        """UpdateFeatures that are only validated."""
        kinds = ("group.version", "share.version", "transaction.version", "metadata.version")
        row = {
            "feature": self.any_of((90, self.rng.choice(kinds)), (10, "none")),
            "max_version_level": self.rng.randint(-1, 3),
            "upgrade_type": self.rng.randint(0, 4),
        }
        self.session.ask(
            "UpdateFeatures",
            self.any_of((1, 1), (1, 2)),
            timeout_ms=TIMEOUT_MS,
            feature_updates=[row],
            validate_only=True,
        )


def walk(session: Session, rng: random.Random) -> None:
    """Fifty requests."""
    here = Topics(session, rng)
    for _ in range(STEPS):
        here.any_of(
            (30, Topics.create),
            (15, Topics.grow),
            (12, Topics.delete),
            (12, Topics.describe),
            (8, Topics.elect),
            (12, Topics.move),
            (8, Topics.features),
        )(here)
        here.settle()
        here.look()


KINDS = {"topics": walk}
