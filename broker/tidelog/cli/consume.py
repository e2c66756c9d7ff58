"""`tidelog consume`: print the records of a topic."""

# ruff: noqa: PLC0415 - aiokafka takes its time to import

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidelog.cli import common
from tidelog.cli.produce import describe, quiet_client_library
from tidelog.cli.topics import metadata

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    return common.run("consume", lambda: _consume(options))


def _parser() -> argparse.ArgumentParser:
    parser = common.parser("consume", "Print the records of a topic, one line each.")
    parser.add_argument("topic")
    parser.add_argument(
        "--from-beginning", action="store_true", help="all records, not only new ones"
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
        "--json", action="store_true", help="print records as JSON, with all their fields"
    )
    return parser


def _consume(options: argparse.Namespace) -> None:
    import asyncio

    from aiokafka.errors import KafkaError

    if options.offset is not None and options.partition is None:
        raise common.CommandError("--offset needs --partition")
    if options.group is not None and options.partition is not None:
        raise common.CommandError("--group and --partition exclude each other")
    try:
        asyncio.run(_print_records(options))
    except KafkaError as error:
        raise common.CommandError(describe(error)) from None


async def _print_records(options: argparse.Namespace) -> None:
    from aiokafka import AIOKafkaConsumer

    quiet_client_library()
    partition_count = _partition_count(options)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options.bootstrap_server,
        group_id=options.group,
        auto_offset_reset="earliest" if options.from_beginning else "latest",
        isolation_level="read_committed" if options.committed else "read_uncommitted",
    )
    try:
        await consumer.start()
        await _place(consumer, options, partition_count)
        ends = await _ends(consumer) if options.until_end else None
        left = options.count
        while left != 0 and not await _reached(consumer, ends):
            batches = await consumer.getmany(timeout_ms=200, max_records=left)
            for records in batches.values():
                print("\n".join([_line(record, options) for record in records]), flush=True)
                if left is not None:
                    left -= len(records)
    finally:
        await consumer.stop()


async def _place(consumer: Any, options: argparse.Namespace, partition_count: int) -> None:
    """Assign partitions and seek to the first offsets, unless a group does both."""
    from aiokafka import TopicPartition

    if options.group is not None:
        consumer.subscribe([options.topic])
        return
    numbers = range(partition_count) if options.partition is None else [options.partition]
    partitions = [TopicPartition(options.topic, number) for number in numbers]
    consumer.assign(partitions)
    if options.offset is not None:
        consumer.seek(partitions[0], options.offset)
    elif options.from_beginning:
        await consumer.seek_to_beginning(*partitions)
    else:
        await consumer.seek_to_end(*partitions)


def _partition_count(options: argparse.Namespace) -> int:
    """Return the number of partitions, without creating the topic."""
    with common.connect(options.bootstrap_server) as client:
        (topic,) = metadata(client, [options.topic])
    count = len(topic.partitions)
    if options.partition is not None and not 0 <= options.partition < count:
        raise common.CommandError(f"{options.topic} has no partition {options.partition}")
    return count


async def _ends(consumer: Any) -> dict[Any, int]:
    """Return the end offsets now; a group must have its partitions first."""
    import asyncio

    while not consumer.assignment():  # noqa: ASYNC110 - aiokafka has no event for it
        await asyncio.sleep(0.05)
    return dict(await consumer.end_offsets(list(consumer.assignment())))


async def _reached(consumer: Any, ends: dict[Any, int] | None) -> bool:
    if ends is None:
        return False
    for partition in consumer.assignment():
        if partition in ends and await consumer.position(partition) < ends[partition]:
            return False
    return True


def _line(record: Any, options: argparse.Namespace) -> str:
    if options.json:
        return json.dumps(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": _text(record.key),
                "value": _text(record.value),
                "headers": {key: _text(value) for key, value in record.headers},
            },
            ensure_ascii=False,
        )
    value = _text(record.value)
    line = "null" if value is None else value
    if options.key is not None:
        key = _text(record.key)
        line = f"{'null' if key is None else key}{options.key}{line}"
    return line


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")
