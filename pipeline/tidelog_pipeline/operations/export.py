"""`tidelog spark export`: a topic's records to Parquet files or a table, incrementally and exactly
once.

Records are written chunk by chunk, each with a record in the destination's manifest, so a run that
was killed costs the chunk it was at. The next run goes on there.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog_pipeline.history.history import SPLIT_BYTES
from tidelog_pipeline.history.planner import cut
from tidelog_pipeline.operations.errors import OperationError, sentence_of
from tidelog_pipeline.operations.folders import Folder
from tidelog_pipeline.operations.manifest import Export, Manifest, resumed
from tidelog_pipeline.operations.progress import Progress
from tidelog_pipeline.operations.tables import open_table, settle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from tidelog_pipeline.history.planner import Split
    from tidelog_pipeline.operations.manifest import Ranges
    from tidelog_pipeline.operations.tables import Table
    from tidelog_pipeline.operations.topic import Source

__all__ = ["Exported", "Wanted", "export"]

CHUNK_BYTES = 1 << 30
_CHUNKS_MAX = 1000  # of one run, unless its chunks' size is given: each is planned on its own
_WAVES = 4  # tasks of one chunk for each core, so that the last ones leave few cores idle
_DATE = "date"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of a topic is exported, and how. `start` and `end` are places as users give them."""

    start: str | None = None
    end: str = "latest"
    by_date: bool = False
    chunk_bytes: int | None = None  # None: 1 GB, or more for many cores or a large topic
    format: str = "parquet"  # or delta, or iceberg


@dataclass(frozen=True, slots=True)
class Exported:
    """What a destination has, and how much of it this run wrote."""

    destination: str
    records: int
    new_records: int
    covered: Ranges


def export(
    spark: SparkSession, source: Source, destination: str, wanted: Wanted | None = None
) -> Exported:
    """Write what the destination lacks of the wanted offsets.

    OperationError if the topic, the range or the destination is wrong: then nothing was written; or
    if records are gone or can't be read: what was written is a whole part of the topic.
    """
    wanted = wanted or Wanted()
    topic_id, ranges = source.ranges(wanted.start, wanted.end)
    meant = Export(
        source.topic, topic_id, source.isolation_level, wanted.by_date, format=wanted.format
    )
    try:
        folder = Folder(spark, destination)
        manifest = Manifest(folder)
        manifest.check(meant)
        before = manifest.records
        target = _target(spark, folder, manifest, meant)
        left = resumed(manifest.covered, ranges, is_from_given=wanted.start is not None)
        if not left and manifest.last is None:
            raise OperationError(
                f"{source.topic} has no records in that range; nothing was written"
            )
        splits = source.plan(left)[0] if left else []
        size = wanted.chunk_bytes or _chunk_bytes(spark, splits)
        manifest.begin(meant, {each: start for each, (start, _) in ranges.items()})
        _write_all(spark, source, target, _chunks(splits, size))
    except OperationError:
        raise
    except Exception as error:
        raise OperationError(sentence_of(error)) from error
    return Exported(folder.place(), manifest.records, manifest.records - before, manifest.covered)


def _chunk_bytes(spark: SparkSession, splits: Iterable[Split]) -> int:
    cores = spark.sparkContext.defaultParallelism
    size = sum(split.size for split in splits)
    return max(CHUNK_BYTES, _WAVES * cores * SPLIT_BYTES, size // _CHUNKS_MAX)


def _chunks(splits: Iterable[Split], size: int) -> list[tuple[int, Ranges]]:
    """(bytes, offsets) of each chunk: adjacent parts of partitions, of about this size."""
    chunks: list[tuple[int, Ranges]] = []
    filled = size
    for whole in splits:
        for split in cut(whole, -(-whole.size // size)):
            start, end = split.pieces[0].start, split.pieces[-1].end
            if filled + split.size > size and filled:
                chunks.append((0, {}))
                filled = 0
            filled += split.size
            ranges = chunks[-1][1]
            ranges[split.partition] = (ranges.get(split.partition, (start, end))[0], end)
            chunks[-1] = (filled, ranges)
    return chunks


def _write_all(
    spark: SparkSession,
    source: Source,
    target: _Files | _Commits,
    chunks: list[tuple[int, Ranges]],
) -> None:
    progress = Progress(f"Exporting {source.topic}", sum(size for size, _ in chunks))
    try:
        for size, ranges in chunks:
            write = partial(target.write, source.frame(spark, ranges), ranges)
            progress.run(spark, size, write)
    finally:
        progress.end()


def _target(
    spark: SparkSession, folder: Folder, manifest: Manifest, meant: Export
) -> _Files | _Commits:
    """Where chunks go. What a run before left open in a table is ended."""
    if meant.format == "parquet":
        return _Files(manifest, folder, by_date=meant.by_date)
    table = open_table(spark, meant.format, folder.place(), by_date=meant.by_date)
    settle(manifest, table)
    return _Commits(manifest, table)


class _Commits:
    """Chunks as commits of a table."""

    def __init__(self, manifest: Manifest, table: Table) -> None:
        self._manifest = manifest
        self._table = table

    def write(self, frame: DataFrame, ranges: Ranges) -> None:
        """Write a chunk."""
        chunk = self._manifest.announce(secrets.token_hex(4), ranges)
        self._table.append(frame, chunk.number, chunk.staging)
        records = self._table.commits().records.get(chunk.staging)
        if records is None:
            raise OperationError(f"the table did not take chunk {chunk.number}: another run writes")
        self._manifest.confirm(chunk, records)


class _Files:
    """Chunks as Parquet files, which are moved into the destination."""

    def __init__(self, manifest: Manifest, folder: Folder, *, by_date: bool) -> None:
        self._manifest = manifest
        self._folder = folder
        self._by_date = by_date

    def write(self, frame: DataFrame, ranges: Ranges) -> None:
        """Write a chunk."""
        from pyspark.sql import Observation  # noqa: PLC0415 - an extra
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own idiom

        staging = self._manifest.staging(secrets.token_hex(4))
        seen = Observation()
        frame = frame.observe(seen, F.count(F.lit(1)).alias("records"))
        writer: Any = frame.write
        if self._by_date:
            writer = frame.withColumn(_DATE, F.to_date("timestamp")).write.partitionBy(_DATE)
        writer.parquet(self._folder.place(staging))
        self._manifest.add(staging, ranges, int(seen.get["records"]))
