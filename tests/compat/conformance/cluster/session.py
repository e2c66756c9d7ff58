"""One case against three brokers: each has a connection by its node id, "1", "2" and "3"."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from compat.conformance.session import ANSWER_TIMEOUT_S, NONE, PATIENCE_MS, WAIT_S, Session
from compat.raw import RawConnection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from compat.conformance.registry import Run

NOT_LEADER = 6
CONTROLLER = "<controller>"


class ClusterSession(Session):
    """`ask(..., connection="2")` asks the second broker; without it, the first."""

    def __init__(self, run: Run, addresses: Mapping[int, str], nonce: str = "") -> None:
        super().__init__(run, ",".join(addresses.values()), nonce)
        self._addresses = addresses
        self.alive: list[int] = list(addresses)
        self.kept: dict[str, Any] = {}  # what a case prepared while all brokers were there

    def close(self) -> None:
        """Close all connections; who asks again opens new ones."""
        super().close()
        self._connections.clear()

    def connection(self, name: str = "main") -> RawConnection:
        """A connection by node id; "2:again" is another to the second broker."""
        if name not in self._connections:
            node_id = 1 if name == "main" else int(name.partition(":")[0])
            address = self._addresses[node_id]
            self._connections[name] = RawConnection(address, ANSWER_TIMEOUT_S)
        return self._connections[name]

    def address_of(self, node_id: int) -> str:
        """Where a broker is."""
        return self._addresses[node_id]

    def record(self, api: str, answer: Any) -> None:
        """Who is the active controller is each cluster's own affair."""
        if isinstance(answer, dict) and answer.get("controller_id") in self.alive:
            answer = {**answer, "controller_id": CONTROLLER}
        super().record(api, answer)

    def at_each(self, api: str, version: int, **fields: Any) -> None:
        """Ask every broker that is there the same."""
        for node_id in self.alive:
            self.ask(api, version, connection=str(node_id), **fields)

    def wait(self, what: str, api: str, version: int, wanted: Any, **fields: Any) -> dict[str, Any]:
        """Ask until `wanted(answer)`, unrecorded; TimeoutError with the last answer."""
        end = time.monotonic() + WAIT_S
        while True:
            answer = self.quietly(api, version, **fields)
            if wanted(answer):
                return answer
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: {answer!r:.500}")
            time.sleep(0.02)

    # Things cases need, not recorded.

    def replicated(self, *replicas: Sequence[int], **configs: str) -> str:
        """A new topic with a partition for each list of replicas, known to all who are there.

        The first of each list leads, if it is there.
        """
        self._topics += 1
        name = f"{self.name}.{self._topics}"
        rows = [
            {"partition_index": index, "broker_ids": list(ids)}
            for index, ids in enumerate(replicas)
        ]
        wanted = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": rows,
            "configs": [
                {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
            ],
        }
        made = self.quietly("CreateTopics", 7, topics=[wanted], timeout_ms=PATIENCE_MS)
        assert made["topics"][0]["error_code"] == NONE, made
        for node_id in self.alive:
            self.await_leaders(name, replicas, node_id)
        return name

    def await_leaders(self, name: str, replicas: Sequence[Sequence[int]], node_id: int) -> None:
        """Wait until a broker knows all partitions and does its part in those it has."""
        leaders = [next((one for one in ids if one in self.alive), -1) for ids in replicas]
        asked = [{"partition_index": index, "timestamp": -2} for index in range(len(replicas))]
        expected = [NONE if leader == node_id else NOT_LEADER for leader in leaders]

        def known(answer: dict[str, Any]) -> bool:
            rows = answer["topics"][0]["partitions"]
            by_index = {one["partition_index"]: one["error_code"] for one in rows}
            return [by_index[index] for index in range(len(replicas))] == expected

        self.wait(
            f"{name} at {node_id}",
            "ListOffsets",
            1,
            known,
            connection=str(node_id),
            replica_id=-1,
            topics=[{"name": name, "partitions": asked}],
        )

    def partition(self, name: str, index: int = 0, node_id: int = 1) -> dict[str, Any]:
        """A partition as a broker's metadata has it; empty if it has none."""
        fields: dict[str, Any] = {"allow_auto_topic_creation": False}
        answer = self.quietly(
            "Metadata", 12, topics=[{"name": name}], connection=str(node_id), **fields
        )
        rows = answer["topics"][0]["partitions"]
        return next((one for one in rows if one["partition_index"] == index), {})

    def await_partition(self, name: str, index: int = 0, **wanted: Any) -> None:
        """Wait until every broker's metadata shows these values; of the ISR its set counts."""
        for node_id in self.alive:
            end = time.monotonic() + WAIT_S
            while not _has(seen := self.partition(name, index, node_id), wanted):
                if time.monotonic() > end:
                    raise TimeoutError(f"{name} at {node_id} is not {wanted}: {seen}")
                time.sleep(0.02)

    def moved_to(self, name: str, replicas: Sequence[int]) -> None:
        """Order the replicas of partition 0 anew and let the first of them lead."""
        row = {"partition_index": 0, "replicas": list(replicas)}
        topics = [{"name": name, "partitions": [row]}]
        answer = self.quietly(
            "AlterPartitionReassignments", 0, topics=topics, timeout_ms=PATIENCE_MS
        )
        assert not answer["error_code"], answer
        assert not answer["responses"][0]["partitions"][0]["error_code"], answer
        self.await_partition(name, replica_nodes=replicas)
        self.prefer(name)
        self.await_partition(name, leader_id=replicas[0])
        self.await_leaders(name, [replicas], replicas[0])

    def prefer(self, name: str, partitions: Iterable[int] = (0,)) -> None:
        """Elect the preferred leaders."""
        asked = [{"topic": name, "partitions": list(partitions)}]
        self.quietly("ElectLeaders", 2, topic_partitions=asked, timeout_ms=PATIENCE_MS)

    def produce_at(self, node_id: int, topic: str, *batches: bytes, partition: int = 0) -> None:
        """Append batches at a leader, each in sync before the next."""
        for batch in batches:
            data = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
            answer = self.quietly(
                "Produce",
                9,
                connection=str(node_id),
                acks=-1,
                timeout_ms=PATIENCE_MS,
                topic_data=data,
            )
            done = answer["responses"][0]["partition_responses"][0]
            assert done["error_code"] == NONE, done


def _has(seen: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """The order in which replicas came into the ISR is a matter of time."""
    for key, value in wanted.items():
        shown = seen.get(key)
        if key == "isr_nodes" and shown is not None:
            shown, value = sorted(shown), sorted(value)
        if shown != (list(value) if isinstance(value, tuple) else value):
            return False
    return True
