"""`tidelog spark replay`: a folder or another topic to a topic, each record exactly once.

Each partition of the source is a lane, read and written in its order by one task. Keys therefore
keep their order, and a run that was killed is gone on with: see `lanes.py`.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tidelog_pipeline.operations.errors import OperationError, sentence_of
from tidelog_pipeline.operations.lanes import Lane, LaneRows, Row, Target, replay_lane
from tidelog_pipeline.operations.manifest import export_in
from tidelog_pipeline.operations.progress import Progress
from tidelog_pipeline.operations.writer import committed_offset
from tidelog_protocol.compression import Codec
from tidelog_protocol.messages.configs import DescribeConfigsRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tidelog_pipeline.operations.topic import Source

__all__ = ["Facts", "Replay", "Replayed", "check", "replay"]

BATCH_BYTES = 500_000
_TOPIC = 2  # of DescribeConfigs' resource types
_COLUMNS = {"partition", "offset", "timestamp", "key", "value"}


@dataclass(frozen=True, slots=True)
class Replay:
    """What is replayed, and how. The source is a topic, or a folder: Parquet files or a table.

    `rate`: records a second of all lanes, 0 without a limit. `keeps_partitions`: None keeps them if
    both topics have as many.
    """

    source: Source | str
    target: Source
    start: str | None = None
    end: str = "latest"
    rate: float = 0.0
    keeps_partitions: bool | None = None
    compression: str = "none"
    format: str = "parquet"  # of a folder


@dataclass(frozen=True, slots=True)
class Replayed:
    """The records that this run wrote, and a warning about the target topic."""

    records: int
    warning: str | None = None


def replay(spark: SparkSession, wanted: Replay) -> Replayed:
    """Write what the target lacks of the source.

    OperationError if something given is wrong: then nothing was written; or if a broker refuses.
    """
    facts = check(wanted)
    try:
        if isinstance(wanted.source, str):
            frame, ranges, identity = _of_folder(spark, wanted.source, wanted.format)
        else:
            frame = None
            topic_id, ranges = wanted.source.ranges(wanted.start, wanted.end)
            identity = topic_id
        lanes = _lanes(wanted, identity + facts.topic_id, ranges)
        if not lanes:
            raise OperationError("there are no records to replay; nothing was written")
        target = _target(wanted, facts, len(ranges), _parallel(spark, len(lanes)))
        job = _folder_job if frame is not None else _topic_job
        written = _watched(wanted, lanes, lambda: job(spark, (wanted, frame), lanes, target))
    except OperationError:
        raise
    except Exception as error:
        raise OperationError(sentence_of(error)) from error
    return Replayed(written, facts.warning)


def check(wanted: Replay) -> Facts:
    """Facts of the target. OperationError for what can be known to be wrong without Spark."""
    _check_different(wanted)
    facts = _facts_of(wanted.target)
    if not isinstance(wanted.source, str):
        wanted.source.ranges(wanted.start, wanted.end)
    return facts


# ---- the target ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Facts:
    """What is to be known of a target."""

    topic_id: str
    partitions: int
    batch_bytes: int
    warning: str | None


def _facts_of(target: Source) -> Facts:
    """What is to be known of the target; OperationError if it can't keep timestamps."""
    with target.connected() as client:
        topic_id, partitions = client.partitions_of(target.topic)
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=target.topic, configuration_keys=None
        )
        (result,) = client.ask(DescribeConfigsRequest(resources=[resource])).results
    given = {config.name: config.value for config in result.configs}
    if given.get("message.timestamp.type") == "LogAppendTime":
        raise OperationError(
            f"{target.topic} has message.timestamp.type=LogAppendTime: it can't keep timestamps"
        )
    retention = int(given.get("retention.ms") or -1)
    warning = None
    if retention >= 0:
        warning = f"{target.topic} deletes records older than its retention.ms={retention}"
    limits = (given.get("max.message.bytes"), given.get("segment.bytes"))
    largest = min(int(limit or 2 * BATCH_BYTES) for limit in limits)
    return Facts(topic_id.hex(), len(partitions), min(BATCH_BYTES, largest // 2), warning)


def _target(wanted: Replay, facts: Facts, source_partitions: int, parallel: int) -> Target:
    keeps = wanted.keeps_partitions
    if keeps is None:
        keeps = source_partitions == facts.partitions
    return Target(
        wanted.target,
        facts.partitions,
        keeps_partitions=keeps,
        batch_bytes=facts.batch_bytes,
        codec=int(Codec[wanted.compression.upper()]),
        rate=wanted.rate / parallel,
    )


def _check_different(wanted: Replay) -> None:
    source, target = wanted.source, wanted.target
    if (
        not isinstance(source, str)
        and source.topic == target.topic
        and source.bootstrap_servers == target.bootstrap_servers
    ):
        raise OperationError(f"{target.topic} can't be replayed into itself")


# ---- lanes ---------------------------------------------------------------------------------------


def _lanes(wanted: Replay, identity: str, ranges: dict[int, tuple[int, int]]) -> list[Lane]:
    """One for each partition. Its name is the same in each run of this source and target."""
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    name = f"tidelog-replay-{wanted.target.topic}-{digest}"
    return [
        Lane(f"{name}-{partition}", partition, start, end)
        for partition, (start, end) in sorted(ranges.items())
        if start < end
    ]


def _parallel(spark: SparkSession, lanes: int) -> int:
    return max(1, min(lanes, spark.sparkContext.defaultParallelism))


def _watched(wanted: Replay, lanes: list[Lane], job: Callable[[], int]) -> int:
    """The job's result; meanwhile the lanes' committed offsets are shown."""
    progress = Progress(
        f"Replaying to {wanted.target.topic}", sum(lane.end - lane.start for lane in lanes)
    )
    found = 0

    def done() -> int:
        nonlocal found
        with suppress(OperationError, OSError), wanted.target.connected() as client:
            found = sum(_done(client, wanted.target.topic, lane) for lane in lanes)
        return found

    try:
        return progress.watch(job, done)
    finally:
        progress.end()


def _done(client: Any, topic: str, lane: Lane) -> int:
    return max(0, min(committed_offset(client, topic, lane.name), lane.end) - lane.start)


# ---- a topic -------------------------------------------------------------------------------------

_Given = tuple[Replay, "DataFrame | None"]


def _topic_job(spark: SparkSession, given: _Given, lanes: list[Lane], target: Target) -> int:
    source: Any = given[0].source

    def write(lane: Lane) -> int:
        return replay_lane(lane, target, LaneRows(source, lane))

    return int(spark.sparkContext.parallelize(lanes, len(lanes)).map(write).sum())


# ---- a folder -----------------------------------------------------------------------------------


def _of_folder(
    spark: SparkSession, place: str, table_format: str
) -> tuple[DataFrame, dict[int, tuple[int, int]], str]:
    """The rows, the offsets by partition, and the folder's whole name."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own idiom, an extra

    from tidelog_pipeline.operations.folders import Folder  # noqa: PLC0415 - needs Spark

    folder = Folder(spark, place)
    if not folder.exists(""):
        raise OperationError(f"there is no folder {folder.place()}")
    export = export_in(folder)
    if export is None and not any(name.endswith(".parquet") for name in folder.all_files("")):
        raise OperationError(f"{folder.place()} is no export, and has no Parquet files")
    if export is not None and export.format != table_format:
        raise OperationError(
            f"{folder.place()} is an export with format {export.format}, not {table_format}"
        )
    frame = spark.read.format(table_format).load(folder.place())
    missing = sorted(_COLUMNS - set(frame.columns))
    if missing:
        raise OperationError(
            f"{folder.place()} has no column {', '.join(missing)}: it is no export of a topic"
        )
    found = frame.groupBy("partition").agg(F.min("offset"), F.max("offset")).collect()
    ranges = {partition: (first, last + 1) for partition, first, last in found}
    return frame, ranges, folder.place()


def _folder_job(spark: SparkSession, given: _Given, lanes: list[Lane], target: Target) -> int:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    frame = given[1]
    assert frame is not None
    by_partition = {lane.partition: lane for lane in lanes}
    headers = F.col("headers") if "headers" in frame.columns else F.lit(None)
    columns = [F.col("partition"), F.col("offset"), F.unix_millis("timestamp")]
    columns += [F.col("key"), F.col("value"), headers]
    ordered = (
        frame.select(*columns)
        .repartition(len(lanes), "partition")
        .sortWithinPartitions("partition", "offset")
    )

    def write(rows: Iterable[Any]) -> Iterator[int]:
        return _write_sorted(rows, by_partition, target)

    return int(ordered.rdd.mapPartitions(write).sum())


def _write_sorted(rows: Iterable[Any], lanes: dict[int, Lane], target: Target) -> Iterator[int]:
    """Write the lanes of a task, whose rows come by partition and offset."""
    for partition, own in groupby(rows, key=lambda row: row[0]):
        rest = partial(map, _row, own)
        yield replay_lane(lanes[partition], target, lambda _start, rest=rest: rest())  # type: ignore[misc]


def _row(given: Any) -> Row:
    partition, offset, time_ms, key, value, headers = given
    pairs = tuple((each["key"], _bytes(each["value"])) for each in headers or ())
    return Row(partition, offset, time_ms, _bytes(key), _bytes(value), pairs)


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
