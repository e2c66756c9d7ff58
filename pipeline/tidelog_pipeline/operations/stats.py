"""`tidelog spark stats`: a topic's size, rate and key skew over time."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog_pipeline.operations.errors import OperationError, sentence_of
from tidelog_pipeline.operations.journal import Journal, waves
from tidelog_pipeline.operations.pages import line_chart, page, table
from tidelog_pipeline.operations.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tidelog_pipeline.operations.topic import Ranges, Source

__all__ = ["Span", "TopicStats", "stats", "write_stats"]

SPANS = 100  # at most, unless the user chooses their length
_KEY = 6  # of a row of `_count`
_ASKED = "asked"  # of the journal: the step and the offsets
_SCHEMA = "partition int, timestamp timestamp, key binary, value binary"
_STEPS_S = (1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400)


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time. `top_key` is the one with most records, as text; None without keys."""

    start_s: int
    records: int
    bytes: int  # of keys and values
    keys: int
    keyless: int
    top_key: str | None
    top_records: int

    @property
    def skew(self) -> float:
        """The share of the most frequent key, from 0 to 1."""
        return self.top_records / self.records if self.records else 0.0


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic's records by time and by partition."""

    topic: str
    step_s: int
    spans: tuple[Span, ...]
    partitions: tuple[tuple[int, int, int], ...]  # number, records, bytes

    @property
    def records(self) -> int:
        """Of all partitions."""
        return sum(records for _, records, _ in self.partitions)

    @property
    def bytes(self) -> int:
        """Of keys and values of all partitions."""
        return sum(size for _, _, size in self.partitions)


def stats(
    spark: SparkSession,
    source: Source,
    start: str | None = None,
    end: str = "latest",
    step_s: int | None = None,
    *,
    journal: Path | None = None,
) -> TopicStats:
    """Count a topic's records; OperationError if the topic or the range is wrong or empty.
    `journal` is the file by which a run goes on after one that was killed."""
    topic_id, ranges = source.ranges(start, end)
    question = [topic_id, source.isolation_level, start, end, step_s]
    known = Journal(journal, {"stats": question})
    step_s, ranges = _asked_before(source, known) or (step_s, ranges)
    ranges = {each: bounds for each, bounds in ranges.items() if bounds[0] < bounds[1]}
    if not ranges:
        raise OperationError(f"{source.topic} has no records in that range")
    progress = Progress(f"Counting {source.topic}", 2 * len(ranges))
    try:
        if step_s is None:
            times = source.frame(spark, ranges, "timestamp timestamp")
            step_s = progress.run(spark, len(ranges), partial(_step_of, times))
        known.add({_ASKED: [step_s, [[each, *bounds] for each, bounds in ranges.items()]]})
        rows = _counted(spark, source, ranges, (step_s, known, progress))
    except Exception as error:
        raise OperationError(sentence_of(error)) from error
    finally:
        progress.end()
    return _gathered(source.topic, step_s, rows)


def _asked_before(source: Source, known: Journal) -> tuple[int, Ranges] | None:
    """The step and the offsets of a run before that was killed, unless some were deleted since."""
    if _ASKED not in known.done:
        return None
    step_s, listed = known.done[_ASKED]
    ranges = {partition: (start, end) for partition, start, end in listed}
    now = source.ranges(None, "latest")[1]
    if all(now[each][0] <= start and end <= now[each][1] for each, (start, end) in ranges.items()):
        return step_s, ranges
    known.done.clear()
    return None


def _counted(
    spark: SparkSession, source: Source, ranges: Ranges, how: tuple[int, Journal, Progress]
) -> list[Any]:
    """The rows of all partitions, some of them at a time."""
    step_s, known, progress = how
    left = [each for each in ranges if str(each) not in known.done]
    progress.add(len(ranges) - len(left))
    sizes: dict[int, int] = {}
    for split in source.plan({each: ranges[each] for each in left})[0]:
        sizes[split.partition] = sizes.get(split.partition, 0) + split.size
    for wave in waves(left, lambda each: sizes.get(each, 0)):
        own = {each: ranges[each] for each in wave}
        frame = source.frame(spark, own, _SCHEMA)
        rows = progress.run(spark, len(wave), partial(_count, frame, step_s))
        known.add({str(each): [_plain(row) for row in rows if row[1] == each] for each in wave})
    return [_unpacked(row) for each in ranges for row in known.done[str(each)]]


def _plain(row: Sequence[Any]) -> list[Any]:
    """A row of `_count` as JSON has it."""
    return [
        None if each is None else each.hex() if slot == _KEY else each
        for slot, each in enumerate(row)
    ]


def _unpacked(row: Sequence[Any]) -> list[Any]:
    return [
        bytes.fromhex(each) if slot == _KEY and each is not None else each
        for slot, each in enumerate(row)
    ]


def _step_of(times: DataFrame) -> int:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own idiom, an extra

    second = F.unix_seconds("timestamp")
    row: Any = times.agg(F.min(second), F.max(second)).first()
    low, high = (row[0] or 0, row[1] or 0)
    return next((step for step in _STEPS_S if (high - low) // step < SPANS), _STEPS_S[-1])


def _count(frame: DataFrame, step_s: int) -> list[Any]:
    """One row for each span and partition: start, partition, records, bytes, keys, records without
    a key, the most frequent key, its records. In two steps, so that no task holds all keys."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    start = F.floor(F.unix_seconds("timestamp") / step_s) * step_s
    size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(
        F.octet_length("value"), F.lit(0)
    )
    by_key = (
        frame.select(start.alias("start"), "partition", "key", size.alias("size"))
        .groupBy("start", "partition", "key")
        .agg(F.count(F.lit(1)).alias("records"), F.sum("size").alias("size"))
    )
    has_key = F.col("key").isNotNull()
    counted = by_key.groupBy("start", "partition").agg(
        F.sum("records"),
        F.sum("size"),
        F.count_if(has_key),
        F.sum(F.when(has_key, 0).otherwise(F.col("records"))),
        F.max_by("key", F.when(has_key, F.col("records"))),
        F.max(F.when(has_key, F.col("records"))),
    )
    return [tuple(row) for row in counted.collect()]


def _gathered(topic: str, step_s: int, rows: Sequence[Any]) -> TopicStats:
    """A key is counted in each partition it is in: producers put it in one."""
    spans: dict[int, list[Any]] = {}
    partitions: dict[int, tuple[int, int]] = {}
    for row in rows:
        spans.setdefault(int(row[0]), []).append(row)
        records, size = partitions.get(row[1], (0, 0))
        partitions[row[1]] = records + row[2], size + row[3]
    return TopicStats(
        topic,
        step_s,
        tuple(_span(start, found) for start, found in sorted(spans.items())),
        tuple((number, *partitions[number]) for number in sorted(partitions)),
    )


def _span(start: int, rows: Sequence[Any]) -> Span:
    top = max(rows, key=lambda row: row[7] or 0)
    key = None if top[6] is None else bytes(top[6]).decode(errors="backslashreplace")
    records, size, keys, keyless = (sum(row[slot] for row in rows) for slot in (2, 3, 4, 5))
    return Span(start, records, size, keys, keyless, key, top[7] or 0)


# ---- the report ----------------------------------------------------------------------------------


def write_stats(found: TopicStats, folder: Path) -> list[Path]:
    """Write `stats.json` and `stats.html`; return them."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "stats.json", folder / "stats.html"]
    files[0].write_text(json.dumps(asdict(found), indent=1))
    files[1].write_text(_html(found))
    return files


def _html(found: TopicStats) -> str:
    first, last = found.spans[0].start_s, found.spans[-1].start_s
    by_start = {span.start_s: span for span in found.spans}
    # Spans without records are zeros, unless a few records far apart would make millions of them.
    count = (last - first) // found.step_s + 1
    starts = range(first, last + 1, found.step_s) if count <= 10 * SPANS else sorted(by_start)
    spans = [by_start.get(start) for start in starts]
    names = [_time(first), _time(last)]

    def line(title: str, values: list[float]) -> str:
        return line_chart(title, names, [values])

    return page(
        f"{found.topic}: {found.records:,} records, {found.bytes:,} bytes",
        [
            line(
                "Records a second", [each.records / found.step_s if each else 0 for each in spans]
            ),
            line("Bytes a second", [each.bytes / found.step_s if each else 0 for each in spans]),
            line("Keys", [each.keys if each else 0 for each in spans]),
            line("Share of the most frequent key", [each.skew if each else 0 for each in spans]),
            table(("partition", "records", "bytes"), found.partitions),
            "<h2>Spans with the largest share of one key</h2>",
            table(
                ("from", "records", "keys", "most frequent key", "its records"),
                [
                    (_time(each.start_s), each.records, each.keys, each.top_key, each.top_records)
                    for each in sorted(found.spans, key=lambda span: span.skew, reverse=True)[:20]
                ],
            ),
        ],
    )


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
