"""What the demo proves and shows: figure against figure, bytes per tier; tables, JSON, a plot."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from rich.table import Table

from tidelog_pipeline.tiers import Served

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from tidelog_pipeline.tiers import TopicBytes

REMOTE_ONLY_SHARE_MIN = 0.8


@dataclass(frozen=True, slots=True)
class Check:
    """One figure (or table of figures) from Spark beside the same from pandas."""

    name: str
    from_spark: str
    from_pandas: str
    equal: bool


@dataclass(slots=True)
class Checks:
    """All figures compared so far; one that differs fails the demo."""

    done: list[Check] = field(default_factory=list)

    def number(self, name: str, from_spark: int, from_pandas: int) -> None:
        """Compare two integers."""
        self.done.append(
            Check(name, f"{from_spark:,}", f"{from_pandas:,}", from_spark == from_pandas)
        )

    def table(self, name: str, from_spark: pd.DataFrame, from_pandas: pd.DataFrame) -> None:
        """Compare two tables, every row and value; the order of rows is free."""
        columns = list(from_pandas.columns)
        left, right = (
            frame[columns].sort_values(columns, ignore_index=True)
            for frame in (from_spark, from_pandas)
        )
        same = len(left) == len(right) and bool((left == right).all(axis=None))
        differing = (
            0
            if same
            else len(left.merge(right, how="outer", indicator=True).query("_merge != 'both'"))
        )
        shown = f"{len(left):,} rows" + (f", {differing:,} differ" if differing else "")
        self.done.append(Check(name, shown, f"{len(right):,} rows", same))

    @property
    def failed(self) -> list[Check]:
        """The figures that differ."""
        return [check for check in self.done if not check.equal]


@dataclass(frozen=True, slots=True)
class Read:
    """One of Spark's reads: what was served meanwhile, by the brokers' meters, and its time."""

    name: str
    served: Served
    seconds: float = 0.0


@dataclass(slots=True)
class TierReport:
    """Where the events' bytes were when Spark read them, and how many came from where."""

    at_rest: TopicBytes
    """When the whole history was read, by the read called `whole`."""

    reads: list[Read] = field(default_factory=list)
    whole: str = ""

    @property
    def failed(self) -> list[str]:
        """What is not as a history that is mostly remote has to be, in words."""
        faults = []
        if self.at_rest.remote_only_share < REMOTE_ONLY_SHARE_MIN:
            faults.append(
                f"only {self.at_rest.remote_only_share:.0%} of the bytes were remote only"
            )
        served = self.whole_served
        if served.remote < self.at_rest.remote_only:
            faults.append(
                f"{served.remote:,} bytes came from the remote tier, which alone has "
                f"{self.at_rest.remote_only:,}"
            )
        whole = self.at_rest.remote_only + self.at_rest.local
        if served.remote + served.local < whole:
            faults.append(f"{served.remote + served.local:,} bytes came, of {whole:,}")
        return faults

    @property
    def whole_served(self) -> Served:
        """What the read of the whole history got."""
        return next((read.served for read in self.reads if read.name == self.whole), Served(0, 0))

    @property
    def summary(self) -> str:
        """How many bytes of the whole history came from where, in words."""
        served = self.whole_served
        return (
            f"Of the whole history {_megabytes(served.remote)} came from the remote tier and "
            f"{_megabytes(served.local)} from the brokers' disks"
        )


def tiers_table(tiers: TierReport) -> Table:
    """Bytes per tier and partition."""
    table = Table(title=f"Where the bytes of {tiers.at_rest.topic} are when Spark reads it whole")
    for column in ("partition", "leader", "remote only", "in segments", "local", "remote share"):
        table.add_column(column, justify="right")
    for one in tiers.at_rest.partitions:
        share = one.remote_only / max(1, one.remote_only + one.local)
        table.add_row(
            str(one.partition),
            str(one.leader),
            _megabytes(one.remote_only),
            str(one.remote_segments),
            _megabytes(one.local),
            f"{share:.1%}",
        )
    table.add_section()
    whole = tiers.at_rest
    table.add_row(
        "all",
        "",
        _megabytes(whole.remote_only),
        str(whole.remote_segments),
        _megabytes(whole.local),
        f"{whole.remote_only_share:.1%}",
    )
    return table


def reads_table(tiers: TierReport) -> Table:
    """Bytes that each of Spark's reads got from where."""
    table = Table(
        title="Served by brokers: BytesOutPerSec and RemoteFetchBytesPerSec of all of them"
    )
    table.add_column("read")
    for column in ("time", "from the remote tier", "from disks"):
        table.add_column(column, justify="right")
    for read in tiers.reads:
        served, seconds = read.served, f"{read.seconds:.1f} s"
        table.add_row(read.name, seconds, _megabytes(served.remote), _megabytes(served.local))
    return table


def doors_line(by_brokers: Read, by_tier: Read) -> str:
    """Both reads of the whole year, in words."""
    return "The whole year through both doors, every row equal: " + ", ".join(
        f"{name} {read.seconds:.1f} s and {_megabytes(read.served.remote + read.served.local)} "
        "served by brokers"
        for name, read in (("format(kafka)", by_brokers), ("format(tidelog)", by_tier))
    )


def _bytes_of(served: Served) -> dict[str, int]:
    return {"remote_bytes": served.remote, "local_bytes": served.local}


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def write_json(checks: Checks, tiers: TierReport | None, path: Path) -> None:
    """The comparison and the tiers for programs: `figures`, `tiers` (null on a user's cluster)."""
    report: dict[str, object] = {"figures": [asdict(check) for check in checks.done], "tiers": None}
    if tiers is not None:
        at_rest = tiers.at_rest
        report["tiers"] = {
            "topic": at_rest.topic,
            "remote_only_bytes": at_rest.remote_only,
            "local_bytes": at_rest.local,
            "remote_only_share": round(at_rest.remote_only_share, 4),
            "partitions": [asdict(one) for one in at_rest.partitions],
            "reads": [
                {"name": read.name, **_bytes_of(read.served), "seconds": round(read.seconds, 2)}
                for read in tiers.reads
            ],
            "whole": _bytes_of(tiers.whole_served),
        }
    path.write_text(json.dumps(report, indent=2) + "\n")


def checks_table(checks: Checks) -> Table:
    """The comparison as a person reads it."""
    table = Table(title="Spark on the topic, against pandas on the data set")
    table.add_column("figure")
    table.add_column("Spark", justify="right")
    table.add_column("pandas", justify="right")
    table.add_column("")
    for check in checks.done:
        mark = "[green]equal[/]" if check.equal else "[red]DIFFERS[/]"
        table.add_row(check.name, check.from_spark, check.from_pandas, mark)
    return table


def delays_table(figures: pd.DataFrame) -> Table:
    """Mean delays per carrier, latest first."""
    table = Table(title="Delays per carrier, 2013")
    for column in ("carrier", "departures", "mean departure delay", "mean arrival delay"):
        table.add_column(column, justify="left" if column == "carrier" else "right")
    for row in with_means(figures).itertuples():
        table.add_row(
            str(row.carrier),
            f"{row.departures:,}",
            f"{row.departure_mean:.1f} min",
            f"{row.arrival_mean:.1f} min",
        )
    return table


def with_means(figures: pd.DataFrame) -> pd.DataFrame:
    """Carrier figures with mean delays in minutes, largest departure delay first."""
    return figures.assign(
        departure_mean=figures["departure_delay"] / figures["departures"],
        arrival_mean=figures["arrival_delay"] / figures["arrivals"],
    ).sort_values("departure_mean", ascending=False, ignore_index=True)


def plot(figures: pd.DataFrame, daily: pd.DataFrame, path: Path) -> None:
    """Mean delays per carrier, and the share of late departures per day, as a PNG."""
    import matplotlib as mpl  # noqa: PLC0415  # slow to import, needed at the very end

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    means = with_means(figures)
    by_day = daily.groupby("day")[["departures", "late"]].sum()
    share = 100 * by_day["late"] / by_day["departures"]
    figure, (bars, line) = plt.subplots(1, 2, figsize=(12, 4.5), width_ratios=[1, 1.4])
    bars.barh(means["carrier"], means["departure_mean"], color="#4477aa", label="departure")
    bars.barh(
        means["carrier"], means["arrival_mean"], color="#ee6677", height=0.35, label="arrival"
    )
    bars.invert_yaxis()
    bars.set_xlabel("mean delay (minutes)")
    bars.set_title("Delay per carrier")
    bars.legend(loc="lower right")
    line.plot(share.index, share, color="#bbbbbb", linewidth=0.8, label="day")
    line.plot(
        share.index, share.rolling(7, center=True).mean(), color="#4477aa", label="7-day mean"
    )
    line.set_ylabel("departures more than 15 min late (%)")
    line.set_title("Late departures per day, New York 2013")
    line.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
