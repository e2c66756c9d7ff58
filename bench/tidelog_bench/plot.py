"""The figures as bars, each beside Apache Kafka's, in one PNG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_bench.cases import METRICS
from tidelog_bench.results import REFERENCE, place

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidelog_bench.rounds import Samples

__all__ = ["write_plot"]

_COLOURS = {"tidelog": "#1f77b4", "kafka": "#555555"}
_OTHERS = ("#e7a33e", "#c2722f", "#8c564b")


def write_plot(path: Path, samples: Samples, peers: Sequence[str]) -> bool:
    """One panel per metric, bars of medians with extremes; False when nothing draws here."""
    try:
        import matplotlib as mpl  # noqa: PLC0415

        mpl.use("Agg")
        from matplotlib import pyplot  # noqa: PLC0415
    except ImportError:
        return False
    metrics = [name for name in METRICS if any(name in case for case in samples.all.values())]
    if not metrics:
        return False
    heights = [1 + sum(metric in case for case in samples.all.values()) for metric in metrics]
    figure, axes = pyplot.subplots(
        len(metrics),
        1,
        figsize=(11, 1.2 + 0.62 * sum(heights)),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    for metric, panel in zip(metrics, axes[:, 0], strict=True):
        _draw(panel, metric, samples, peers)
    axes[0, 0].legend(loc="lower right", fontsize=8)
    figure.suptitle(f"Medians with extremes; axes logarithmic; {REFERENCE} is Apache Kafka")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True


def _draw(panel: object, metric: str, samples: Samples, peers: Sequence[str]) -> None:
    cases = sorted((case for case, metrics in samples.all.items() if metric in metrics), key=place)
    bar = 0.8 / len(peers)
    others = iter(_OTHERS * len(peers))
    largest = 0.0
    for index, peer in enumerate(peers):
        colour = _COLOURS.get(peer) or next(others)
        places, medians, below, above = [], [], [], []
        for row, case in enumerate(cases):
            spread = samples.spread(case, metric, peer)
            if spread is not None:
                places.append(row + (index - (len(peers) - 1) / 2) * bar)
                medians.append(spread.median)
                largest = max(largest, spread.median)
                below.append(spread.median - spread.low)
                above.append(spread.high - spread.median)
        panel.barh(  # type: ignore[attr-defined]
            places, medians, bar, xerr=(below, above), color=colour, label=peer, ecolor="#999999"
        )
    facts = METRICS[metric]
    direction = "more is better" if facts.more_is_better else "less is better"
    panel.set_yticks(range(len(cases)), cases, fontsize=8)  # type: ignore[attr-defined]
    panel.invert_yaxis()  # type: ignore[attr-defined]
    if largest > 0:  # of nothing there is no logarithm
        panel.set_xscale("log")  # type: ignore[attr-defined]
    panel.set_title(f"{metric}, {facts.unit} ({direction})", fontsize=9, loc="left")  # type: ignore[attr-defined]
