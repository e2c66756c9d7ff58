"""`tidelog spark export`: a topic's records to Parquet, incrementally and exactly once.

Records are written chunk by chunk, each with a record in the destination's manifest, so a run that
was killed costs the chunk it was at. The next run goes on there.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog_pipeline.history.planner import cut
from tidelog_pipeline.operations.errors import OperationError, sentence_of
from tidelog_pipeline.operations.folders import Folder
from tidelog_pipeline.operations.manifest import Export, Manifest, resumed
from tidelog_pipeline.operations.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from tidelog_pipeline.history.planner import Split
    from tidelog_pipeline.operations.manifest import Ranges
    from tidelog_pipeline.operations.topic import Source

__all__ = ["CHUNK_BYTES", "Exported", "Wanted", "export"]

CHUNK_BYTES = 1 << 30
_DATE = "date"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of a topic is exported, and how. `start` and `end` are places as users give them."""

    start: str | None = None
    end: str = "latest"
    by_date: bool = False
    chunk_bytes: int = CHUNK_BYTES


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
    folder = Folder(spark, destination)
    manifest = Manifest(folder)
    meant = Export(source.topic, topic_id, source.isolation_level, wanted.by_date)
    manifest.check(meant)
    left = resumed(manifest.covered, ranges, is_from_given=wanted.start is not None)
    if not left and manifest.last is None:
        raise OperationError(f"{source.topic} has no records in that range; nothing was written")
    before = manifest.records
    try:
        splits = source.plan(left)[0] if left else []
        manifest.begin(meant, {each: start for each, (start, _) in ranges.items()})
        _write_all(spark, source, (manifest, folder), _chunks(splits, wanted.chunk_bytes))
    except OperationError:
        raise
    except Exception as error:
        raise OperationError(sentence_of(error)) from error
    return Exported(folder.place(), manifest.records, manifest.records - before, manifest.covered)


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
    target: tuple[Manifest, Folder],
    chunks: list[tuple[int, Ranges]],
) -> None:
    manifest, folder = target
    progress = Progress(f"Exporting {source.topic}", sum(size for size, _ in chunks))
    try:
        for size, ranges in chunks:
            staging = manifest.staging(secrets.token_hex(4))
            write = partial(
                _write, source.frame(spark, ranges), folder.place(staging), manifest.export
            )
            records = progress.run(spark, size, write)
            manifest.add(staging, ranges, records)
    finally:
        progress.end()


def _write(frame: DataFrame, place: str, meant: Export | None) -> int:
    """Write rows to a folder; return how many."""
    from pyspark.sql import Observation  # noqa: PLC0415 - an extra
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own idiom

    seen = Observation()
    frame = frame.observe(seen, F.count(F.lit(1)).alias("records"))
    writer: Any = frame.write
    if meant is not None and meant.by_date:
        writer = frame.withColumn(_DATE, F.to_date("timestamp")).write.partitionBy(_DATE)
    writer.parquet(place)
    return int(seen.get["records"])
