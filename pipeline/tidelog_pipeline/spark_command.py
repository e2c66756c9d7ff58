"""`tidelog spark`: work on a topic's whole history by Spark, from the command line.

Options, help and completion need no Spark. What an operation needs is imported once it runs.
"""

# ruff: noqa: PLC0415 - what a subcommand needs is imported by it

from __future__ import annotations

import argparse
import re
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.cli import common, connection, positions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from tidelog_pipeline.operations.topic import Source

_SIZE = re.compile(r"(\d{1,9})(KB|MB|GB)?", re.IGNORECASE)
_UNFINISHED = "unfinished.jsonl"  # of a report's folder
_FORMATS = ("parquet", "delta", "iceberg")
_UNITS = {None: 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(positions.join_past(arguments, ("--from", "--to")))
    return common.run(f"spark {options.name}", lambda: _run(options))


def _parser() -> argparse.ArgumentParser:
    parser = common.parser(
        "spark",
        "Work on a topic's whole history by Spark, straight from the remote tier. Needs the extra:"
        " pip install 'tidelog[spark]', and Java 17 to 23.",
    )
    add = common.subcommands(parser)
    _add_export(add("export", help="write a topic's records to Parquet files or a table"))
    _add_replay(add("replay", help="write Parquet files or another topic to a topic"))
    _add_audit(add("audit", help="check every offset of a topic, wherever it is"))
    _add_stats(add("stats", help="size, rate and key skew of a topic over time"))
    return parser


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a topic's records to a folder of Parquet files, or to a table of Delta or Iceberg,"
        " each exactly once. A further run adds what is new, also after a run that was killed."
    )
    parser.set_defaults(name="export", run=_export)
    parser.add_argument("topic")
    parser.add_argument("destination", metavar="DEST", help="a folder, or an address Spark knows")
    _add_range(parser)
    parser.add_argument("--by-date", action="store_true", help="one folder for each day (UTC)")
    _add_format(parser)
    parser.add_argument(
        "--chunk",
        type=_size,
        metavar="SIZE",
        help="bytes of one step, which a run that is killed loses (1GB, more for many cores or a"
        " large topic)",
    )
    _add_spark(parser)


def _add_replay(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write the records of a topic, or of an export, to a topic: each exactly once, with its"
        " timestamp and headers, those of a key in their order. A further run goes on where the"
        " last one ended, also after a run that was killed."
    )
    parser.set_defaults(name="replay", run=_replay)
    parser.add_argument("source", metavar="SRC", help="a topic, or a folder: with a / in its name")
    parser.add_argument("topic")
    _add_range(parser)
    _add_format(parser)
    parser.add_argument(
        "--source-server", metavar="HOST:PORT", help="a broker of SRC's cluster, if it is another"
    )
    parser.add_argument(
        "--rate", type=_rate, default=0.0, metavar="N", help="records a second at most"
    )
    parser.add_argument(
        "--partitions",
        choices=("keep", "hash"),
        help="keep each record's number, or place keys as producers do (keep if both topics have"
        " as many partitions)",
    )
    parser.add_argument(
        "--compression", default="none", choices=("none", "gzip", "snappy", "lz4", "zstd")
    )
    _add_spark(parser)


def _add_audit(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check that every offset of a topic is in the remote tier or at the brokers, with the bytes"
        " it had, and that consumers get the same. Writes audit.json and audit.html, a picture of"
        " the tier; exits with 1 for a fault. Changes nothing."
    )
    parser.set_defaults(name="audit", run=_audit)
    parser.add_argument("topic")
    parser.add_argument(
        "--whole",
        action="store_true",
        help="read everything as a consumer, too, not samples of the remote tier",
    )
    _add_folder(parser)
    _add_spark(parser)


def _add_stats(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Count a topic's records, bytes and keys over time and by partition. Writes stats.json and"
        " stats.html, with plots."
    )
    parser.set_defaults(name="stats", run=_stats)
    parser.add_argument("topic")
    _add_range(parser)
    parser.add_argument(
        "--every",
        type=_seconds,
        metavar="TIME",
        help="the length of a span of time: 90s, 15m, 1h, 7d (at most 100 spans)",
    )
    _add_folder(parser)
    _add_spark(parser)


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        default="parquet",
        help="of the folder (parquet); the jars of delta and iceberg are downloaded once",
    )


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="the report's folder (tidelog-COMMAND-TOPIC)"
    )


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([1-9]\d{0,8})([smhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a span of time such as 15m or 7d")
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[found[2]]


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of records a second")
    return rate


def _add_range(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="start", metavar="PLACE", help=positions.FORM)
    parser.add_argument(
        "--to", dest="end", default="latest", metavar="PLACE", help="the end, exclusive (latest)"
    )


def _add_spark(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master", type=_master, default="local[*]", help="Spark's master (local[*])"
    )
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark"
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the source: kafka.isolation.level, rsm.config.dir",
    )


def _master(text: str) -> str:
    from tidelog_pipeline.spark import SparkStartError, check_master

    try:
        check_master(text)
    except SparkStartError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 512MB or 1GB")
    return int(found[1]) * _UNITS[found[2].upper() if found[2] else None]


def _run(options: argparse.Namespace) -> None:
    """Run the operation; everything that is expected to go wrong is one line."""
    from tidelog_pipeline.jars import JarsMissingError
    from tidelog_pipeline.java import JavaMissingError
    from tidelog_pipeline.spark import SparkMissingError, SparkStartError, missing_packages

    missing = missing_packages()
    if missing:
        names = " and ".join(missing)
        raise common.CommandError(f"{names} not installed; run: pip install 'tidelog[spark]'")
    from tidelog_pipeline.operations import OperationError

    try:
        options.run(options)
    except (
        OperationError,
        SparkMissingError,
        SparkStartError,
        JavaMissingError,
        JarsMissingError,
    ) as error:
        raise common.CommandError(str(error)) from None


def _source(options: argparse.Namespace) -> Source:
    from tidelog_pipeline.operations import Source

    properties = connection.properties_of(options)
    given = {f"kafka.{name}": text for name, text in properties.items()}
    given |= common.key_values(options.option, "--option")
    return Source(connection.servers_of(options), options.topic, given)


@contextmanager
def _session(
    options: argparse.Namespace, name: str, table_format: str = "parquet"
) -> Iterator[SparkSession]:
    """A session with the user's master and settings; it ends with the operation."""
    from tidelog_pipeline.gateway import end_jvm, interrupt
    from tidelog_pipeline.spark import session

    settings = common.key_values(options.conf, "--conf")
    spark = None
    signal.signal(signal.SIGINT, interrupt)
    try:
        spark = session(
            f"tidelog {name}",
            master=options.master,
            settings=settings,
            with_connector=False,
            table_format=table_format,
        )
        signal.signal(signal.SIGINT, interrupt)  # PySpark has set its own
        yield spark
    except KeyboardInterrupt:
        end_jvm()
        raise
    except BaseException:
        if spark is not None:
            spark.stop()
        raise
    spark.stop()


def _export(options: argparse.Namespace) -> None:
    from tidelog_pipeline.operations import Wanted, export

    source = _source(options)
    source.ranges(options.start, options.end)  # refuses what is wrong before Spark starts
    wanted = Wanted(options.start, options.end, options.by_date, options.chunk, options.format)
    with _session(options, f"export {options.topic}", options.format) as spark:
        done = export(spark, source, options.destination, wanted)
    print(f"{done.new_records} records written; {done.destination} has {done.records}")


def _replay(options: argparse.Namespace) -> None:
    from tidelog_pipeline.operations import Replay, Source, replay
    from tidelog_pipeline.operations.folders import is_surely_missing
    from tidelog_pipeline.operations.replay import check

    target = _source(options)
    source: Source | str = options.source
    if "/" not in options.source:
        server = options.source_server or target.bootstrap_servers
        source = Source(server, options.source, target.options)
    elif options.start is not None or options.end != "latest":
        raise common.CommandError("--from and --to are for topics: a folder is replayed whole")
    if "/" not in options.source and options.format != "parquet":
        raise common.CommandError("--format is for folders: SRC is a topic")
    wanted = Replay(
        source,
        target,
        options.start,
        options.end,
        options.rate,
        None if options.partitions is None else options.partitions == "keep",
        options.compression,
        options.format,
    )
    check(wanted)  # before Spark starts
    settings = common.key_values(options.conf, "--conf")
    if isinstance(source, str) and is_surely_missing(source, options.master, settings):
        raise common.CommandError(f"there is no folder {source}")
    with _session(options, f"replay {options.topic}", options.format) as spark:
        done = replay(spark, wanted)
    if done.warning:
        print(f"tidelog spark replay: {done.warning}", file=sys.stderr)
    print(f"{done.records} records written to {options.topic}")


def _folder(options: argparse.Namespace) -> Path:
    """The report's folder; CommandError if it can't be one."""
    folder: Path = options.out or Path(f"tidelog-{options.name}-{options.topic}")
    if folder.exists() and not folder.is_dir():
        raise common.CommandError(f"{folder} is not a folder")
    return folder


def _journal(options: argparse.Namespace, folder: Path) -> Path:
    """The file by which a run goes on after one that was killed."""
    journal = folder / _UNFINISHED
    if journal.exists():
        print(
            f"tidelog spark {options.name}: the run before was killed; its results count. Delete "
            f"{journal} to start again",
            file=sys.stderr,
        )
    return journal


def _audit(options: argparse.Namespace) -> None:
    from tidelog_pipeline.operations import audit, write_audit

    source, folder = _source(options), _folder(options)
    source.ranges(None, "latest")
    journal = _journal(options, folder)
    with _session(options, f"audit {options.topic}") as spark:
        report = audit(spark, source, compares_all=options.whole, journal=journal)
    for file in write_audit(report, folder):
        print(file)
    journal.unlink(missing_ok=True)
    for fault in report.faults:
        print(fault)
    if report.faults:
        raise common.CommandError(f"{options.topic} has {len(report.faults)} faults")
    records = sum(each.scan.records for each in report.partitions if each.scan)
    print(f"{records} records: every offset is where it should be")


def _stats(options: argparse.Namespace) -> None:
    from tidelog_pipeline.operations import stats, write_stats

    source, folder = _source(options), _folder(options)
    source.ranges(options.start, options.end)
    journal = _journal(options, folder)
    with _session(options, f"stats {options.topic}") as spark:
        found = stats(spark, source, options.start, options.end, options.every, journal=journal)
    for file in write_stats(found, folder):
        print(file)
    journal.unlink(missing_ok=True)
    print(f"{found.records} records, {found.bytes} bytes of keys and values")
