"""`tidelog spark audit`: is every offset of a topic where it should be, and what it was?

The driver looks where each offset is; tasks read every place, wave by wave. Then it looks again:
what retention or DeleteRecords took meanwhile is no loss. A segment never changes, so a run after
one that was killed does not read again what that one found sound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog_pipeline.history import HistoryOptions
from tidelog_pipeline.history.history import plan_ranges
from tidelog_pipeline.history.views import views_of
from tidelog_pipeline.operations.audit_tasks import LOCAL_BYTES, Checked, Unit, check_all
from tidelog_pipeline.operations.errors import OperationError, sentence_of
from tidelog_pipeline.operations.journal import Journal, waves
from tidelog_pipeline.operations.lineage import Places, places_of, without
from tidelog_pipeline.operations.progress import Progress
from tidelog_pipeline.operations.scan import Scan, merged
from tidelog_protocol.messages.configs import DescribeConfigsRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tidelog_pipeline.history.planner import LogView
    from tidelog_pipeline.history.reader import ReadSettings
    from tidelog_pipeline.operations.topic import Source

__all__ = ["AuditReport", "PartitionReport", "audit"]

_TOPIC = 2  # of DescribeConfigs' resource types


@dataclass(slots=True)
class PartitionReport:
    """What was found of one partition. A fault in `losses`, `damage`, `differing` or `duplicates`
    makes the audit fail; `notes` explain what looks like one."""

    partition: int
    log: LogView
    places: Places
    scan: Scan | None
    compared: int = 0
    gone: list[tuple[int, int]] = field(default_factory=list)  # of a place that gives nothing
    losses: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """All that makes the audit fail."""
        return [*self.losses, *self.damage, *self.differing, *self.duplicates]


@dataclass(slots=True)
class AuditReport:
    """What was found of a topic."""

    topic: str
    partitions: list[PartitionReport]

    @property
    def faults(self) -> list[str]:
        """All faults, each with its partition."""
        return [
            f"{self.topic}-{each.partition}: {fault}"
            for each in self.partitions
            for fault in each.faults
        ]


def audit(
    spark: SparkSession,
    source: Source,
    *,
    compares_all: bool = False,
    journal: Path | None = None,
) -> AuditReport:
    """Check a topic. With `compares_all` a consumer reads everything, not samples of the tier.
    `journal` is the file by which a run goes on after one that was killed.

    OperationError if there is no such topic, or if the tier or the brokers can't be read.
    """
    logs, settings, is_compacted = _look(source)
    placed = [(log, places_of(log)) for log in logs]
    units = [unit for log, places in placed for unit in _units(log, places)]
    topic_id = logs[0].topic_id.hex() if logs else ""
    known = Journal(journal, {"audit": topic_id, "comparesAll": compares_all})
    try:
        checked = _checked(spark, source.topic, units, settings, known, compares_all=compares_all)
    except Exception as error:
        raise OperationError(sentence_of(error)) from error
    later = {log.partition: log for log in _look(source)[0]}
    of_partition: dict[int, list[Checked]] = {log.partition: [] for log in logs}
    for each in checked:
        of_partition[each.unit.partition].append(each)
    reports = [
        _judged(
            later[log.partition], places, of_partition[log.partition], is_compacted=is_compacted
        )
        for log, places in placed
    ]
    return AuditReport(source.topic, reports)


def _checked(
    spark: SparkSession,
    topic: str,
    units: Sequence[Unit],
    settings: ReadSettings,
    known: Journal,
    *,
    compares_all: bool,
) -> list[Checked]:
    """All units; those that a run before found sound as it found them."""
    found = [
        Checked.from_json(each, known.done[each.name]) for each in units if each.name in known.done
    ]
    left = [each for each in units if each.name not in known.done]
    progress = Progress(f"Auditing {topic}", max(len(units), 1))
    progress.add(len(found))
    try:
        for wave in waves(left, lambda unit: unit.size):
            job = partial(_run, spark, wave, settings, compares_all)
            fresh = progress.run(spark, len(wave), job)
            known.add({each.unit.name: each.as_json() for each in fresh if each.is_lasting})
            found += fresh
    finally:
        progress.end()
    return found


def _run(
    spark: SparkSession, units: Sequence[Unit], settings: ReadSettings, compares_all: bool
) -> list[Checked]:
    def check(own: Iterable[Unit]) -> Iterable[Checked]:
        return check_all(own, settings, compares_all=compares_all)

    tasks = min(len(units), 16 * spark.sparkContext.defaultParallelism)
    found: list[Checked] = (
        spark.sparkContext.parallelize(units, tasks).mapPartitions(check).collect()
    )
    return found


# ---- what there is -------------------------------------------------------------------------------


def _look(source: Source) -> tuple[list[LogView], ReadSettings, bool]:
    """The partitions now, how tasks read them, whether the topic is compacted."""
    given = source.given() | {"kafka.isolation.level": "read_uncommitted"}
    options = HistoryOptions.parse(given)
    with source.connected() as client:
        _, partitions = client.partitions_of(source.topic)
        logs = views_of(client, source.topic, partitions)
        _, settings = plan_ranges(client, options, {})
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=source.topic, configuration_keys=["cleanup.policy"]
        )
        (result,) = client.ask(DescribeConfigsRequest(resources=[resource])).results
    if result.error_code:
        raise OperationError(f"{source.topic}: {result.error_message}")
    return logs, settings, "compact" in (result.configs[0].value or "")


def _units(log: LogView, places: Places) -> list[Unit]:
    """The places to read: each remote part, and parts of what only the brokers have."""

    def unit(start: int, end: int, part: Any = None) -> Unit:
        return Unit(log.topic, log.topic_id, log.partition, start, end, places.local[0], part)

    units = [unit(max(each.start, log.log_start), each.end, each) for each in places.parts]
    for start, end in places.only_local:
        step = _records_a_unit(log, end - start)
        units += [unit(first, min(first + step, end)) for first in range(start, end, step)]
    return units


def _records_a_unit(log: LogView, records: int) -> int:
    local = max(1, log.end - log.local_start)
    size = max(1, log.local_bytes) / local
    return max(1, min(records, int(LOCAL_BYTES / size)))


# ---- what that means -----------------------------------------------------------------------------


def _judged(
    log: LogView, places: Places, checked: Sequence[Checked], *, is_compacted: bool
) -> PartitionReport:
    """`log` is the partition as it is now: what lies below its start was deleted meanwhile."""
    report = PartitionReport(log.partition, log, places, None)
    report.losses += [
        f"{_name(start, end)}: neither in the remote tier nor at the brokers"
        for start, end in _after(log.log_start, places.lost)
    ]
    scans = []
    for each in checked:
        report.compared += each.compared
        if each.unit.end <= log.log_start:
            continue
        if each.is_gone:
            _note_gone(report, log, each)
        if each.scan.start < each.scan.end:
            scans.append(each.scan)
        report.differing += each.differing
        if each.is_shallow:
            report.notes.append(f"{_name(each.unit.start, each.unit.end)}: indexes not checked")
    report.scan = merged(_without_copies(scans))
    if report.scan is not None:
        _judge_scan(report, report.scan, log, is_compacted=is_compacted)
    _note_places(report, log)
    return report


def _note_gone(report: PartitionReport, log: LogView, checked: Checked) -> None:
    unit = checked.unit
    span = max(checked.gone_from, log.log_start), unit.end
    again = places_of(log)
    others = [(part.start, part.end) for part in again.parts]
    if unit.part is not None:
        listed = {part.segment.segment_id for part in again.parts}
        others = [] if unit.part.segment.segment_id in listed else [*others, again.local]
    left = without(span, others)
    report.gone += left
    report.losses += [f"{_name(*each)}: {checked.why}" for each in left]
    if not left:
        report.notes.append(f"{_name(*span)}: went to another place during the audit")


def _without_copies(scans: Iterable[Scan]) -> list[Scan]:
    """Scans that begin where the one before ended; a copy of what was scanned says no more."""
    found: list[Scan] = []
    for scan in sorted(scans, key=lambda each: (each.start, -each.end)):
        if found and scan.start < found[-1].end:
            found[-1].faults += scan.faults
        else:
            found.append(scan)
    return found


def _judge_scan(report: PartitionReport, scan: Scan, log: LogView, *, is_compacted: bool) -> None:
    report.damage += scan.faults
    report.duplicates += scan.duplicates
    gaps = _after(log.log_start, scan.gaps)
    if is_compacted:
        if scan.missing or scan.thin:
            report.notes.append(
                f"compaction removed {scan.missing} offsets between batches and records of "
                f"{scan.thin} batches"
            )
    else:
        report.losses += [f"{_name(start, end)}: no batch has it" for start, end in gaps]
        if scan.thin:
            report.losses.append(
                f"{scan.thin} batches lack records, and the topic is not compacted"
            )
    if scan.markers:
        report.notes.append(f"{scan.markers} offsets are markers of transactions")
    if scan.jumps:
        report.notes.append(f"{scan.jumps} times a producer's sequences jump ahead")


def _note_places(report: PartitionReport, log: LogView) -> None:
    places = report.places
    if log.log_start:
        report.notes.append(f"{_name(0, log.log_start)}: deleted by retention or DeleteRecords")
    if places.twice:
        count = sum(end - start for start, end in places.twice)
        report.notes.append(f"{count} offsets are in two remote segments")
    for each in places.off_lineage:
        name = _name(each.start_offset, each.end_offset + 1)
        report.notes.append(f"{name} of segment {each.segment_id}: another lineage")
    if places.unfinished:
        report.notes.append(f"{len(places.unfinished)} segments are being copied")


def _after(start: int, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(max(first, start), end) for first, end in spans if end > start]


def _name(start: int, end: int) -> str:
    return f"offset {start}" if end - start == 1 else f"offsets {start} to {end - 1}"
