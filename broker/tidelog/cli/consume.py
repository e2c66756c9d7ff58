"""`tidelog consume`: print the records of a topic."""

# ruff: noqa: PLC0415 - aiokafka takes its time to import

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cli import common, connection, formats, positions
from tidelog.cli.json_records import to_line
from tidelog.cli.produce import describe, quiet_client_library
from tidelog.cli.topics import metadata

if TYPE_CHECKING:
    import argparse
    import asyncio
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(positions.join_past(arguments, ["--from"]))
    return common.run("consume", lambda: _consume(options))


def _parser() -> argparse.ArgumentParser:
    parser = common.parser("consume", "Print the records of a topic, one line each.")
    parser.add_argument("topic")
    parser.add_argument(
        "--from-beginning", action="store_true", help="all records, not only new ones"
    )
    parser.add_argument(
        "--from", dest="since", metavar="TIME", help=f"start at {positions.TIME_FORM}"
    )
    parser.add_argument("-n", "--count", type=int, help="stop after this many records")
    parser.add_argument(
        "--until-end",
        action="store_true",
        help="stop at the end offsets of when the command started",
    )
    parser.add_argument("--partition", type=int, help="this partition only")
    parser.add_argument("--offset", type=int, help="start there (with --partition)")
    parser.add_argument("--group", help="join this group and commit to it")
    parser.add_argument(
        "--committed", action="store_true", help="skip records of aborted transactions"
    )
    parser.add_argument(
        "--key", metavar="SEPARATOR", help="print the key and this separator before each value"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print records as JSON, with all their fields; `produce --json` writes them again",
    )
    formats.add_options(parser)
    return parser


def _consume(options: argparse.Namespace) -> None:
    import asyncio

    from aiokafka.errors import KafkaError

    options.formats = formats.formats_of(options)
    if options.offset is not None and options.partition is None:
        raise common.CommandError("--offset needs --partition")
    if options.group is not None and options.partition is not None:
        raise common.CommandError("--group and --partition exclude each other")
    if options.since is not None:
        if options.from_beginning or options.offset is not None:
            raise common.CommandError("--from excludes --from-beginning and --offset")
        if options.group is not None:
            raise common.CommandError("--from and --group exclude each other; see `groups reset`")
        options.since_ms = positions.time_ms(options.since)
    try:
        asyncio.run(_print_records(options))
    except KafkaError as error:
        raise common.CommandError(describe(error)) from None


async def _print_records(options: argparse.Namespace) -> None:
    from aiokafka import AIOKafkaConsumer

    quiet_client_library()
    partition_count = _partition_count(options)
    consumer = AIOKafkaConsumer(
        **connection.aiokafka_config(options),
        group_id=options.group,
        auto_offset_reset="earliest" if options.from_beginning else "latest",
        isolation_level="read_committed" if options.committed else "read_uncommitted",
    )
    try:
        await consumer.start()
        placed = await _place(consumer, options, partition_count)
        ends = await _ends(consumer, options, partition_count)
        left = options.count
        while left != 0 and not await _reached(consumer, placed, ends):
            batches = await consumer.getmany(timeout_ms=200, max_records=left)
            for records in batches.values():
                print("\n".join([_line(record, options) for record in records]), flush=True)
                if left is not None:
                    left -= len(records)
    finally:
        await consumer.stop()


async def _place(consumer: Any, options: argparse.Namespace, partition_count: int) -> asyncio.Event:
    """Assign partitions and seek to the first offsets, unless a group does both.

    Returns an event that is set while the consumer has its partitions; a group may give it none.
    """
    import asyncio

    from aiokafka import TopicPartition

    placed = asyncio.Event()
    if options.group is not None:
        consumer.subscribe([options.topic], listener=_listener(placed))
        return placed
    placed.set()
    numbers = range(partition_count) if options.partition is None else [options.partition]
    partitions = [TopicPartition(options.topic, number) for number in numbers]
    consumer.assign(partitions)
    if options.offset is not None:
        consumer.seek(partitions[0], options.offset)
    elif options.since is not None:
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, options.since_ms))
        for partition in partitions:
            first = found.get(partition)
            if first is None:  # no record is that young
                await consumer.seek_to_end(partition)
            else:
                consumer.seek(partition, first.offset)
    elif options.from_beginning:
        await consumer.seek_to_beginning(*partitions)
    else:
        await consumer.seek_to_end(*partitions)
    return placed


def _listener(placed: asyncio.Event) -> Any:
    """Return a listener of the group's rebalances that keeps the event."""
    from aiokafka import ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
        def on_partitions_revoked(self, revoked: object) -> None:
            placed.clear()

        def on_partitions_assigned(self, assigned: object) -> None:
            placed.set()

    return Listener()


def _partition_count(options: argparse.Namespace) -> int:
    """Return the number of partitions, without creating the topic."""
    with connection.connect(options) as client:
        (topic,) = metadata(client, [options.topic])
    count = len(topic.partitions)
    if options.partition is not None and not 0 <= options.partition < count:
        raise common.CommandError(f"{options.topic} has no partition {options.partition}")
    return count


async def _ends(
    consumer: Any, options: argparse.Namespace, partition_count: int
) -> dict[Any, int] | None:
    """Return the end offsets now, of all partitions: a rebalance may bring any of them."""
    from aiokafka import TopicPartition

    if not options.until_end:
        return None
    numbers = range(partition_count) if options.partition is None else [options.partition]
    partitions = [TopicPartition(options.topic, number) for number in numbers]
    return dict(await consumer.end_offsets(partitions))


async def _reached(consumer: Any, placed: asyncio.Event, ends: dict[Any, int] | None) -> bool:
    """Return whether the consumer has read its partitions to these ends.

    A member of a group that gets no partition has read all of its own.
    """
    from aiokafka.errors import IllegalStateError

    if ends is None or not placed.is_set():
        return False
    try:
        for partition in consumer.assignment():
            if partition in ends and await consumer.position(partition) < ends[partition]:
                return False
    except IllegalStateError:  # a rebalance took the partition meanwhile
        return False
    return placed.is_set()


def _line(record: Any, options: argparse.Namespace) -> str:
    try:
        return _shown(record, options, options.formats)
    except common.CommandError as error:
        place = f"{record.topic}-{record.partition}, offset {record.offset}"
        raise common.CommandError(f"{place}: {error}") from None


def _shown(record: Any, options: argparse.Namespace, forms: formats.Formats) -> str:
    if options.json:
        return to_line(record, forms)
    line = _text(record.value, forms.value, "the value")
    if options.key is not None:
        line = f"{_text(record.key, forms.key, 'the key')}{options.key}{line}"
    return line


def _text(data: bytes | None, form: formats.Format | None, what: str) -> str:
    if data is None:
        return "null"
    return data.decode(errors="backslashreplace") if form is None else form.to_text(data, what)
