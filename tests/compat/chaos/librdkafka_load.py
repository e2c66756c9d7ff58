"""librdkafka (confluent-kafka) as the load program that `load.py` describes."""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from compat.clients.protocol import Driver, deadline

TICK_S = 0.005
UNANSWERED_MAX = 2000  # what piles up while nobody answers
# Of the client's own errors (a broker that is away is one) those that say: records are gone.
_FATAL = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION)


class Producing(threading.Thread):
    """Numbers every partition's records, round robin, at a steady rate."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.request = request
        self.acknowledged: list[tuple[int, ...]] = []
        self.asked: dict[tuple[int, int], int] = {}  # when each was sent
        self.failed: list[str] = []
        self.counts = [0] * request["partitions"]
        self.stopping = threading.Event()
        self.producer = Producer(
            {
                "bootstrap.servers": request["bootstrap"],
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        try:
            self._produce()
        except Exception as error:  # noqa: BLE001 - a fatal error of the client's, for the test
            self.failed.append(str(error))

    def _produce(self) -> None:
        topic, partitions = self.request["topic"], self.request["partitions"]
        sent = 0
        allowed, then = 0.0, time.monotonic()
        while not self.stopping.is_set():
            since, then = then, time.monotonic()
            allowed = min(allowed + self.request["rate"] * (then - since), UNANSWERED_MAX)
            while allowed >= 1 and sent - len(self.acknowledged) < UNANSWERED_MAX:
                number, partition = divmod(sent, partitions)
                value = f"{self.request['producer']} {partition} {number} ".encode()
                self.asked[partition, number] = time.monotonic_ns()
                self.producer.produce(
                    topic, value.ljust(200, b"."), partition=partition, on_delivery=self._delivered
                )
                sent += 1
                allowed -= 1
            self.producer.poll(TICK_S)

    def _delivered(self, error: Any, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        _, _, number, _ = (message.value() or b"").split()
        partition, offset = message.partition() or 0, message.offset()
        place = -1 if offset is None else offset
        asked = self.asked.pop((partition, int(number)))
        self.acknowledged.append((partition, int(number), place, asked, time.monotonic_ns()))
        self.counts[partition] += 1


class Following(threading.Thread):
    """A consumer that goes on over all faults and notes what it saw."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[int, int, int, int, str]] = []
        self.failed: list[str] = []
        self.stopping = threading.Event()
        self.consumer = Consumer(
            {
                "bootstrap.servers": request["bootstrap"],
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        partitions = range(request["partitions"])
        self.consumer.assign([TopicPartition(request["topic"], index, 0) for index in partitions])

    def run(self) -> None:
        while not self.stopping.is_set():
            asked = time.monotonic_ns()
            messages = self.consumer.consume(1000, timeout=0.1)
            times = (asked, time.monotonic_ns())
            for message in messages:
                error = message.error()
                if error is None:
                    text = " ".join((message.value() or b"").decode().split()[:3])
                    place = (message.partition() or 0, message.offset() or 0)
                    self.seen.append((*place, *times, text))
                elif error.code() in _FATAL or (not error.retriable() and error.code() >= 0):
                    self.failed.append(str(error))
        self.consumer.close()


class LibrdkafkaLoad(Driver):
    def __init__(self) -> None:
        super().__init__()
        self.readers: dict[str, Following] = {}

    def do_create_topic(self, request: dict[str, Any]) -> dict[str, Any]:
        admin = AdminClient({"bootstrap.servers": request["bootstrap"], "log_level": 0})
        topic = NewTopic(request["topic"], request["partitions"], 3, config=request["configs"])
        for done in admin.create_topics([topic]).values():
            done.result(30)
        return {}

    def do_replicas(self, request: dict[str, Any]) -> dict[str, Any]:
        topic = self.producing.request["topic"]
        try:
            known = self.producing.producer.list_topics(topic, timeout=5).topics[topic].partitions
        except KafkaException:
            known = {}
        return {
            "leaders": [known[index].leader for index in sorted(known)],
            "in_sync": [sorted(known[index].isrs) for index in sorted(known)],
        }

    def do_start(self, request: dict[str, Any]) -> dict[str, Any]:
        self.producing = Producing(request)
        self.producing.start()
        return {}

    def do_count(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"each": self.producing.counts, "failed": self.producing.failed}

    def do_finish(self, request: dict[str, Any]) -> dict[str, Any]:
        self.producing.stopping.set()
        self.producing.join()
        left = self.producing.producer.flush(request["timeout_ms"] / 1000)
        with open(request["file"], "w") as file:
            file.writelines(map(_line, self.producing.acknowledged))
        count = len(self.producing.acknowledged)
        return {"acknowledged": count, "left": left, "failed": self.producing.failed}

    def do_follow(self, request: dict[str, Any]) -> dict[str, Any]:
        reader = self.readers[request["reader"]] = Following(request)
        reader.start()
        return {}

    def do_followed(self, request: dict[str, Any]) -> dict[str, Any]:
        reader = self.readers[request["reader"]]
        over = deadline(request["timeout_ms"] / 1000)
        while len(reader.seen) < request["records"] and not over():
            time.sleep(0.05)
        reader.stopping.set()
        reader.join()
        with open(request["file"], "w") as file:
            file.writelines(map(_line, reader.seen))
        return {"records": len(reader.seen), "failed": reader.failed}


def _line(entry: tuple[Any, ...]) -> str:
    return " ".join(map(str, entry)) + "\n"


if __name__ == "__main__":
    LibrdkafkaLoad().serve()
