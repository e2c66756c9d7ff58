"""One case against one broker: its connections, the answers, and the transcript to compare."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from compat.conformance.messages import APIS, decode, encode, request_payload
from compat.conformance.normalise import Normaliser
from compat.raw import RawConnection

if TYPE_CHECKING:
    from compat.conformance.registry import Run

CLOSED = {"closed": "without an answer"}
NONE = 0
RETRIABLE_AT_FIRST = (5, 14, 15, 16)
"""Leader or coordinator not there yet: both brokers may say so for a moment after a creation."""
WAIT_S = 150.0  # bounds of what a busy machine may take, and never what is compared
ANSWER_TIMEOUT_S = 100.0
PATIENCE_MS = 60_000


class Session:
    """What a case is given. `ask` is recorded, `quietly` is not."""

    def __init__(self, run: Run, bootstrap: str, nonce: str = "") -> None:
        self.run = run
        self.name = run.key + nonce
        self.transcript: list[dict[str, Any]] = []
        self._bootstrap = bootstrap
        self._normaliser = Normaliser(bootstrap)
        self._connections: dict[str, RawConnection] = {}
        self._correlation_id = 100
        self._topics = 0

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def connection(self, name: str = "main") -> RawConnection:
        """A connection by name, opened on first use."""
        if name not in self._connections:
            self._connections[name] = RawConnection(self._bootstrap, ANSWER_TIMEOUT_S)
        return self._connections[name]

    def disconnect(self, name: str = "main") -> None:
        self._connections.pop(name).close()

    def send(
        self, api: str, version: int, *, connection: str = "main", **fields: Any
    ) -> tuple[str, int]:
        """Send without waiting; give what it returns to `receive`."""
        self._correlation_id += 1
        tables = APIS[api]
        body = encode(tables, version, fields)
        payload = request_payload(tables, version, self._correlation_id, "conformance", body)
        self.connection(connection).send_frame(payload)
        return connection, self._correlation_id

    def receive(
        self, api: str, version: int, sent: tuple[str, int], record: bool = True
    ) -> dict[str, Any]:
        """The answer to what `send` sent, recorded."""
        connection, correlation_id = sent
        frame = self.connection(connection).read_frame()
        if frame is None:
            self.disconnect(connection)
            answer = dict(CLOSED)
        else:
            assert int.from_bytes(frame[:4]) == correlation_id
            answer = decode(APIS[api], version, frame)
        if record:
            self.record(api, answer)
        return answer

    def ask(self, api: str, version: int, **fields: Any) -> dict[str, Any]:
        """Send, wait, record."""
        return self.receive(api, version, self.send(api, version, **fields))

    def quietly(self, api: str, version: int, **fields: Any) -> dict[str, Any]:
        """Send and wait; the answer is only for the case itself."""
        return self.receive(api, version, self.send(api, version, **fields), record=False)

    def ask_until(self, api: str, version: int, wanted: Any, **fields: Any) -> dict[str, Any]:
        """Ask until `wanted(answer)`, record the last answer: for what settles after a moment."""
        end = time.monotonic() + WAIT_S
        while True:
            answer = self.quietly(api, version, **fields)
            if answer == CLOSED or wanted(answer) or time.monotonic() > end:
                self.record(api, answer)
                return answer
            time.sleep(0.02)

    def record(self, api: str, answer: Any) -> None:
        """Add something to what is compared."""
        self.transcript.append({"api": api, "answer": self._normaliser.normal(api, answer)})

    # Things cases need, not recorded.

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """A new topic whose leaders are known."""
        self._topics += 1
        name = f"{self.name}.{self._topics}"
        wanted = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [
                {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
            ],
        }
        made = self.quietly("CreateTopics", 7, topics=[wanted], timeout_ms=PATIENCE_MS)
        assert made["topics"][0]["error_code"] == NONE, made
        self.await_topic(name, partitions)
        return name

    def await_topic(self, name: str, partitions: int = 1) -> dict[str, Any]:
        """Wait until metadata shows the topic, and its leaders answer as such."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            topic = self.await_topic_known(name)
            if len(topic["partitions"]) == partitions and self._led(name, partitions):
                return topic
            time.sleep(0.01)
        raise TimeoutError(f"no leaders of {name}")

    def _led(self, name: str, partitions: int) -> bool:
        asked = [{"partition_index": index, "timestamp": -2} for index in range(partitions)]
        topics = [{"name": name, "partitions": asked}]
        answer = self.quietly("ListOffsets", 1, replica_id=-1, topics=topics)
        return not any(one["error_code"] for one in answer["topics"][0]["partitions"])

    def topic_id(self, name: str) -> bytes:
        return self.await_topic_known(name)["topic_id"]

    def await_topic_known(self, name: str) -> dict[str, Any]:
        fields = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        topic: dict[str, Any] = self.quietly("Metadata", 12, **fields)["topics"][0]
        return topic

    def produce(self, topic: str, *batches: bytes, partition: int = 0) -> None:
        """Append batches, one request each, in version 9 (by name)."""
        for batch in batches:
            data = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
            answer = self.quietly("Produce", 9, acks=-1, timeout_ms=PATIENCE_MS, topic_data=data)
            done = answer["responses"][0]["partition_responses"][0]
            assert done["error_code"] == NONE, done

    def coordinator(self) -> None:
        """Wait until the group coordinator of this case's group has loaded."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            found = self.quietly("FindCoordinator", 0, key=self.name)
            if found["error_code"] == NONE:
                fields = {"group_id": self.name, "generation_id": 1, "member_id": "nobody"}
                code = self.quietly("Heartbeat", 0, **fields)["error_code"]
                if code not in RETRIABLE_AT_FIRST:
                    return
            time.sleep(0.05)
        raise TimeoutError("no group coordinator")
