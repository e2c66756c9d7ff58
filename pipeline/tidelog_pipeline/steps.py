"""The demo's steps: replay, stream, replay, stream again, batch reads, results, report.

Before Spark reads, the replayed events are given the time to leave the brokers for the remote tier.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

import pandas as pd
from rich.console import Console
from rich.progress import Progress

from tidelog_pipeline.flights import (
    SPLIT,
    carrier_figures,
    daily_figures,
    event_table,
    events,
    load_flights,
    sentinel,
)
from tidelog_pipeline.jobs import by_carrier, carrier_delays, stream_daily_delays, stream_to_parquet
from tidelog_pipeline.jobs import events as events_of
from tidelog_pipeline.replay import create_topic, replay
from tidelog_pipeline.report import (
    Checks,
    Read,
    TierReport,
    checks_table,
    delays_table,
    doors_line,
    plot,
    reads_table,
    tiers_table,
    write_json,
)
from tidelog_pipeline.tiers import BROKERS, Served, tiered_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tidelog_pipeline.flights import Event
    from tidelog_pipeline.tiers import Tiers

EVENTS_TOPIC = "flights"
RESULT_TOPIC = "flight-delays"
PARTITIONS = 4
SEGMENT_BYTES = 2 << 20  # of 150 MB: less than a twentieth is in segments still written to
# The events are of 2013: the default retention of seven days would delete them while Spark reads.
KEEP_FOR_EVER = {"retention.ms": "-1"}
WEEK = ("2013-07-01", "2013-07-08")
WHOLE = "batch: the whole year, format(kafka)"
WHOLE_FROM_TIER = "batch: the whole year, format(tidelog)"


def play(spark: SparkSession, bootstrap_servers: str, run: Path, tiers: Tiers | None) -> int:
    """Play all steps against a cluster, results into `run`; returns the exit code.

    `tiers` is the view on a cluster made by `tiered_cluster`; None leaves tiers aside.
    """
    return _Demo(spark, bootstrap_servers, run, tiers).play()


class _Demo:
    """One run: the session, the cluster, the folder and what was found so far."""

    def __init__(
        self, spark: SparkSession, bootstrap_servers: str, run: Path, tiers: Tiers | None
    ) -> None:
        self._spark = spark
        self._servers = bootstrap_servers
        self._run = run
        self._tiers = tiers
        self._checks = Checks()
        self._reads: list[Read] = []
        self._tier_report: TierReport | None = None

    def play(self) -> int:
        """All steps in order; returns the exit code."""
        table = event_table(load_flights())
        before_split = int((table["time"] < SPLIT).sum())
        self._create_topics()
        first_half, rest = table.iloc[:before_split], table.iloc[before_split:]
        split_offsets = self._replay("January to June", len(first_half), events(first_half))
        self._stream("from an empty checkpoint", len(first_half))
        last = chain(events(rest), [sentinel(table)])
        self._replay("July to December", len(rest) + 1, last)
        self._stream("from the first run's checkpoint", len(rest) + 1)
        figures = self._batch(table, first_half, split_offsets)
        daily = self._results(table)
        plot(figures, daily, self._run / "delays.png")
        return self._report(figures)

    def _create_topics(self) -> None:
        copies, tiered = 1, {}
        if self._tiers is not None:
            copies, tiered = BROKERS, tiered_topic(SEGMENT_BYTES)
        for topic, configs in (
            (EVENTS_TOPIC, KEEP_FOR_EVER | tiered),
            (RESULT_TOPIC, KEEP_FOR_EVER),
        ):
            asyncio.run(
                create_topic(self._servers, topic, PARTITIONS, configs, replication_factor=copies)
            )

    def _replay(self, title: str, count: int, stream: Iterable[Event]) -> dict[int, int]:
        with Progress() as bar:
            task = bar.add_task(f"Replaying {count:,} events, {title}", total=count)
            written = asyncio.run(
                replay(self._servers, EVENTS_TOPIC, stream, lambda done: bar.advance(task, done))
            )
        if self._tiers is not None:
            seen = self._tiers.wait_until_remote(EVENTS_TOPIC, SEGMENT_BYTES)
            self._tier_report = TierReport(seen, self._reads, WHOLE)
            _say(
                f"{seen.remote_only_share:.1%} of the topic's bytes are in the remote tier alone, "
                f"in {seen.remote_segments} segments"
            )
        return written

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Whatever is served of the events inside is this read's, and so is the time."""
        before = Served(0, 0) if self._tiers is None else self._tiers.served(EVENTS_TOPIC)
        began = time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        after = before if self._tiers is None else self._tiers.served(EVENTS_TOPIC)
        self._reads.append(Read(name, after.since(before), seconds))

    def _stream(self, title: str, rows_new: int) -> None:
        _say(f"Structured Streaming, {title}: days finished so far to {RESULT_TOPIC}")
        checkpoint = self._run / "checkpoints" / "windows"
        with self._reading(f"stream: {title}"):
            read = stream_daily_delays(
                self._spark, self._servers, EVENTS_TOPIC, RESULT_TOPIC, checkpoint
            )
        self._checks.number(f"rows streamed {title}", read, rows_new)

    def _batch(
        self, table: pd.DataFrame, first_half: pd.DataFrame, split_offsets: dict[int, int]
    ) -> pd.DataFrame:
        """Batch reads: all through both doors, by explicit offsets, by timestamps."""
        _say("Batch: the whole topic through both doors, then by offsets, then by timestamps")
        figures = self._through_both_doors(table)
        totals = carrier_figures(table)
        for column in ("departures", "departure_delay"):
            self._checks.number(
                column.replace("_", " "), int(figures[column].sum()), int(totals[column].sum())
            )
        spark, servers = self._spark, self._servers
        ends = {EVENTS_TOPIC: {str(partition): end for partition, end in split_offsets.items()}}
        by_offsets = {"startingOffsets": "earliest", "endingOffsets": json.dumps(ends)}
        with self._reading("batch: by offsets"):
            got = carrier_delays(events_of(spark, servers, EVENTS_TOPIC, by_offsets)).toPandas()
        self._checks.table(
            "delays per carrier, by offsets: January to June", got, carrier_figures(first_half)
        )
        start, end = (pd.Timestamp(day, tz="UTC") for day in WEEK)
        by_time = {
            "startingTimestamp": str(int(start.timestamp() * 1000)),
            "endingTimestamp": str(int(end.timestamp() * 1000)),
        }
        with self._reading("batch: by timestamps"):
            got = carrier_delays(events_of(spark, servers, EVENTS_TOPIC, by_time)).toPandas()
        self._checks.table(
            f"delays per carrier, by timestamps: the week of {WEEK[0]}",
            got,
            carrier_figures(table[(table["time"] >= start) & (table["time"] < end)]),
        )
        return figures

    def _through_both_doors(self, table: pd.DataFrame) -> pd.DataFrame:
        """The whole year by the brokers and straight from the tier; they must agree in all rows."""
        found = {}
        for door, name in (("kafka", WHOLE), ("tidelog", WHOLE_FROM_TIER)):
            with self._reading(name):
                found[door] = by_carrier(self._spark, self._servers, EVENTS_TOPIC, door).toPandas()
        figures: pd.DataFrame = found["kafka"]
        self._checks.number("events in the topic", int(figures["events"].sum()), len(table))
        self._checks.table("delays per carrier, whole year", figures, carrier_figures(table))
        self._checks.table("the same by format(tidelog), every row", found["tidelog"], figures)
        return figures

    def _results(self, table: pd.DataFrame) -> pd.DataFrame:
        """The result topic to Parquet, read back and compared."""
        _say(f"Structured Streaming: {RESULT_TOPIC} to Parquet")
        target = self._run / "daily-delays.parquet"
        expected = daily_figures(table)
        checkpoint = self._run / "checkpoints" / "parquet"
        read = stream_to_parquet(self._spark, self._servers, RESULT_TOPIC, target, checkpoint)
        self._checks.number("rows in the result topic", read, len(expected))
        daily = self._spark.read.parquet(str(target)).toPandas()
        self._checks.table("days per carrier, in Parquet", daily, expected)
        return daily

    def _report(self, figures: pd.DataFrame) -> int:
        console = Console()
        console.print(delays_table(figures))
        console.print(checks_table(self._checks))
        faults = [f"{check.name} differs" for check in self._checks.failed]
        if self._tier_report is not None:
            console.print(tiers_table(self._tier_report))
            console.print(reads_table(self._tier_report))
            _say(self._tier_report.summary)
            whole = {read.name: read for read in self._reads}
            _say(doors_line(whole[WHOLE], whole[WHOLE_FROM_TIER]))
            faults += self._tier_report.failed
        write_json(self._checks, self._tier_report, self._run / "report.json")
        _say(f"Plot     {self._run / 'delays.png'}")
        _say(f"Parquet  {self._run / 'daily-delays.parquet'}")
        _say(f"Report   {self._run / 'report.json'}")
        for fault in faults:
            print(f"tidelog demo: {fault}", file=sys.stderr)
        return 1 if faults else 0


def _say(text: str) -> None:
    print(text, flush=True)
