"""Samples to a table, a JSON file and a judgement of the noise."""

from __future__ import annotations

import json
import os
import platform
import statistics
from typing import TYPE_CHECKING, Any

from tidelog_bench.cases import CASES, METRICS, START_CASE, names_of
from tidelog_bench.cluster_case import CLUSTER_NAMES
from tidelog_bench.control_case import CONTROL_NAME
from tidelog_bench.tier_cases import TIER_NAMES
from tidelog_bench.tls_cases import TLS_NAMES
from tidelog_bench.transaction_cases import TRANSACTION_CASES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidelog_bench.rounds import Samples, Spread

__all__ = ["as_json", "noise", "place", "table", "write_json"]

OURS, REFERENCE = "tidelog", "kafka"
NOISY = 0.25
ONE_BROKER = [START_CASE, *names_of(CASES), *names_of(TRANSACTION_CASES)]
_ALL = [*ONE_BROKER, *CLUSTER_NAMES, *TIER_NAMES, CONTROL_NAME, *TLS_NAMES]
ORDER = {name: place for place, name in enumerate(_ALL)}


def place(case: str) -> int:
    """Where a case stands in tables and plots."""
    return ORDER.get(case, len(ORDER))


def table(samples: Samples, peers: Sequence[str]) -> str:
    """One line per figure: medians, how far extremes lie from them, ours by Kafka's."""
    heads = ["", "unit", *peers, f"{OURS} / {REFERENCE}"]
    rows = [heads]
    for case, metrics in sorted(samples.all.items(), key=lambda item: place(item[0])):
        for metric, by_peer in metrics.items():
            facts = METRICS[metric]
            cells = [f"{case}: {metric}", facts.unit]
            for peer in peers:
                spread = samples.spread(case, metric, peer) if peer in by_peer else None
                cells.append(_cell(spread, facts.digits))
            ratio = samples.ratio(case, metric, OURS, REFERENCE)
            better = ratio is not None and (ratio >= 1) == facts.more_is_better
            cells.append("" if ratio is None else f"{ratio:.2f} {'+' if better else '-'}")
            rows.append(cells)
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def _cell(spread: Spread | None, digits: int) -> str:
    if spread is None:
        return "-"
    return f"{spread.median:.{digits}f} ±{100 * spread.noise:.0f}%"


def noise(samples: Samples) -> str:
    """What the spreads say of this run."""
    spreads = [
        spread.noise
        for case, metrics in samples.all.items()
        for metric, by_peer in metrics.items()
        for peer in by_peer
        if (spread := samples.spread(case, metric, peer)) is not None and spread.samples > 1
    ]
    lines = []
    if spreads:
        middle = statistics.median(spreads)
        word = "noisy: read ratios, not figures" if middle > NOISY else "fair"
        lines.append(f"Half spread of a figure, in the middle: {100 * middle:.0f} % ({word}).")
    if len(samples.calibration) > 1:
        best, usual = min(samples.calibration), statistics.median(samples.calibration)
        worst = max(samples.calibration)
        lines.append(
            f"A fixed piece of work took {usual:.0f} ms in the middle, {best:.0f} at best and "
            f"{worst:.0f} at worst: others took about {100 * (1 - best / usual):.0f} % of a core."
        )
    if samples.file_writes:
        usual, worst = statistics.median(samples.file_writes), max(samples.file_writes)
        lines.append(
            f"Writing a file took {usual:.2f} ms of CPU per MB in the middle, {worst:.2f} at worst "
            "in memory as it was found; it was made ready before each measurement."
        )
    return "\n".join(lines)


def as_json(samples: Samples, facts: dict[str, Any]) -> dict[str, Any]:
    """Every sample, with what is needed to read it later."""
    return {
        "machine": {
            "python": platform.python_version(),
            "system": platform.platform(),
            "cores": os.cpu_count(),
        },
        **facts,
        "units": {name: metric.unit for name, metric in METRICS.items()},
        "samples": samples.all,
        "calibration_ms": samples.calibration,
        "file_write_cpu_ms_per_mb": samples.file_writes,
        "failures": samples.failures,
    }


def write_json(path: Path, samples: Samples, facts: dict[str, Any]) -> None:
    """Write `as_json` to a file."""
    path.write_text(json.dumps(as_json(samples, facts), indent=1) + "\n")
