"""aiokafka behind the JSON line protocol: every op on one event loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.errors import for_code

from compat.clients.protocol import WAIT_S, Driver, deadline, decoded, encoded

if TYPE_CHECKING:
    from collections.abc import Coroutine


def record(message: Any) -> dict[str, Any]:
    return {
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "key": encoded(message.key),
        "value": encoded(message.value),
        "headers": [[name, encoded(value)] for name, value in message.headers],
    }


async def polled(consumer: Any, timeout_ms: int) -> list[dict[str, Any]]:
    batches = await consumer.getmany(timeout_ms=timeout_ms)
    return [record(message) for batch in batches.values() for message in batch]


def producer_of(request: dict[str, Any]) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=request["bootstrap"],
        acks=request["acks"] if request["acks"] == "all" else int(request["acks"]),
        enable_idempotence=request["idempotent"],
        compression_type=None if request["codec"] == "none" else request["codec"],
        linger_ms=5,
        max_request_size=20_000_000,
    )


class GroupMember:
    """A consumer of a group, polled by a task of its own."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    async def start(self, request: dict[str, Any]) -> None:
        self.consumer = AIOKafkaConsumer(
            request["topic"],
            bootstrap_servers=request["bootstrap"],
            group_id=request["group"],
            group_instance_id=request.get("instance"),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=request["session_timeout_ms"],
            heartbeat_interval_ms=200,
        )
        await self.consumer.start()
        self._task = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            self.records += await polled(self.consumer, 50)

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.consumer.stop()


class Flood:
    """An idempotent producer that numbers its records until told to stop; see test_kill.py."""

    IN_FLIGHT_MAX = 500

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.acknowledged: list[int] = []
        self.failed: list[str] = []
        self.stopping = False

    async def run(self) -> None:
        request = {**self.request, "acks": "all", "idempotent": True, "codec": "none"}
        room = asyncio.Semaphore(self.IN_FLIGHT_MAX)
        producer = producer_of(request)
        await producer.start()
        number = 0
        while not self.stopping:
            await room.acquire()
            future = await producer.send(
                request["topic"], b"%d" % number, partition=number % request["partitions"]
            )

            def delivered(done: asyncio.Future[Any], number: int = number) -> None:
                room.release()
                if done.exception() is not None:
                    self.failed.append(repr(done.exception()))
                else:
                    self.acknowledged.append(number)

            future.add_done_callback(delivered)
            number += 1
        await producer.flush()
        await producer.stop()


def end(producer: AIOKafkaProducer, *, commit: bool) -> Coroutine[Any, Any, None]:
    return producer.commit_transaction() if commit else producer.abort_transaction()


class Transactions:
    """Transactional producers by name, and copies."""

    def __init__(self) -> None:
        self.producers: dict[str, AIOKafkaProducer] = {}

    async def made(self, request: dict[str, Any]) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=request["bootstrap"],
            transactional_id=request["transactional_id"],
            transaction_timeout_ms=request.get("timeout_ms", 60_000),
        )
        await producer.start()
        return producer

    async def open(self, request: dict[str, Any]) -> None:
        self.producers[request["producer"]] = await self.made(request)

    async def send(self, request: dict[str, Any]) -> None:
        producer = self.producers[request["producer"]]
        if request["begin"]:
            await producer.begin_transaction()
        futures = [
            await producer.send(request["topic"], decoded(one["value"]), partition=one["partition"])
            for one in request["records"]
        ]
        await asyncio.gather(*futures)

    async def copy(self, request: dict[str, Any]) -> int:
        async with AIOKafkaConsumer(
            request["topic"],
            bootstrap_servers=request["bootstrap"],
            group_id=request["group"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            producer = await self.made(request)
            try:
                return await self._copied(consumer, producer, request)
            finally:
                await producer.stop()

    async def _copied(
        self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, request: dict[str, Any]
    ) -> int:
        await producer.begin_transaction()
        copied, over = 0, deadline()
        while copied < request["count"] and not over():
            left = request["count"] - copied
            for batch in (await consumer.getmany(timeout_ms=200, max_records=left)).values():
                for message in batch:
                    await producer.send(request["to"], message.value, partition=0)
                    copied += 1
        offsets = {one: await consumer.position(one) for one in consumer.assignment()}
        await producer.send_offsets_to_transaction(offsets, request["group"])
        await end(producer, commit=request["commit"])
        return copied


class AiokafkaDriver(Driver):
    def __init__(self) -> None:
        super().__init__()
        self.transactions = Transactions()
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.group_members: dict[str, GroupMember] = {}

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(2 * WAIT_S)

    def do_produce(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"offsets": self._run(self._produce(request))}

    async def _produce(self, request: dict[str, Any]) -> list[list[int]]:
        async with producer_of(request) as producer:
            futures = [
                await producer.send(
                    request["topic"],
                    decoded(one.get("value")),
                    key=decoded(one.get("key")),
                    headers=[(name, decoded(value)) for name, value in one.get("headers", [])],
                    partition=one.get("partition"),
                    timestamp_ms=one.get("timestamp"),
                )
                for one in request["records"]
            ]
            sent = await asyncio.gather(*futures)
        return [
            [metadata.partition, metadata.offset] if metadata is not None else [-1, -1]
            for metadata in sent
        ]

    def do_flood(self, request: dict[str, Any]) -> dict[str, Any]:
        self.flooding = Flood(request)
        self.flood_done = asyncio.run_coroutine_threadsafe(self.flooding.run(), self.loop)
        return {}

    def do_flooded(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("stop"):
            self.flooding.stopping = True
            self.flood_done.result(2 * WAIT_S)
        answer: dict[str, Any] = {"count": len(self.flooding.acknowledged)}
        if request.get("stop"):
            answer["acknowledged"] = self.flooding.acknowledged
            answer["failed"] = self.flooding.failed
        return answer

    def do_txn_open(self, request: dict[str, Any]) -> dict[str, Any]:
        self._run(self.transactions.open(request))
        return {}

    def do_txn_send(self, request: dict[str, Any]) -> dict[str, Any]:
        self._run(self.transactions.send(request))
        return {}

    def do_txn_end(self, request: dict[str, Any]) -> dict[str, Any]:
        producer = self.transactions.producers[request["producer"]]
        self._run(end(producer, commit=request["commit"]))
        return {}

    def do_txn_close(self, request: dict[str, Any]) -> dict[str, Any]:
        self._run(self.transactions.producers.pop(request["producer"]).stop())
        return {}

    def do_copy(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"copied": self._run(self.transactions.copy(request))}

    def do_consume(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"records": self._run(self._consume(request))}

    async def _consume(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        partition = TopicPartition(request["topic"], request["partition"])
        records: list[dict[str, Any]] = []
        over = deadline()
        async with AIOKafkaConsumer(
            bootstrap_servers=request["bootstrap"],
            auto_offset_reset="none",
            isolation_level="read_committed" if request.get("committed") else "read_uncommitted",
        ) as consumer:
            consumer.assign([partition])
            if request["from"] == "earliest":
                await consumer.seek_to_beginning(partition)
            else:
                consumer.seek(partition, request["from"])
            while len(records) < request["count"] and not over():
                records += await polled(consumer, 200)
        return records

    def do_join(self, request: dict[str, Any]) -> dict[str, Any]:
        member = self.group_members[request["member"]] = GroupMember()
        self._run(member.start(request))
        return {}

    def do_assignment(self, request: dict[str, Any]) -> dict[str, Any]:
        assigned = self.group_members[request["member"]].consumer.assignment()
        return {"partitions": sorted(partition.partition for partition in assigned)}

    def do_consumed(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"records": list(self.group_members[request["member"]].records)}

    def do_commit(self, request: dict[str, Any]) -> dict[str, Any]:
        self._run(self.group_members[request["member"]].consumer.commit())
        return {}

    def do_leave(self, request: dict[str, Any]) -> dict[str, Any]:
        self._run(self.group_members.pop(request["member"]).leave())
        return {}

    async def _admin(self, request: dict[str, Any], call: str, *arguments: Any) -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=request["bootstrap"])
        await admin.start()
        try:
            return await getattr(admin, call)(*arguments)
        finally:
            await admin.close()

    def do_committed(self, request: dict[str, Any]) -> dict[str, Any]:
        found = self._run(self._admin(request, "list_consumer_group_offsets", request["group"]))
        partition = TopicPartition(request["topic"], request["partition"])
        return {"offset": found[partition].offset if partition in found else -1}

    def do_offsets(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"offset": self._run(self._offsets(request))}

    async def _offsets(self, request: dict[str, Any]) -> int:
        partition = TopicPartition(request["topic"], request["partition"])
        async with AIOKafkaConsumer(bootstrap_servers=request["bootstrap"]) as consumer:
            if request["at"] == "earliest":
                found = await consumer.beginning_offsets([partition])
                return int(found[partition])
            if request["at"] == "latest":
                found = await consumer.end_offsets([partition])
                return int(found[partition])
            times = await consumer.offsets_for_times({partition: request["at"]})
            return -1 if times[partition] is None else int(times[partition].offset)

    def do_create_topic(self, request: dict[str, Any]) -> dict[str, Any]:
        topic = NewTopic(
            request["topic"], request["partitions"], 1, topic_configs=request.get("configs", {})
        )
        answer = self._run(self._admin(request, "create_topics", [topic]))
        self._raise(answer.topic_errors[0][1])
        return {}

    def _raise(self, code: int) -> None:
        if code:
            raise for_code(code)

    def do_delete_topic(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = self._run(self._admin(request, "delete_topics", [request["topic"]]))
        self._raise(answer.topic_error_codes[0][1])
        return {}

    def do_topics(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"topics": sorted(self._run(self._admin(request, "list_topics")))}

    def do_describe_topic(self, request: dict[str, Any]) -> dict[str, Any]:
        topic = self._run(self._admin(request, "describe_topics", [request["topic"]]))[0]
        self._raise(topic["error_code"])
        return {"partitions": len(topic["partitions"]), "leader": topic["partitions"][0]["leader"]}

    def do_delete_records(self, request: dict[str, Any]) -> dict[str, Any]:
        partition = TopicPartition(request["topic"], request["partition"])
        wanted = {partition: RecordsToDelete(before_offset=request["before"])}
        return {
            "low_watermark": self._run(self._admin(request, "delete_records", wanted))[partition]
        }


if __name__ == "__main__":
    AiokafkaDriver().serve()
