"""`tidelog produce`: write lines of standard input to a topic, as text or as JSON."""

# ruff: noqa: PLC0415 - aiokafka takes its time to import

from __future__ import annotations

import os
import sys
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidelog.cli import common, connection, formats
from tidelog.cli.json_records import JsonRecord, parse

if TYPE_CHECKING:
    import argparse
    from asyncio import Future
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from aiokafka import AIOKafkaProducer

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_READ_BYTES = 1 << 18
_LINE_BYTES_MAX = 1 << 20  # the default limit of a broker
_JSON_LINE_BYTES_MAX = 8 * _LINE_BYTES_MAX  # one byte may be six, as in \u0000
_WRITTEN_S_MAX = 120.0  # Kafka's delivery.timeout.ms
_STOP_S_MAX = 5.0


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    return common.run("produce", lambda: _produce(options))


def _parser() -> argparse.ArgumentParser:
    parser = common.parser("produce", "Write each line of standard input as a record.")
    parser.add_argument("topic")
    parser.add_argument("--key-separator", metavar="TEXT", help="text between key and value")
    parser.add_argument("--partition", type=int, help="partition to write to (by the key's hash)")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="header of every record; can be repeated",
    )
    parser.add_argument("--compression", choices=COMPRESSIONS, default="none")
    parser.add_argument("--null", metavar="TEXT", help="write a value of this text as null")
    parser.add_argument(
        "--json",
        action="store_true",
        help="each line is a record as `consume --json` prints it, with key, value, headers,"
        " timestamp and partition; its topic and offset are ignored",
    )
    formats.add_options(parser)
    return parser


def _produce(options: argparse.Namespace) -> None:
    import asyncio

    from aiokafka.errors import KafkaError, KafkaTimeoutError

    if options.json and not (options.key_separator is options.null is None):
        raise common.CommandError("--json excludes --key-separator and --null")
    headers = common.key_values(options.header, "--header")
    options.formats = formats.formats_of(options)
    try:
        count = asyncio.run(_send_lines(options, headers))
    except KafkaTimeoutError:  # its text is empty
        raise common.CommandError(
            "no broker accepted the records in time (KafkaTimeoutError)"
        ) from None
    except KafkaError as error:
        raise common.CommandError(describe(error)) from None
    print(f"{count} record{'' if count == 1 else 's'} written to {options.topic}", file=sys.stderr)


async def _send_lines(options: argparse.Namespace, headers: dict[str, str]) -> int:
    import asyncio

    from aiokafka import AIOKafkaProducer

    quiet_client_library()
    producer = AIOKafkaProducer(
        **connection.aiokafka_config(options),
        compression_type=None if options.compression == "none" else options.compression,
        acks="all",
        enable_idempotence=True,
    )
    try:
        await producer.start()
        batches = _Batches(producer, options, headers)
        try:
            async for lines in _lines(_bytes_max(options)):
                await batches.add(lines)
        except common.CommandError:
            await batches.finish()  # the lines before a bad one are written
            raise
        await batches.finish()
    finally:
        with suppress(TimeoutError):  # it never stops retrying
            async with asyncio.timeout(_STOP_S_MAX):
                await producer.stop()
    return batches.count


def _bytes_max(options: argparse.Namespace) -> int:
    return _JSON_LINE_BYTES_MAX if options.json else _LINE_BYTES_MAX


async def _lines(bytes_max: int) -> AsyncIterator[list[bytes]]:
    """Yield lines of standard input, all available ones together."""
    rest = b""
    while data := await _read():
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
        if len(rest) > bytes_max:
            break  # reported with the line
    if rest:
        yield [rest]


async def _read() -> bytes:
    """Wait for input and return what is available; empty at the end."""
    import asyncio

    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(0, readable.set)
    except PermissionError:  # a file is always ready, and epoll refuses it
        await asyncio.sleep(0)
    else:
        try:
            await readable.wait()
        finally:
            loop.remove_reader(0)
    return os.read(0, _READ_BYTES)


class _Batches:
    """Sends lines to the topic, in a batch for each partition.

    At most two batches per partition are in flight: one being written and one waiting. `add` waits
    while both are taken. `count` is the number of lines so far.
    """

    def __init__(
        self, producer: AIOKafkaProducer, options: argparse.Namespace, headers: dict[str, str]
    ) -> None:
        self.count = 0
        self._producer = producer
        self._options = options
        self._headers = [(key, value.encode()) for key, value in headers.items()]
        self._open: dict[int, Any] = {}
        self._sent: deque[Future[Any]] = deque()

    async def add(self, lines: Iterable[bytes]) -> None:
        """Send lines, with those of open batches. CommandError if a line cannot be sent, KafkaError
        if one was not written."""
        choose = await self._chooser()
        for line in lines:
            record = _record(line.rstrip(b"\r"), self._options, self.count + 1)
            partition = choose(record)
            if not self._append(partition, record):
                await self._send(partition)
                self._append(partition, record)  # an empty batch takes any record
            self.count += 1
        await self._send_all()

    async def _chooser(self) -> Callable[[JsonRecord], int]:
        """Return a function from record to partition: the wanted one, its own, or the one that the
        client library chooses by the key."""
        from aiokafka.partitioner import DefaultPartitioner

        topic, wanted = self._options.topic, self._options.partition
        there = sorted(await self._producer.partitions_for(topic))
        if wanted is not None:
            if wanted not in there:
                raise common.CommandError(f"{topic} has no partition {wanted}")
            return lambda _: wanted
        led = list(self._producer.client.cluster.available_partitions_for_topic(topic))
        partitioner = DefaultPartitioner()

        def choose(record: JsonRecord) -> int:
            if record.partition is None:
                return int(partitioner(record.key, there, led))
            if record.partition not in there:
                text = f"line {self.count + 1}: {topic} has no partition {record.partition}"
                raise common.CommandError(text)
            return record.partition

        return choose

    def _append(self, partition: int, record: JsonRecord) -> bool:
        """Append the record if there is room; return whether there was."""
        batch = self._open.get(partition)
        if batch is None:
            batch = self._open[partition] = self._producer.create_batch()
        added = batch.append(
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=[*record.headers, *self._headers],
        )
        return added is not None

    async def _send(self, partition: int) -> None:
        """Send a batch; return once the one before it is written."""
        batch = self._open.pop(partition)
        batch.close()
        sent = await self._producer.send_batch(batch, self._options.topic, partition=partition)
        sent.add_done_callback(_heard)
        self._sent.append(sent)
        while self._sent and self._sent[0].done():
            self._sent.popleft().result()

    async def _send_all(self) -> None:
        for partition in list(self._open):
            await self._send(partition)

    async def finish(self) -> None:
        """Return when all lines are written; KafkaError or CommandError if one is not."""
        import asyncio

        await self._send_all()
        while self._sent:
            try:
                async with asyncio.timeout(_WRITTEN_S_MAX):
                    await self._sent.popleft()
            except TimeoutError:
                text = f"the last lines were not acknowledged within {_WRITTEN_S_MAX:g} s"
                raise common.CommandError(text) from None


def _heard(sent: Future[Any]) -> None:
    """Mark its exception as seen: `_send` reports the first one, and the loop logs none."""
    if not sent.cancelled():
        sent.exception()


def _record(line: bytes, options: argparse.Namespace, number: int) -> JsonRecord:
    """Return the record of a line; CommandError if it cannot be sent."""
    if len(line) > _bytes_max(options):
        raise common.CommandError(f"a line has more than {_bytes_max(options)} bytes")
    key, value = (None, None) if options.json else _split(line, options)
    forms = options.formats
    try:
        if options.json:
            return parse(line, forms)
        return JsonRecord(
            _data(key, forms.key, "the key"),
            _data(value, forms.value, "the value"),
            headers=[],
            timestamp=None,
            partition=None,
        )
    except common.CommandError as error:
        raise common.CommandError(f"line {number}: {error}") from None


def _data(text: bytes | None, form: formats.Format | None, what: str) -> bytes | None:
    return text if text is None or form is None else form.from_text(text, what)


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
    """Return one line for an error of the client library; its text begins with its name."""
    name, text = type(error).__name__, str(error)
    return text if text.startswith(name) else f"{name}: {text}".removesuffix(": ")


def quiet_client_library() -> None:
    """Keep aiokafka's log off the terminal: errors that matter are raised."""
    import logging

    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
