"""kafka-python 3 behind the JSON line protocol."""

from __future__ import annotations

from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import OffsetSpec
from kafka.structs import OffsetAndMetadata

from compat.clients.protocol import WAIT_S, Driver, Member, deadline, decoded, encoded


def record(message: Any) -> dict[str, Any]:
    return {
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "key": encoded(message.key),
        "value": encoded(message.value),
        "headers": [[name, encoded(value)] for name, value in message.headers],
    }


def polled(consumer: Any, timeout_ms: int) -> list[dict[str, Any]]:
    batches = consumer.poll(timeout_ms=timeout_ms)
    return [record(message) for batch in batches.values() for message in batch]


class GroupMember(Member):
    def open(self, request: dict[str, Any]) -> None:
        self.consumer = KafkaConsumer(
            request["topic"],
            bootstrap_servers=request["bootstrap"],
            group_id=request["group"],
            group_instance_id=request.get("instance"),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=request["session_timeout_ms"],
            heartbeat_interval_ms=200,
        )

    def poll(self) -> list[dict[str, Any]]:
        # Shorter polls end in the middle of its joins: then one of three members may stay without
        # partitions, on Apache Kafka as well.
        return polled(self.consumer, 500)

    def assignment(self) -> list[int]:
        return [partition.partition for partition in self.consumer.assignment()]

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close(autocommit=False)


def transactional(request: dict[str, Any]) -> KafkaProducer:
    producer = KafkaProducer(
        bootstrap_servers=request["bootstrap"],
        transactional_id=request["transactional_id"],
        transaction_timeout_ms=request.get("timeout_ms", 60_000),
    )
    producer.init_transactions()
    return producer


def end(producer: KafkaProducer, *, commit: bool) -> None:
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()


class KafkaPythonDriver(Driver):
    member_class = GroupMember

    def __init__(self) -> None:
        super().__init__()
        self.producers: dict[str, KafkaProducer] = {}

    def do_txn_open(self, request: dict[str, Any]) -> dict[str, Any]:
        self.producers[request["producer"]] = transactional(request)
        return {}

    def do_txn_send(self, request: dict[str, Any]) -> dict[str, Any]:
        producer = self.producers[request["producer"]]
        if request["begin"]:
            producer.begin_transaction()
        futures = [
            producer.send(request["topic"], decoded(one["value"]), partition=one["partition"])
            for one in request["records"]
        ]
        producer.flush(WAIT_S)
        for future in futures:
            future.get(WAIT_S)
        return {}

    def do_txn_end(self, request: dict[str, Any]) -> dict[str, Any]:
        end(self.producers[request["producer"]], commit=request["commit"])
        return {}

    def do_txn_close(self, request: dict[str, Any]) -> dict[str, Any]:
        self.producers.pop(request["producer"]).close()
        return {}

    def do_copy(self, request: dict[str, Any]) -> dict[str, Any]:
        consumer = KafkaConsumer(
            request["topic"],
            bootstrap_servers=request["bootstrap"],
            group_id=request["group"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        try:
            producer = transactional(request)
            try:
                return {"copied": self._copied(consumer, producer, request)}
            finally:
                producer.close()
        finally:
            consumer.close(autocommit=False)

    def _copied(
        self, consumer: KafkaConsumer, producer: KafkaProducer, request: dict[str, Any]
    ) -> int:
        producer.begin_transaction()
        copied, over = 0, deadline()
        while copied < request["count"] and not over():
            left = request["count"] - copied
            for batch in consumer.poll(timeout_ms=500, max_records=left).values():
                for message in batch:
                    producer.send(request["to"], message.value, partition=0)
                    copied += 1
        offsets = {
            partition: OffsetAndMetadata(consumer.position(partition), "", -1)
            for partition in consumer.assignment()
        }
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        end(producer, commit=request["commit"])
        return copied

    def do_produce(self, request: dict[str, Any]) -> dict[str, Any]:
        producer = KafkaProducer(
            bootstrap_servers=request["bootstrap"],
            acks=request["acks"] if request["acks"] == "all" else int(request["acks"]),
            enable_idempotence=request["idempotent"],
            compression_type=None if request["codec"] == "none" else request["codec"],
            linger_ms=5,
            max_request_size=20_000_000,
        )
        futures = [
            producer.send(
                request["topic"],
                key=decoded(one.get("key")),
                value=decoded(one.get("value")),
                headers=[(name, decoded(value)) for name, value in one.get("headers", [])],
                partition=one.get("partition"),
                timestamp_ms=one.get("timestamp"),
            )
            for one in request["records"]
        ]
        producer.flush(WAIT_S)
        sent = [future.get(WAIT_S) for future in futures]
        producer.close()
        return {"offsets": [[metadata.partition, metadata.offset] for metadata in sent]}

    def do_consume(self, request: dict[str, Any]) -> dict[str, Any]:
        consumer = KafkaConsumer(
            bootstrap_servers=request["bootstrap"],
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed" if request.get("committed") else "read_uncommitted",
        )
        partition = TopicPartition(request["topic"], request["partition"])
        consumer.assign([partition])
        if request["from"] == "earliest":
            consumer.seek_to_beginning(partition)
        else:
            consumer.seek(partition, request["from"])
        records: list[dict[str, Any]] = []
        over = deadline()
        while len(records) < request["count"] and not over():
            records += polled(consumer, 200)
        consumer.close()
        return {"records": records}

    def _admin(self, request: dict[str, Any], call: str, *arguments: Any) -> Any:
        admin = KafkaAdminClient(bootstrap_servers=request["bootstrap"])
        try:
            return getattr(admin, call)(*arguments)
        finally:
            admin.close()

    def do_committed(self, request: dict[str, Any]) -> dict[str, Any]:
        partition = TopicPartition(request["topic"], request["partition"])
        groups = {request["group"]: [partition]}
        found = self._admin(request, "list_group_offsets", groups)[request["group"]]
        return {"offset": found[partition].offset if partition in found else -1}

    def do_offsets(self, request: dict[str, Any]) -> dict[str, Any]:
        specials = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}
        partition = TopicPartition(request["topic"], request["partition"])
        wanted = {partition: specials.get(request["at"], request["at"])}
        return {"offset": self._admin(request, "list_partition_offsets", wanted)[partition].offset}

    def do_create_topic(self, request: dict[str, Any]) -> dict[str, Any]:
        options = {
            "num_partitions": request["partitions"],
            "replication_factor": 1,
            "configs": request.get("configs", {}),
        }
        self._admin(request, "create_topics", {request["topic"]: options})
        return {}

    def do_delete_topic(self, request: dict[str, Any]) -> dict[str, Any]:
        self._admin(request, "delete_topics", [request["topic"]])
        return {}

    def do_topics(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"topics": sorted(self._admin(request, "list_topics"))}

    def do_describe_topic(self, request: dict[str, Any]) -> dict[str, Any]:
        topic = self._admin(request, "describe_topics", [request["topic"]])[0]
        leader = topic["partitions"][0]["leader_id"]
        return {"partitions": len(topic["partitions"]), "leader": leader}

    def do_delete_records(self, request: dict[str, Any]) -> dict[str, Any]:
        partition = TopicPartition(request["topic"], request["partition"])
        answer = self._admin(request, "delete_records", {partition: request["before"]})
        return {"low_watermark": answer[partition]["low_watermark"]}


if __name__ == "__main__":
    KafkaPythonDriver().serve()
