"""An audit's report: JSON for programs, HTML with a picture of the tier for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidelog_pipeline.operations.pages import bars, listed, page, table

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog_pipeline.operations.audit import AuditReport, PartitionReport
    from tidelog_pipeline.operations.pages import Bar

__all__ = ["as_json", "write_audit"]

_REMOTE = ("#2563eb", "#60a5fa")  # in turns
_LOCAL, _LOST = "#059669", "#dc2626"


def write_audit(report: AuditReport, folder: Path) -> list[Path]:
    """Write `audit.json` and `audit.html`; return them."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "audit.json", folder / "audit.html"]
    files[0].write_text(json.dumps(as_json(report), indent=1))
    files[1].write_text(_html(report))
    return files


def as_json(report: AuditReport) -> dict[str, Any]:
    """The whole report in plain values."""
    return {
        "topic": report.topic,
        "isWhole": not report.faults,
        "partitions": [_partition(each) for each in report.partitions],
    }


def _partition(report: PartitionReport) -> dict[str, Any]:
    scan, places = report.scan, report.places
    return {
        "partition": report.partition,
        "logStartOffset": report.log.log_start,
        "localLogStartOffset": places.local[0],
        "endOffset": report.log.end,
        "remoteSegments": [
            {
                "id": str(part.segment.segment_id),
                "startOffset": part.start,
                "endOffset": part.end,
                "bytes": part.segment.size,
            }
            for part in places.parts
        ],
        "batches": scan.batches if scan else 0,
        "records": scan.records if scan else 0,
        "bytes": scan.size if scan else 0,
        "markers": scan.markers if scan else 0,
        "gaps": scan.gaps if scan else [],
        "comparedBatches": report.compared,
        "losses": report.losses,
        "damage": report.damage,
        "differing": report.differing,
        "duplicates": report.duplicates,
        "notes": report.notes,
    }


def _html(report: AuditReport) -> str:
    verdict = (
        f"{len(report.faults)} faults" if report.faults else "Every offset is where it should be"
    )
    rows = [
        (
            each.partition,
            each.log.log_start,
            each.places.local[0],
            each.log.end,
            len(each.places.parts),
            each.scan.records if each.scan else 0,
            each.scan.size if each.scan else 0,
            each.compared,
            len(each.faults),
        )
        for each in report.partitions
    ]
    titles = ("partition", "log start", "local start", "end", "remote segments", "records", "bytes")
    notes = [f"{each.partition}: {note}" for each in report.partitions for note in each.notes]
    picture = bars([(str(each.partition), _bars(each)) for each in report.partitions])
    return page(
        f"Audit of {report.topic}: {verdict}",
        [
            "<p>Offsets of each partition: in the remote tier (blue, a segment each), at the"
            " brokers (green, behind them), lost (red).</p>",
            picture,
            table((*titles, "batches compared", "faults"), rows),
            listed("Faults", report.faults, bad=True),
            listed("Notes, by partition", notes),
        ],
    )


def _bars(report: PartitionReport) -> list[Bar]:
    places = report.places
    found: list[Bar] = [(*places.local, _LOCAL, f"at the brokers {places.local}")]
    for number, part in enumerate(places.parts):
        text = f"segment {part.segment.segment_id}: {part.start} to {part.end - 1}"
        found.append((part.start, part.end, _REMOTE[number % 2], text))
    lost = [
        *places.lost,
        *report.gone,
        *(report.scan.gaps if report.scan and report.losses else ()),
    ]
    found += [(start, end, _LOST, f"lost {start} to {end - 1}") for start, end in lost]
    return found
