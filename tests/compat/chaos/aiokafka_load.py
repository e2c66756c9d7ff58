"""aiokafka as the load program that `load.py` describes, and its transactional writers."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from compat.clients.protocol import Driver, deadline

if TYPE_CHECKING:
    from collections.abc import Coroutine

TICK_S = 0.005
UNANSWERED_MAX = 2000
CALL_S_MAX = 120
TRANSACTION_S_MAX = 20.0
COMMIT_SHARE = 0.8


class Producing:
    """Numbers every partition's records, round robin, at a steady rate."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.lines: list[str] = []
        self.failed: list[str] = []
        self.counts = [0] * request["partitions"]
        self.is_stopped = False
        self._waiting: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self.producer = AIOKafkaProducer(
            bootstrap_servers=self.request["bootstrap"],
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            request_timeout_ms=10_000,
        )
        await self.producer.start()
        self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        partitions, sent = self.request["partitions"], 0
        allowed, then = 0.0, time.monotonic()
        while not self.is_stopped:
            since, then = then, time.monotonic()
            allowed = min(allowed + self.request["rate"] * (then - since), UNANSWERED_MAX)
            while allowed >= 1 and len(self._waiting) < UNANSWERED_MAX:
                number, partition = divmod(sent, partitions)
                await self._send(partition, number)
                sent += 1
                allowed -= 1
            await asyncio.sleep(TICK_S)

    async def _send(self, partition: int, number: int) -> None:
        value = f"{self.request['producer']} {partition} {number} ".encode().ljust(200, b".")
        asked = time.monotonic_ns()
        sent = await self.producer.send(self.request["topic"], value, partition=partition)

        async def answered() -> None:
            try:
                record = await sent
            except KafkaError as error:
                self.failed.append(repr(error))
                return
            times = f"{asked} {time.monotonic_ns()}"
            self.lines.append(f"{partition} {number} {record.offset} {times}")
            self.counts[partition] += 1

        task = asyncio.create_task(answered())
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def finish(self, timeout_s: float) -> int:
        """Send no more; how many were not answered in time."""
        self.is_stopped = True
        await self._running
        if self._waiting:
            await asyncio.wait(self._waiting, timeout=timeout_s)
        left = len(self._waiting)
        await self.producer.stop()
        return left


class Following:
    """A consumer of all partitions from their beginning that goes on over all faults."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.lines: list[str] = []
        self.failed: list[str] = []
        self.is_stopped = False

    async def start(self) -> None:
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=self.request["bootstrap"],
            enable_auto_commit=False,
            auto_offset_reset="none",
        )
        await self.consumer.start()
        places = [
            TopicPartition(self.request["topic"], index)
            for index in range(self.request["partitions"])
        ]
        self.consumer.assign(places)
        for place in places:
            self.consumer.seek(place, 0)
        self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not self.is_stopped:
            asked = time.monotonic_ns()
            try:
                batches = await self.consumer.getmany(timeout_ms=100)
            except KafkaError as error:
                self.failed.append(repr(error))
                return
            times = f"{asked} {time.monotonic_ns()}"
            for place, messages in batches.items():
                for message in messages:
                    words = " ".join(message.value.decode().split()[:3])
                    self.lines.append(f"{place.partition} {message.offset} {times} {words}")

    async def finish(self, records: int, timeout_s: float) -> None:
        """Read so many records if they come in time, and end."""
        over = deadline(timeout_s)
        while len(self.lines) < records and not (over() or self._running.done()):
            await asyncio.wait([self._running], timeout=0.05)
        self.is_stopped = True
        await self._running
        await self.consumer.stop()


class Writer:
    """Transactions one after the other: what is committed is read, and answered to with records.

    Every transaction is a JSON object: `outcome`, `ended` (when its end was asked for and
    answered), `sends` [partition, value, offset, asked, answered], `polls` [partition, start, end,
    [[offset, value]], asked, answered]. Times are nanoseconds; None where no answer came.
    """

    def __init__(self, request: dict[str, Any], number: int) -> None:
        self.request = request
        self.name = f"{request['producer']}-txn-{number}"
        self.rng = random.Random(f"{request['seed']}:{self.name}")
        self.transactions: list[dict[str, Any]] = []
        self.is_stopped = False
        self._positions: dict[int, int] = {}

    async def run(self) -> None:
        while not self.is_stopped:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.request["bootstrap"],
                transactional_id=self.name,
                transaction_timeout_ms=10_000,
                request_timeout_ms=5_000,
            )
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.request["bootstrap"],
                enable_auto_commit=False,
                auto_offset_reset="none",
                isolation_level="read_committed",
            )
            try:
                async with asyncio.timeout(TRANSACTION_S_MAX):
                    await producer.start()
                    await self._open(consumer)
                while not self.is_stopped:
                    async with asyncio.timeout(TRANSACTION_S_MAX):
                        await self._transaction(producer, consumer)
            except (KafkaError, TimeoutError, OSError, ValueError):
                await asyncio.sleep(0.2)  # another life begins: what is unknown stays unknown
            finally:
                for end in (producer.stop, consumer.stop):
                    try:
                        async with asyncio.timeout(TRANSACTION_S_MAX):
                            await end()
                    except (KafkaError, TimeoutError, OSError, ValueError):
                        pass

    async def _open(self, consumer: Any) -> None:
        await consumer.start()
        places = [
            TopicPartition(self.request["topic"], index)
            for index in range(self.request["partitions"])
        ]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, self._positions.get(place.partition, 0))

    async def _transaction(self, producer: Any, consumer: Any) -> None:
        noted: dict[str, Any] = {"outcome": "failed", "ended": None, "sends": [], "polls": []}
        noted["name"] = f"{self.name}/{len(self.transactions)}"
        self.transactions.append(noted)
        await producer.begin_transaction()
        await self._poll(consumer, noted)
        for count in range(self.rng.randint(1, 4)):
            partition = self.rng.randrange(self.request["partitions"])
            value = f"{noted['name']}/{count}"
            entry = [partition, value, None, time.monotonic_ns(), None]
            noted["sends"].append(entry)
            topic = self.request["topic"]
            record = await producer.send_and_wait(topic, value.encode(), partition=partition)
            entry[2], entry[4] = record.offset, time.monotonic_ns()
        asked = time.monotonic_ns()
        noted["ended"] = [asked, None]
        if self.rng.random() < COMMIT_SHARE:
            noted["outcome"] = "unknown"
            await producer.commit_transaction()
            noted["outcome"] = "ok"
        else:
            await producer.abort_transaction()
        noted["ended"] = [asked, time.monotonic_ns()]

    async def _poll(self, consumer: Any, noted: dict[str, Any]) -> None:
        asked = time.monotonic_ns()
        batches = await consumer.getmany(timeout_ms=20, max_records=100)
        answered = time.monotonic_ns()
        for place, messages in batches.items():
            start = self._positions.get(place.partition, 0)
            records = [[message.offset, message.value.decode()] for message in messages]
            end = self._positions[place.partition] = messages[-1].offset + 1
            noted["polls"].append([place.partition, start, end, records, asked, answered])


class AiokafkaLoad(Driver):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.readers: dict[str, Following] = {}
        self.writers: list[Writer] = []
        self._writing: list[Any] = []

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(CALL_S_MAX)

    def do_start(self, request: dict[str, Any]) -> dict[str, Any]:
        self.producing = Producing(request)
        self.run(self.producing.start())
        return {}

    def do_count(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"each": self.producing.counts, "failed": self.producing.failed}

    def do_finish(self, request: dict[str, Any]) -> dict[str, Any]:
        left = self.run(self.producing.finish(request["timeout_ms"] / 1000))
        lines = self.producing.lines
        write(request["file"], lines)
        return {"acknowledged": len(lines), "left": left, "failed": self.producing.failed}

    def do_follow(self, request: dict[str, Any]) -> dict[str, Any]:
        reader = self.readers[request["reader"]] = Following(request)
        self.run(reader.start())
        return {}

    def do_followed(self, request: dict[str, Any]) -> dict[str, Any]:
        reader = self.readers[request["reader"]]
        self.run(reader.finish(request["records"], request["timeout_ms"] / 1000))
        write(request["file"], reader.lines)
        return {"records": len(reader.lines), "failed": reader.failed}

    def do_transact(self, request: dict[str, Any]) -> dict[str, Any]:
        self.writers = [Writer(request, number) for number in range(request["writers"])]
        for writer in self.writers:
            self._writing.append(asyncio.run_coroutine_threadsafe(writer.run(), self.loop))
        return {}

    def do_transacted(self, request: dict[str, Any]) -> dict[str, Any]:
        for writer in self.writers:
            writer.is_stopped = True
        for writing in self._writing:
            writing.result(CALL_S_MAX)
        transactions = [each for writer in self.writers for each in writer.transactions]
        with open(request["file"], "w") as file:
            json.dump(transactions, file)
        return {"transactions": len(transactions)}


def write(path: str, lines: list[str]) -> None:
    with open(path, "w") as file:
        file.writelines(line + "\n" for line in lines)


if __name__ == "__main__":
    AiokafkaLoad().serve()
