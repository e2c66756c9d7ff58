"""A plan of a topic as large as a cluster's: `python bench/spark_plan.py [--terabytes 100]`.

The brokers are made up: they answer what a plan asks, with the records of `__remote_log_metadata`
that such a topic has. All else is what Spark's driver runs: each answer is decoded, the segments
are placed on the lineage, splits are cut and pickled as Spark sends them to tasks. It prints the
requests, the time, the memory of the process that plans, and the number and size of the tasks.
"""

from __future__ import annotations

import argparse
import pickle
import resource
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from tidelog_pipeline.history import HistoryOptions
from tidelog_pipeline.history.client import HistoryClient
from tidelog_pipeline.history.history import plan_ranges
from tidelog_pipeline.history.offsets import ranges_of
from tidelog_pipeline.source_readers import _partitions
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.remote.api import RemoteSegment, SegmentState, SegmentUpdate, TopicIdPartition
from tidelog_storage.remote.metadata_records import encode, metadata_partition

TOPIC = "history"
TOPIC_ID = UUID(int=7)
METADATA_PARTITIONS = 50
BROKERS = 20
SEGMENT_BYTES = 1 << 30
RECORD_BYTES = 1000
EPOCHS = 5
_EVENTS_A_BATCH = 200
_ROUND_TRIP_SECONDS = 0.001


class MadeUp(HistoryClient):
    """Brokers of one topic; `partitions` of `segments` remote segments each."""

    def __init__(self, partitions: int, segments: int) -> None:
        # No connections: every answer comes from here.
        self._isolation_level = 0
        self._leaders: dict[tuple[str, int], int] = {}
        self._metadata: Any = {}
        self._partitions = partitions
        self._segments = segments
        self._records = SEGMENT_BYTES // RECORD_BYTES
        self.end = segments * self._records
        self.requests: Counter[str] = Counter()
        self._logs: list[list[bytes]] = [[] for _ in range(METADATA_PARTITIONS)]
        for partition in range(partitions):
            self._write_events(partition, segments)

    def _write_events(self, partition: int, segments: int) -> None:
        name = TopicIdPartition(TOPIC_ID, TOPIC, partition)
        log = self._logs[metadata_partition(TOPIC_ID, partition, METADATA_PARTITIONS)]
        events: list[bytes] = []
        for number in range(segments):
            start = number * self._records
            segment = RemoteSegment(
                topic_id_partition=name,
                segment_id=UUID(int=partition << 32 | number),
                start_offset=start,
                end_offset=start + self._records - 1,
                broker_id=1,
                max_timestamp=number,
                event_timestamp=number,
                epochs=((number * EPOCHS // segments, start),),
                size=SEGMENT_BYTES,
                state=SegmentState.COPY_SEGMENT_STARTED,
            )
            events.append(encode(segment))
            finished = SegmentState.COPY_SEGMENT_FINISHED
            events.append(
                encode(SegmentUpdate(name, segment.segment_id, 1, number, finished, None))
            )
        for first in range(0, len(events), _EVENTS_A_BATCH):
            base = len(log) * _EVENTS_A_BATCH
            part = events[first : first + _EVENTS_A_BATCH]
            records = [Record(base + slot, 0, None, value) for slot, value in enumerate(part)]
            log.append(bytes(build_batch(records, base_offset=base)))

    # -- what a client asks ------------------------------------------------------------------------

    def topics(self, names: Any) -> list[Any]:
        """Describe topics."""
        self.requests["Metadata"] += 1
        found = []
        for name in names:
            count = self._partitions if name == TOPIC else METADATA_PARTITIONS
            listed = [
                SimpleNamespace(partition_index=each, leader_id=each % BROKERS, leader_epoch=EPOCHS)
                for each in range(count)
            ]
            topic_id = TOPIC_ID.bytes if name == TOPIC else bytes(16)
            found.append(
                SimpleNamespace(name=name, error_code=0, topic_id=topic_id, partitions=listed)
            )
        return found

    def nodes(self) -> list[int]:
        """All brokers."""
        return list(range(BROKERS))

    def broker(self, node_id: int) -> Any:
        """The one that answers for all."""
        return self

    def ask(self, request: Any, *, version_max: int = 0) -> Any:
        """Answer and count."""
        name = type(request).__name__.removesuffix("Request")
        self.requests[name] += 1
        return getattr(self, f"_on_{name}")(request)

    def _on_DescribeConfigs(self, request: Any) -> Any:  # noqa: N802 - the request's name
        return SimpleNamespace(results=[SimpleNamespace(error_code=0, configs=[])])

    def _on_ListOffsets(self, request: Any) -> Any:  # noqa: N802
        special = {-1: self.end, -2: 0, -4: self.end, -5: self.end - 1}
        topics = [
            SimpleNamespace(
                name=topic.name,
                partitions=[
                    SimpleNamespace(
                        partition_index=each.partition_index,
                        error_code=0,
                        offset=special[each.timestamp],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return SimpleNamespace(topics=topics)

    def _on_OffsetForLeaderEpoch(self, request: Any) -> Any:  # noqa: N802
        topics = []
        for topic in request.topics:
            found = []
            for each in topic.partitions:
                epoch = min(each.leader_epoch, EPOCHS - 1)
                end = -(-(epoch + 1) * self._segments // EPOCHS) * self._records
                found.append(
                    SimpleNamespace(
                        partition=each.partition, error_code=0, leader_epoch=epoch, end_offset=end
                    )
                )
            topics.append(SimpleNamespace(topic=topic.topic, partitions=found))
        return SimpleNamespace(topics=topics)

    def _on_DescribeLogDirs(self, request: Any) -> Any:  # noqa: N802
        topics = [
            SimpleNamespace(
                name=topic.topic,
                partitions=[
                    SimpleNamespace(partition_index=each, is_future_key=False, partition_size=0)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return SimpleNamespace(results=[SimpleNamespace(log_dir="/none", topics=topics)])

    def _on_Fetch(self, request: Any) -> Any:  # noqa: N802
        (topic,) = request.topics
        (asked,) = topic.partitions
        log = self._logs[asked.partition]
        first = -(-asked.fetch_offset // _EVENTS_A_BATCH)
        found: list[bytes] = []
        while first < len(log) and sum(map(len, found)) < asked.partition_max_bytes:
            found.append(log[first])
            first += 1
        one = SimpleNamespace(error_code=0, log_start_offset=0, records=b"".join(found))
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[one])])


def main() -> None:
    """Plan, and print what it took."""
    parser = argparse.ArgumentParser(description="Plan a read of a large topic.")
    parser.add_argument("--terabytes", type=float, default=100.0)
    parser.add_argument("--partitions", type=int, default=1000)
    given = parser.parse_args()
    segments = round(given.terabytes * 1e12 / SEGMENT_BYTES / given.partitions)
    client = MadeUp(given.partitions, segments)
    bytes_of_metadata = sum(len(batch) for log in client._logs for batch in log)
    options = HistoryOptions.parse({"kafka.bootstrap.servers": "made-up:9092", "subscribe": TOPIC})
    before, began = _memory(), time.perf_counter()
    ranges = ranges_of(client, options)
    splits, settings = plan_ranges(client, options, ranges)
    planned = time.perf_counter() - began
    sizes = [len(pickle.dumps(each)) for each in _partitions(splits, settings)]
    pickled = time.perf_counter() - began - planned
    asked = sum(client.requests.values())
    print(f"{given.partitions} partitions of {segments} segments")
    print(f"metadata {bytes_of_metadata / 1e6:.0f} MB")
    print(f"requests {asked}: {dict(client.requests)}, {asked * _ROUND_TRIP_SECONDS:.1f} s at 1 ms")
    print(
        f"plan {planned:.1f} s, pickling {pickled:.1f} s, memory {_memory() - before:.0f} MB more"
    )
    print(
        f"tasks {len(splits)}, of {sum(each.size for each in splits) / len(splits) / 1e6:.0f} MB; "
        f"{sum(sizes) / len(sizes):.0f} bytes of plan a task, at most {max(sizes)}, "
        f"{sum(sizes) / 1e6:.0f} MB in all"
    )


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
