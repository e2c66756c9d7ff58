"""One case against two brokers with a remote tier, and what its topics are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.batches import TIME, batch
from compat.conformance.cluster.session import ClusterSession
from compat.conformance.session import NONE
from tidelog_protocol.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from compat.conformance.registry import Run
    from compat.conformance.tiered.console import Console
    from compat.conformance.tiered.layouts import Layouts

EARLIEST, LATEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -2, -1, -4, -5, -6
DEBUGGING = -2  # a "replica" that may ask followers, too
TOPIC_RESOURCE, SET, DELETE = 2, 0, 1
SECOND_MS = 1000
UNKNOWN_MEMBER = 25


def one(offset: int, *, producer: Mapping[str, Any] | None = None) -> bytes:
    """The batch of one record that stands at this offset: a second after the one before it."""
    record = Record(0, TIME + offset * SECOND_MS, b"k%d" % offset, b"v%d" % offset)
    return batch([record], **(producer or {}))


def several(first: int, behind: int) -> list[bytes]:
    """The batches of offsets from `first` to before `behind`."""
    return [one(offset) for offset in range(first, behind)]


class TieredSession(ClusterSession):
    """A session that makes topics of small segments and waits for what the tier does by itself."""

    def __init__(
        self,
        run: Run,
        addresses: Mapping[int, str],
        nonce: str = "",
        layouts: Layouts | None = None,
        console: Console | None = None,
        tier: Path | None = None,
    ) -> None:
        super().__init__(run, addresses, nonce)
        self._layouts = layouts
        self._console = console
        self._tier = tier

    @property
    def layouts(self) -> Layouts:
        """Topics that all cases read, and none changes."""
        assert self._layouts is not None, "layouts are made without others"
        return self._layouts

    def tool(self, main: str, *args: str) -> None:
        """Run a console tool, record what it says."""
        assert self._console is not None
        result = self._console.run(main, *args)
        lines = [line.split() for line in result.out.splitlines() if line.strip()]
        self.record(main, {"asked": list(args), "exit": result.exit, "out": lines})

    def lose(self, topic: str, ending: str) -> None:
        """Remove a topic's objects of one kind from the tier, behind the brokers' backs."""
        assert self._tier is not None
        lost = [
            path
            for path in self._tier.rglob(f"*{ending}")
            if path.parent.name.startswith(f"{topic}-0-")
        ]
        assert lost, f"nothing of {topic} in {self._tier}"
        for path in lost:
            path.unlink()

    def group_coordinator(self) -> None:
        """Wait until the coordinator of this case's group is there and has loaded."""
        found = self.wait(
            "a coordinator",
            "FindCoordinator",
            1,
            lambda answer: answer["error_code"] == NONE,
            key=self.name,
        )
        self.wait(
            "it has loaded",
            "Heartbeat",
            0,
            lambda answer: answer["error_code"] == UNKNOWN_MEMBER,
            connection=str(found["node_id"]),
            group_id=self.name,
            generation_id=1,
            member_id="nobody",
        )

    def tiered(self, *replicas: Sequence[int], batches: int = 2, **configs: str) -> str:
        """A new topic with `remote.storage.enable` whose segments take so many batches.

        What is copied leaves the local log, unless the configuration says otherwise.
        """
        wanted = {"remote_storage_enable": "true", "local_retention_bytes": "1", **configs}
        return self.small_segments(*replicas, batches=batches, **wanted)

    def all_tiered(self, *replicas: Sequence[int]) -> str:
        """A new topic of three records of which its leader will have none. Retention comes after
        them: it would roll wherever it found the end."""
        topic = self.tiered(*replicas)
        self.produce_at(1, topic, *several(0, 3))
        self.set_configs(topic, local_retention_ms="1")
        self.await_offset(topic, LATEST_TIERED, 2)
        self.await_offset(topic, EARLIEST_LOCAL, 3)
        return topic

    def small_segments(self, *replicas: Sequence[int], batches: int = 2, **configs: str) -> str:
        """A new topic whose segments take so many batches: their time indexes are full then."""
        sizes = {"index_interval_bytes": "1", "segment_index_bytes": str(12 * batches)}
        return self.replicated(*(replicas or ([1, 2],)), **sizes, **configs)

    def listed(
        self, topic: str, timestamp: int, partition: int = 0, node: str = "1", version: int = 11
    ) -> dict[str, Any]:
        """One partition's answer of ListOffsets, unrecorded."""
        rows = [{"partition_index": partition, "timestamp": timestamp}]
        topics = [{"name": topic, "partitions": rows}]
        who = -1 if node == "1" else DEBUGGING
        answer = self.quietly(
            "ListOffsets",
            version,
            connection=node,
            replica_id=who,
            topics=topics,
            timeout_ms=60_000,
        )
        found: dict[str, Any] = answer["topics"][0]["partitions"][0]
        return found

    def await_offset(
        self, topic: str, timestamp: int, offset: int, partition: int = 0, node: str = "1"
    ) -> None:
        """Wait until ListOffsets answers this offset for one of its special timestamps."""
        rows = [{"partition_index": partition, "timestamp": timestamp}]
        self.wait(
            f"{topic}-{partition} at {node}: {timestamp} is {offset}",
            "ListOffsets",
            11,
            lambda answer: answer["topics"][0]["partitions"][0]["offset"] == offset,
            connection=node,
            replica_id=DEBUGGING,
            topics=[{"name": topic, "partitions": rows}],
            timeout_ms=60_000,
        )

    def await_tier(self, topic: str, *, local: int, tiered: int, partition: int = 0) -> None:
        """Wait until the local logs of both brokers begin at `local` and the tier ends with
        `tiered`."""
        for node_id in self.alive:
            self.await_offset(topic, LATEST_TIERED, tiered, partition, str(node_id))
            self.await_offset(topic, EARLIEST_LOCAL, local, partition, str(node_id))

    def set_configs(self, topic: str, **values: str | None) -> None:
        """Set (or with None remove) a topic's configuration; wait until both brokers have it."""
        rows = [
            {
                "name": key.replace("_", "."),
                "config_operation": DELETE if value is None else SET,
                "value": value,
            }
            for key, value in values.items()
        ]
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configs": rows}
        answer = self.quietly("IncrementalAlterConfigs", 1, resources=[resource])
        assert answer["responses"][0]["error_code"] == NONE, answer
        self.await_configs(topic, **values)

    def await_configs(self, topic: str, **values: str | None) -> None:
        """Wait until both brokers describe a topic so."""
        wanted = {key.replace("_", "."): value for key, value in values.items()}
        asked = {
            "resource_type": TOPIC_RESOURCE,
            "resource_name": topic,
            "configuration_keys": list(wanted),
        }

        def known(answer: dict[str, Any]) -> bool:
            listed = answer["results"][0]["configs"]
            shown = {each["name"]: each["value"] for each in listed}
            return all(value in (None, shown.get(key)) for key, value in wanted.items())

        for node_id in self.alive:
            self.wait(
                f"{topic} has {wanted}",
                "DescribeConfigs",
                4,
                known,
                connection=str(node_id),
                resources=[asked],
            )

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> None:
        """Raise the log start offset, at the first broker, which leads."""
        rows = [{"partition_index": partition, "offset": offset}]
        topics = [{"name": topic, "partitions": rows}]
        answer = self.quietly("DeleteRecords", 2, topics=topics, timeout_ms=60_000)
        assert answer["topics"][0]["partitions"][0]["error_code"] == NONE, answer
