"""confluent-kafka (librdkafka) behind the JSON line protocol."""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from compat.clients.protocol import WAIT_S, Driver, Member, deadline, decoded, encoded


def record(message: Message) -> dict[str, Any]:
    if message.error():
        raise KafkaException(message.error())
    return {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": encoded(message.key()),
        "value": encoded(message.value()),
        "headers": [[name, encoded(value)] for name, value in message.headers() or []],
    }


def producer_config(request: dict[str, Any]) -> dict[str, Any]:
    return {
        "bootstrap.servers": request["bootstrap"],
        "acks": request["acks"],
        "enable.idempotence": request["idempotent"],
        "compression.type": request["codec"],
        "linger.ms": 5,
        "message.max.bytes": 20_000_000,
        "message.timeout.ms": 30_000,
    }


def transactional(request: dict[str, Any]) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": request["bootstrap"],
            "transactional.id": request["transactional_id"],
            "transaction.timeout.ms": request.get("timeout_ms", 60_000),
            "message.timeout.ms": request.get("delivery_timeout_ms", 0),
        }
    )
    if request.get("init", True):
        producer.init_transactions(block_s(request))
    return producer


def block_s(request: dict[str, Any]) -> float:
    """How long a call of a transactional producer may take."""
    return float(request.get("max_block_ms", WAIT_S * 1000)) / 1000


class GroupMember(Member):
    def open(self, request: dict[str, Any]) -> None:
        config = {
            "bootstrap.servers": request["bootstrap"],
            "group.id": request["group"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        if request.get("protocol"):
            config["group.protocol"] = request["protocol"]
        else:
            config["session.timeout.ms"] = request["session_timeout_ms"]
            config["heartbeat.interval.ms"] = 200
        if request.get("instance"):
            config["group.instance.id"] = request["instance"]
        self.consumer = Consumer(config)
        self.consumer.subscribe([request["topic"]])

    def poll(self) -> list[dict[str, Any]]:
        return [record(message) for message in self.consumer.consume(500, timeout=0.05)]

    def assignment(self) -> list[int]:
        return [partition.partition for partition in self.consumer.assignment()]

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


class Flood(threading.Thread):
    """An idempotent producer that numbers its records until told to stop; see test_kill.py."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.request = request
        self.acknowledged: list[int] = []
        self.failed: list[str] = []
        self.stopping = threading.Event()
        self.start()

    def run(self) -> None:
        request = {**self.request, "acks": "all", "idempotent": True, "codec": "none"}
        producer = Producer({**producer_config(request), "queue.buffering.max.messages": 500})
        number = 0
        while not self.stopping.is_set():
            try:
                producer.produce(
                    self.request["topic"],
                    value=b"%d" % number,
                    partition=number % self.request["partitions"],
                    on_delivery=self._delivered,
                )
            except BufferError:
                producer.poll(0.1)
            else:
                number += 1
                producer.poll(0)
        producer.flush(WAIT_S)

    def _delivered(self, error: Any, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged.append(int(message.value() or b""))


class ShareMember:
    """A member of a share group, and what it has polled."""

    def __init__(self, request: dict[str, Any]) -> None:
        places = {"bootstrap.servers": request["bootstrap"], "group.id": request["group"]}
        self.consumer = ShareConsumer({**places, **request["settings"]})
        self.consumer.subscribe([request["topic"]])
        self.polled: dict[int, Message] = {}

    def poll(self, wait_s: float) -> list[tuple[int, str, int]]:
        """The first records that come; none after the time is up."""
        over = deadline(wait_s)
        self.polled = {}
        while not self.polled and not over():
            for message in self.consumer.poll(0.1):
                record(message)
                self.polled[message.offset() or 0] = message
        return [
            (offset, (message.value() or b"").decode(), message.delivery_count() or 0)
            for offset, message in self.polled.items()
        ]

    def commit(self, marks: list[tuple[int, str]]) -> list[str]:
        """Acknowledge records and send that; the errors."""
        for offset, kind in marks:
            self.consumer.acknowledge(self.polled[offset], AcknowledgeType[kind])
        return [str(error) for error in self.consumer.commit_sync(WAIT_S).values() if error]


class LibrdkafkaDriver(Driver):
    member_class = GroupMember

    def __init__(self) -> None:
        super().__init__()
        self.producers: dict[str, Producer] = {}
        self.share_members: dict[str, ShareMember] = {}

    def do_produce(self, request: dict[str, Any]) -> dict[str, Any]:
        producer = Producer(producer_config(request))
        delivered: dict[int, list[int]] = {}
        errors: list[Any] = []
        for index, one in enumerate(request["records"]):

            def report(error: Any, message: Message, index: int = index) -> None:
                if error is not None:
                    errors.append(error)
                else:
                    offset = message.offset()
                    delivered[index] = [message.partition(), -1 if offset is None else offset]

            optional = {name: one[name] for name in ("timestamp", "partition") if name in one}
            producer.produce(
                request["topic"],
                key=decoded(one.get("key")),
                value=decoded(one.get("value")),
                headers=[(name, decoded(value)) for name, value in one.get("headers", [])],
                on_delivery=report,
                **optional,
            )
        assert producer.flush(WAIT_S) == 0, "records left in the queue"
        if errors:
            raise KafkaException(errors[0])
        return {"offsets": [delivered[index] for index in range(len(request["records"]))]}

    def do_flood(self, request: dict[str, Any]) -> dict[str, Any]:
        self.flooding = Flood(request)
        return {}

    def do_flooded(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("stop"):
            self.flooding.stopping.set()
            self.flooding.join(WAIT_S)
        answer: dict[str, Any] = {"count": len(self.flooding.acknowledged)}
        if request.get("stop"):
            answer["acknowledged"] = self.flooding.acknowledged
            answer["failed"] = self.flooding.failed
        return answer

    def do_share_open(self, request: dict[str, Any]) -> dict[str, Any]:
        self.share_members[request["member"]] = ShareMember(request)
        return {}

    def do_share_poll(self, request: dict[str, Any]) -> dict[str, Any]:
        member = self.share_members[request["member"]]
        return {"records": member.poll(request["wait_ms"] / 1000)}

    def do_share_commit(self, request: dict[str, Any]) -> dict[str, Any]:
        member = self.share_members[request["member"]]
        return {"errors": member.commit(request["marks"])}

    def do_share_close(self, request: dict[str, Any]) -> dict[str, Any]:
        self.share_members.pop(request["member"]).consumer.close()
        return {}

    def do_txn_open(self, request: dict[str, Any]) -> dict[str, Any]:
        self.producers[request["producer"]] = transactional(request)
        return {}

    def do_txn_init(self, request: dict[str, Any]) -> dict[str, Any]:
        self.producers[request["producer"]].init_transactions(block_s(request))
        return {}

    def do_txn_offsets(self, request: dict[str, Any]) -> dict[str, Any]:
        place = TopicPartition(
            request["topic"], request["partition"], request["offset"], request.get("metadata", "")
        )
        member = Consumer({"bootstrap.servers": request["bootstrap"], "group.id": request["group"]})
        self.producers[request["producer"]].send_offsets_to_transaction(
            [place], member.consumer_group_metadata(), block_s(request)
        )
        member.close()
        return {}

    def do_txn_send(self, request: dict[str, Any]) -> dict[str, Any]:
        producer = self.producers[request["producer"]]
        if request["begin"]:
            producer.begin_transaction()
        errors: list[Any] = []

        def report(error: Any, message: Message) -> None:
            del message
            if error is not None:
                errors.append(error)

        for one in request["records"]:
            producer.produce(
                request["topic"],
                decoded(one["value"]),
                partition=one["partition"],
                timestamp=one.get("timestamp") or 0,
                on_delivery=report,
            )
        try:
            left = producer.flush(WAIT_S)
        except SystemError as error:  # confluent-kafka 2.16: it called back with an error pending
            raise error.__cause__ or error from None
        assert left == 0, "records left in the queue"
        if errors:
            raise KafkaException(errors[0])
        return {}

    def do_txn_end(self, request: dict[str, Any]) -> dict[str, Any]:
        producer = self.producers[request["producer"]]
        if request["commit"]:
            producer.commit_transaction(block_s(request))
        else:
            producer.abort_transaction(block_s(request))
        return {}

    def do_txn_close(self, request: dict[str, Any]) -> dict[str, Any]:
        self.producers.pop(request["producer"])
        return {}

    def do_copy(self, request: dict[str, Any]) -> dict[str, Any]:
        consumer = Consumer(
            {
                "bootstrap.servers": request["bootstrap"],
                "group.id": request["group"],
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "group.protocol": request.get("protocol") or "classic",
            }
        )
        consumer.subscribe([request["topic"]])
        try:
            return {"copied": self._copied(consumer, request)}
        finally:
            consumer.close()

    def _copied(self, consumer: Consumer, request: dict[str, Any]) -> int:
        producer = transactional(request)
        producer.begin_transaction()
        copied, over = 0, deadline()
        while copied < request["count"] and not over():
            for message in consumer.consume(request["count"] - copied, timeout=0.2):
                record(message)
                producer.produce(request["to"], message.value(), partition=0)
                copied += 1
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
        if request["commit"]:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
        return copied

    def do_consume(self, request: dict[str, Any]) -> dict[str, Any]:
        config = {
            "bootstrap.servers": request["bootstrap"],
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.min.bytes": request.get("fetch_min_bytes", 1),
            "fetch.wait.max.ms": request.get("fetch_max_wait_ms", 500),
        }
        if "committed" in request:  # its default is read_committed, unlike all others'
            level = "read_committed" if request["committed"] else "read_uncommitted"
            config["isolation.level"] = level
        consumer = Consumer(config)
        start = -2 if request["from"] == "earliest" else request["from"]
        consumer.assign([TopicPartition(request["topic"], request["partition"], start)])
        records: list[dict[str, Any]] = []
        over = deadline()
        while len(records) < request["count"] and not over():
            records += map(record, consumer.consume(request["count"] - len(records), timeout=0.2))
        consumer.close()
        return {"records": records}

    def do_committed(self, request: dict[str, Any]) -> dict[str, Any]:
        consumer = Consumer(
            {"bootstrap.servers": request["bootstrap"], "group.id": request["group"]}
        )
        wanted = TopicPartition(request["topic"], request["partition"])
        found = consumer.committed([wanted], timeout=WAIT_S)[0]
        consumer.close()
        return {"offset": max(found.offset, -1), "metadata": found.metadata}

    def do_offsets(self, request: dict[str, Any]) -> dict[str, Any]:
        specials = {"earliest": OffsetSpec.earliest(), "latest": OffsetSpec.latest()}
        at = request["at"]
        spec = specials[at] if at in specials else OffsetSpec.for_timestamp(at)
        partition = TopicPartition(request["topic"], request["partition"])
        return {"offset": self._result(request, "list_offsets", {partition: spec}).offset}

    def _result(self, request: dict[str, Any], call: str, argument: Any) -> Any:
        admin = AdminClient({"bootstrap.servers": request["bootstrap"]})
        futures = getattr(admin, call)(argument)
        return next(iter(futures.values())).result(WAIT_S)

    def do_create_topic(self, request: dict[str, Any]) -> dict[str, Any]:
        topic = NewTopic(
            request["topic"],
            num_partitions=request["partitions"],
            replication_factor=1,
            config=request.get("configs", {}),
        )
        self._result(request, "create_topics", [topic])
        return {}

    def do_delete_topic(self, request: dict[str, Any]) -> dict[str, Any]:
        self._result(request, "delete_topics", [request["topic"]])
        return {}

    def do_topics(self, request: dict[str, Any]) -> dict[str, Any]:
        admin = AdminClient({"bootstrap.servers": request["bootstrap"]})
        return {"topics": sorted(admin.list_topics(timeout=WAIT_S).topics)}

    def do_describe_topic(self, request: dict[str, Any]) -> dict[str, Any]:
        admin = AdminClient({"bootstrap.servers": request["bootstrap"]})
        topic = admin.list_topics(request["topic"], timeout=WAIT_S).topics[request["topic"]]
        if topic.error is not None:
            raise KafkaException(topic.error)
        return {"partitions": len(topic.partitions), "leader": topic.partitions[0].leader}

    def do_delete_records(self, request: dict[str, Any]) -> dict[str, Any]:
        wanted = TopicPartition(request["topic"], request["partition"], request["before"])
        return {"low_watermark": self._result(request, "delete_records", [wanted]).low_watermark}


if __name__ == "__main__":
    LibrdkafkaDriver().serve()
