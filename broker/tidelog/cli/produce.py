"""`tidelog produce`: write lines of standard input to a topic."""

# ruff: noqa: PLC0415 - aiokafka takes its time to import

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tidelog.cli import common

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
IN_FLIGHT_MAX = 10_000  # records handed to the producer and not yet acknowledged


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    return common.run("produce", lambda: _produce(options))


def _parser() -> argparse.ArgumentParser:
    parser = common.parser("produce", "Write each line of standard input as a record.")
    parser.add_argument("topic")
    parser.add_argument("--key-separator", metavar="TEXT", help="what stands between key and value")
    parser.add_argument("--partition", type=int, help="by the key's hash if not given")
    parser.add_argument(
        "--header", action="append", default=[], metavar="KEY=VALUE", help="for every record"
    )
    parser.add_argument("--compression", choices=COMPRESSIONS, default="none")
    parser.add_argument("--null", metavar="TEXT", help="write a value of this text as null")
    return parser


def _produce(options: argparse.Namespace) -> None:
    import asyncio

    from aiokafka.errors import KafkaError

    headers = common.key_values(options.header, "--header")
    try:
        count = asyncio.run(_send_lines(options, headers))
    except KafkaError as error:
        raise common.CommandError(describe(error)) from None
    print(f"{count} record{'' if count == 1 else 's'} written to {options.topic}", file=sys.stderr)


async def _send_lines(options: argparse.Namespace, headers: dict[str, str]) -> int:
    import asyncio

    from aiokafka import AIOKafkaProducer

    quiet_client_library()
    pairs = [(key, value.encode()) for key, value in headers.items()]
    producer = AIOKafkaProducer(
        bootstrap_servers=options.bootstrap_server,
        compression_type=None if options.compression == "none" else options.compression,
        acks="all",
        enable_idempotence=True,
    )
    try:
        await producer.start()
        count = 0
        waiting = []
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            key, value = _split(line.rstrip(b"\r\n"), options)
            waiting.append(
                await producer.send(
                    options.topic, value, key, partition=options.partition, headers=pairs
                )
            )
            count += 1
            if len(waiting) >= IN_FLIGHT_MAX:
                await asyncio.gather(*waiting)
                waiting.clear()
        await asyncio.gather(*waiting)
    finally:
        await producer.stop()
    return count


def _split(line: bytes, options: argparse.Namespace) -> tuple[bytes | None, bytes | None]:
    key, value = None, line
    if options.key_separator is not None:
        separator = options.key_separator.encode()
        if separator not in line:
            raise common.CommandError(f"no {options.key_separator!r} in line {line!r}")
        key, value = line.split(separator, 1)
    if options.null is not None and value == options.null.encode():
        return key, None
    return key, value


def describe(error: Exception) -> str:
    """One line for an error of the client library, whose own texts begin with its name."""
    name, text = type(error).__name__, str(error)
    return text if text.startswith(name) else f"{name}: {text}".removesuffix(": ")


def quiet_client_library() -> None:
    """Keep aiokafka's log off the terminal: what matters comes as an exception."""
    import logging

    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
