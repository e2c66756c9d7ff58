"""Broker CPU per Produce and Fetch, in one process and without sockets: `python -m
tidelog_bench.bench_broker`.

Each case hands ready request frames to the dispatcher, as a connection does, and takes the answer's
buffers: decode, handler, log and encode are in the figure, system calls for sockets are not. Logs
lie in a temporary folder on a real file system. Prints one JSON object; figures are medians of
several rounds, microseconds of process CPU time a request. What of it has a ceiling is printed
beside that; `bench_sockets` does so with the sockets, as the ceilings were measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any

from tidelog.api.fetch import FetchApi
from tidelog.api.produce import ProduceApi
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidelog.config.broker import DEVELOPER_PROFILE, BrokerConfig
from tidelog.coordinators.transactions.transactions import Transactions
from tidelog.network.dispatch import Dispatcher, RequestContext
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.replication.topic_configs import topic_configs
from tidelog.runtime import SystemClock, ThreadExecutor
from tidelog.security.principal import ANONYMOUS
from tidelog_bench.ceilings import line
from tidelog_protocol.apis import API
from tidelog_protocol.checksum import crc32c
from tidelog_protocol.frames import RequestHeader, request_frame
from tidelog_protocol.messages.data import FetchRequest, ProduceRequest
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.config import LogConfig
from tidelog_storage.manager import LogManager
from tidelog_storage.os_files import OsFileSystem

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Mapping, Sequence

NODE_ID = 1
APPENDED_BYTES_MAX = 256 << 20  # of one case: the page cache, not the disk, is to take them
_FOLDERS = "/dev/shm" if Path("/dev/shm").is_dir() else None
TOPIC = "bench"
TOPIC_ID = bytes(range(16))


class _NoTimers:
    """Nothing that is measured expires."""

    def time(self) -> float:
        return time.monotonic()

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> _NoTimers:
        del when, callback, args
        return self

    def cancel(self) -> None:
        pass


async def _no_producer_ids() -> range:
    raise AssertionError("the benchmark uses no transactions")


async def _no_offsets(_index: int, _marker: memoryview) -> Any:
    raise AssertionError("the benchmark uses no transactions")


class _Rng:
    def __init__(self) -> None:
        self._drawn = 0

    def bytes(self, length: int) -> builtins.bytes:
        self._drawn += 1
        return self._drawn.to_bytes(length, "big")

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2

    def uuid(self) -> builtins.bytes:
        return self.bytes(16)


class _Peer:
    """A connection that throws its answers away."""

    client_host = "127.0.0.1"
    client_port = 0
    listener = ""
    principal = ANONYMOUS
    software = ("bench", "0")
    is_forwarded = False

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def close(self) -> None:
        raise AssertionError("the broker closed the connection")

    def throttle(self, seconds: float) -> None:
        """There are no quotas."""

    def at_close(self, callback: Callable[[], None]) -> None:
        """It stays open."""

    def complete(self, context: RequestContext, response: Any) -> None:
        context.answer = self._dispatcher.encode(context, response)


class Bench:
    """One broker's data path over a temporary folder."""

    def __init__(self, folder: str, partitions: int) -> None:
        config = BrokerConfig.from_properties(dict(DEVELOPER_PROFILE))
        logs = LogManager(OsFileSystem(), [folder], LogConfig.from_broker({}))
        clock = SystemClock()
        logs.open(
            now_ms=clock.wall_ms(),
            cluster_id="bench",
            node_id=NODE_ID,
            new_directory_id=lambda: bytes(15) + b"\7",
        )
        self.logs = logs
        self.replicas = ReplicaManager(
            NODE_ID, clock, _NoTimers(), logs, topic_configs({}, NODE_ID)
        )
        states = tuple(
            PartitionImage(index, NODE_ID, 0, 0, (NODE_ID,), (NODE_ID,))
            for index in range(partitions)
        )
        brokers = {NODE_ID: BrokerImage(NODE_ID, "127.0.0.1", 9092)}
        empty = ClusterImage(cluster_id="bench", brokers=brokers)
        # Topics of the first image would have lost their logs.
        self.replicas.apply(MetadataDelta(None, empty), empty)
        full = ClusterImage(
            cluster_id="bench",
            brokers=brokers,
            topics={TOPIC: TopicImage(TOPIC, TOPIC_ID, states)},
            topic_names={TOPIC_ID: TOPIC},
            topic_configs={TOPIC: {"message.timestamp.after.max.ms": str(2**62)}},
        )
        self.replicas.apply(MetadataDelta(empty, full), full)
        transactions = Transactions(
            config=config,
            sessions=_NoTimers(),  # type: ignore[arg-type]
            work=_NoTimers(),  # type: ignore[arg-type]
            replica_manager=self.replicas,
            allocate_producer_ids=_no_producer_ids,
            end_of_offsets=_no_offsets,
        )
        self.dispatcher = Dispatcher(
            {
                **ProduceApi(self.replicas, transactions, ThreadExecutor()).handlers(),
                **FetchApi(self.replicas, config, _Rng()).handlers(),
            }
        )
        self.peer = _Peer(self.dispatcher)

    def log_end_offset(self) -> int:
        """Of the first partition."""
        return next(self.replicas.partitions()).log.log_end_offset

    def handle(self, frame: memoryview) -> int:
        """Serve one request; bytes of the answer."""
        context = self.dispatcher.dispatch(self.peer, frame)
        if context.answer is None:
            assert context.deferred is not None
            context.deferred.hurry()
        assert context.answer is not None
        return sum(map(len, context.answer))


def _frame(request: Any, version: int) -> memoryview:
    header = RequestHeader(request.API_KEY, version, 1, "bench-client")
    return memoryview(bytearray(b"".join(request_frame(API[request.API_KEY], header, request))))[4:]


class ProduceFrame:
    """A Produce request; the broker writes offsets into it, `again` takes them out."""

    def __init__(
        self,
        version: int,
        partitions: int,
        value_bytes: int,
        *,
        acks: int = -1,
        idempotent: bool = False,
    ) -> None:
        producer_id, zero = (7, 0) if idempotent else (-1, -1)
        batch = build_batch(
            [Record(0, 1, None, b"x" * value_bytes)],
            producer_id=producer_id,
            producer_epoch=zero,
            base_sequence=zero,
        )
        self._sequence = 0
        self._idempotent = idempotent
        self._batch_bytes = len(batch)
        self.frame = produce_frame(version, partitions, batch, acks)
        data = bytes(self.frame)
        self._places: list[int] = []
        place = data.find(batch)
        while place >= 0:
            self._places.append(place)
            place = data.find(batch, place + len(batch))
        assert len(self._places) == partitions

    def again(self) -> memoryview:
        """The frame as a producer sends it."""
        frame = self.frame
        for place in self._places:
            frame[place : place + 8] = _ZERO_OFFSET
            if self._idempotent:
                _SEQUENCE.pack_into(frame, place + 53, self._sequence)
                crc = crc32c(frame[place + 21 : place + self._batch_bytes], 0)
                _CRC.pack_into(frame, place + 17, crc)
        self._sequence += 1
        return frame


_ZERO_OFFSET = bytes(8)
_SEQUENCE = Struct(">i")
_CRC = Struct(">I")


def produce_frame(
    version: int, partitions: int, batch: bytes, acks: int, name: str = TOPIC
) -> memoryview:
    """A Produce request of the same batch to each partition, without its size."""
    topic = ProduceRequest.TopicProduceData
    return _frame(
        ProduceRequest(
            acks=acks,
            timeout_ms=1000,
            topic_data=[
                topic(
                    name=name,
                    topic_id=TOPIC_ID,
                    partition_data=[
                        topic.PartitionProduceData(index=index, records=batch)
                        for index in range(partitions)
                    ],
                )
            ],
        ),
        version,
    )


def fetch_frame(
    version: int, offsets: Sequence[int], max_bytes: int, name: str = TOPIC, **session: Any
) -> memoryview:
    """A Fetch request of partitions 0, 1, ... from these offsets on, without its size."""
    topic = FetchRequest.FetchTopic
    return _frame(
        FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=max_bytes * max(1, len(offsets)),
            topics=[
                topic(
                    topic=name,
                    topic_id=TOPIC_ID,
                    partitions=[
                        topic.FetchPartition(
                            partition=index,
                            current_leader_epoch=0,
                            fetch_offset=offset,
                            partition_max_bytes=max_bytes,
                        )
                        for index, offset in enumerate(offsets)
                    ],
                )
            ]
            if offsets
            else [],
            **session,
        ),
        version,
    )


def _measure(
    work: Callable[[], int], rounds: int, seconds: float, calls_max: int = 1 << 30
) -> dict[str, float]:
    """CPU microseconds a call: median and spread over rounds."""
    answer_bytes = 0
    for _ in range(min(20, 1 + calls_max // 20)):
        answer_bytes = work()
    started = time.process_time()
    calls = 0
    while time.process_time() - started < seconds / 4 and calls < calls_max // 4:
        work()
        calls += 1
    calls = max(1, calls * 4 // rounds)
    figures = []
    for _ in range(rounds):
        gc.collect()
        begin = time.process_time()
        for _ in range(calls):
            work()
        figures.append((time.process_time() - begin) / calls * 1e6)
    return {
        "us": round(statistics.median(figures), 2),
        "us_min": round(min(figures), 2),
        "us_max": round(max(figures), 2),
        "answer_bytes": answer_bytes,
    }


def produce_case(
    partitions: int,
    value_bytes: int,
    *,
    version: int = 12,
    acks: int = -1,
    idempotent: bool = False,
) -> Callable[[float], dict[str, float]]:
    """Produce one batch to each of some partitions."""

    def run(seconds: float) -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=_FOLDERS) as folder:
            bench = Bench(folder, partitions)
            request = ProduceFrame(
                version, partitions, value_bytes, acks=acks, idempotent=idempotent
            )
            calls_max = APPENDED_BYTES_MAX // len(request.frame)
            figures = _measure(lambda: bench.handle(request.again()), 5, seconds, calls_max)
            assert bench.log_end_offset() > 10, "the broker refused the batches"
            figures["bytes"] = len(request.frame)
            bench.logs.abandon()
            return figures

    return run


def fetch_case(
    partitions: int, batch_bytes: int, answer_bytes: int, *, version: int = 12
) -> Callable[[float], dict[str, float]]:
    """Read the same place again and again, as a consumer that reads on does with remembered
    places."""

    def run(seconds: float) -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=_FOLDERS) as folder:
            bench = Bench(folder, partitions)
            produce = ProduceFrame(12, partitions, batch_bytes)
            for _ in range(max(2, 4 * answer_bytes // batch_bytes)):
                bench.handle(produce.again())
            frame = fetch_frame(version, [1] * partitions, answer_bytes)
            bench.handle(fetch_frame(version, [0] * partitions, 1))
            figures = _measure(lambda: bench.handle(frame), 5, seconds)
            bench.logs.abandon()
            return figures

    return run


def empty_fetch_case(partitions: int, *, version: int = 12) -> Callable[[float], dict[str, float]]:
    """An incremental session without news, parked and hurried: what an idle consumer costs."""

    def run(seconds: float) -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=_FOLDERS) as folder:
            bench = Bench(folder, partitions)
            bench.handle(fetch_frame(version, [0] * partitions, 1 << 20, session_epoch=0))
            (session_id,) = bench.dispatcher._handlers[API[1].key].__self__.sessions._sessions  # type: ignore[attr-defined]
            epoch = 0

            def work() -> int:
                nonlocal epoch
                epoch += 1
                return bench.handle(
                    fetch_frame(version, [], 1 << 20, session_id=session_id, session_epoch=epoch)
                )

            def encode_only() -> int:
                return len(
                    fetch_frame(version, [], 1 << 20, session_id=session_id, session_epoch=1)
                )

            figures = _measure(work, 5, seconds)
            figures["us"] = round(figures["us"] - _measure(encode_only, 5, seconds / 4)["us"], 2)
            bench.logs.abandon()
            return figures

    return run


def round_trip_case(value_bytes: int) -> Callable[[float], dict[str, float]]:
    """A parked Fetch, woken by a Produce: both requests together."""

    def run(seconds: float) -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=_FOLDERS) as folder:
            bench = Bench(folder, 1)
            produce = ProduceFrame(12, 1, value_bytes)
            fetch = fetch_frame(12, [0], 1 << 20)
            place = bytes(fetch).rindex(TOPIC.encode()) + len(TOPIC) + 1 + 4 + 4

            def work() -> int:
                fetch[place : place + 8] = bench.log_end_offset().to_bytes(8, "big")
                parked = bench.dispatcher.dispatch(bench.peer, fetch)
                assert parked.answer is None
                bench.handle(produce.again())
                assert parked.answer is not None
                return sum(map(len, parked.answer))

            figures = _measure(work, 5, seconds)
            bench.logs.abandon()
            return figures

    return run


CASES: dict[str, Callable[[float], dict[str, float]]] = {
    "produce 1 x 100 B": produce_case(1, 100),
    "produce 1 x 100 B acks=0": produce_case(1, 100, acks=0),
    "produce 1 x 100 B idempotent": produce_case(1, 100, idempotent=True),
    "produce 1 x 100 B v13": produce_case(1, 100, version=13),
    "produce 1 x 100 B v8": produce_case(1, 100, version=8),
    "produce 1 x 16 KiB": produce_case(1, 16 << 10),
    "produce 1 x 1 MiB": produce_case(1, (1 << 20) - 200),
    "produce 10 x 1 KiB": produce_case(10, 1 << 10),
    "produce 100 x 1 KiB": produce_case(100, 1 << 10),
    "fetch 1 x 1 KiB": fetch_case(1, 1 << 10, 1 << 10),
    "fetch 1 x 1 KiB v17": fetch_case(1, 1 << 10, 1 << 10, version=17),
    "fetch 1 x 1 KiB v8": fetch_case(1, 1 << 10, 1 << 10, version=8),
    "fetch 1 x 64 KiB": fetch_case(1, 1 << 14, 1 << 16),
    "fetch 1 x 1 MiB": fetch_case(1, 1 << 14, 1 << 20),
    "fetch 10 x 1 KiB": fetch_case(10, 1 << 10, 1 << 10),
    "fetch 100 x 1 KiB": fetch_case(100, 1 << 10, 1 << 10),
    "fetch session 1 idle": empty_fetch_case(1),
    "fetch session 100 idle": empty_fetch_case(100),
    "fetch parked + produce 100 B": round_trip_case(100),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU time per case")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    results = {}
    for name, case in CASES.items():
        if options.only in name:
            results[name] = case(options.seconds)
            print(f"{name:32} {results[name]['us']:10.2f} us", flush=True)
    print(json.dumps(results, indent=1))
    if not options.only:
        print("Beside the ceilings, sockets left out:")
        for text in beside_ceilings({name: figures["us"] for name, figures in results.items()}):
            print(text)


def beside_ceilings(us: Mapping[str, float]) -> list[str]:
    """The lines of all cases' microseconds that have a ceiling."""
    return [
        line("produce request", us["produce 1 x 100 B"]),
        line(
            "produce, further partition",
            (us["produce 100 x 1 KiB"] - us["produce 10 x 1 KiB"]) / 90,
        ),
        line("produce, batches of 16 KiB", us["produce 1 x 16 KiB"] * 1e3 / (16 << 10)),
        line("produce, batches of 1 MiB", us["produce 1 x 1 MiB"] * 1e3 / (1 << 20)),
        line("fetch request", us["fetch 1 x 1 KiB"]),
        line("fetch, further partition", (us["fetch 100 x 1 KiB"] - us["fetch 10 x 1 KiB"]) / 90),
    ]


if __name__ == "__main__":
    main()
