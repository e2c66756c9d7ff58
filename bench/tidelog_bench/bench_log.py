"""What one append and one read of a log cost, without broker and network.

`python -m tidelog_bench.bench_log [--quick]` prints a row per case: microseconds per call (median
of several rounds), and beside an append what the bare write of the same bytes costs. The read rows
with `sent` also push the bytes through a socket pair, which is where views meet the kernel.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import threading
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.records import Record, build_batch
from tidelog_storage.config import LogConfig
from tidelog_storage.loading import Checkpointed, LogContext
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.recovery import load_log
from tidelog_storage.types import Records, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog_storage.log import Log

NOW_MS = 1_700_000_000_000
ROUNDS = 5


class Row(NamedTuple):
    """One measured case."""

    case: str
    microseconds: float
    bare_write_us: float | None = None
    ms_per_mb: float | None = None


def median(measure: Callable[[], float]) -> float:
    """The middle one of some rounds."""
    return sorted(measure() for _ in range(ROUNDS))[ROUNDS // 2]


def new_log(folder: Path) -> Log:
    """An empty log with Kafka's defaults, led in epoch 0."""
    context = LogContext(OsFileSystem(), str(folder), TopicPartition("bench", 0), NOW_MS)
    log = load_log(context, LogConfig(), Checkpointed(had_clean_shutdown=True))
    log.assign_epoch(0)
    return log


def make_batch(count: int, size: int, sequence: int = -1) -> memoryview:
    """A batch as a producer sends it; with a sequence, as an idempotent one does."""
    records = [Record(index, NOW_MS, None, bytes(size)) for index in range(count)]
    if sequence < 0:
        return memoryview(bytearray(build_batch(records)))
    data = build_batch(records, producer_id=1, producer_epoch=0, base_sequence=sequence)
    return memoryview(bytearray(data))


def appends(folder: Path, count: int, size: int, calls: int) -> Row:
    """Append one batch again and again, as leader."""
    log = new_log(folder)
    batch = make_batch(count, size)
    fresh = bytes(8)

    def append() -> float:
        start = perf_counter()
        for _ in range(calls):
            batch[:8] = fresh  # the base offset that clients send
            log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
        return (perf_counter() - start) / calls * 1e6

    descriptor = os.open(folder / "bare", os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o644)

    def write() -> float:
        start = perf_counter()
        for _ in range(calls):
            batch[:8] = fresh
            os.write(descriptor, batch)
        return (perf_counter() - start) / calls * 1e6

    row = Row(f"append {len(batch)} B", median(append), median(write))
    os.close(descriptor)
    log.release()
    return row


def idempotent_appends(folder: Path, calls: int) -> Row:
    """Append batches with sequences."""
    log = new_log(folder)
    batches = [make_batch(1, 100, sequence) for sequence in range(calls)]
    start = perf_counter()
    for batch in batches:
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    row = Row("append idempotent 170 B", (perf_counter() - start) / calls * 1e6)
    log.release()
    return row


class Sink:
    """A socket whose other end discards everything."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
        self._thread = threading.Thread(target=self._drain)
        self._thread.start()

    def _drain(self) -> None:
        buffer = bytearray(4 << 20)
        while self._theirs.recv_into(buffer):
            pass

    def send(self, records: Records) -> None:
        """Send all parts."""
        for part in records.parts:
            rest = memoryview(part)
            while rest:
                rest = rest[self._ours.send(rest) :]

    def close(self) -> None:
        """End the draining."""
        self._ours.close()
        self._thread.join()
        self._theirs.close()


def reads(folder: Path, total: int, size: int, max_bytes: int, sink: Sink | None) -> Row:
    """Read a log of `total` bytes from start to end."""
    log = new_log(folder)
    batch = make_batch(1, size)
    while log.size_in_bytes < total:
        batch[:8] = bytes(8)
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    end = log.log_end_offset
    count = 0

    def read() -> float:
        nonlocal count
        offset = count = 0
        start = perf_counter()
        while offset < end:
            records = log.read(offset, max_bytes, upper_bound=end)
            assert isinstance(records, Records)
            if sink is not None:
                sink.send(records)
            offset = records.next_offset
            count += 1
        return perf_counter() - start

    seconds = median(read)
    sent = "" if sink is None else ", sent"
    case = f"read {max_bytes} B of batches of {len(batch)} B{sent}"
    row = Row(case, seconds / count * 1e6, None, seconds * 1e3 / (log.size_in_bytes / 1e6))
    log.release()
    return row


def run(*, quick: bool = False) -> list[Row]:
    """All cases, in a temporary folder."""
    scale = 50 if quick else 1
    sink = Sink()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        folders = (root / f"bench-{number}" for number in range(99))
        rows = [
            appends(next(folders), 1, 100, 20_000 // scale),
            appends(next(folders), 160, 100, 5_000 // scale),
            appends(next(folders), 1000, 1000, 300 // scale),
            idempotent_appends(next(folders), 20_000 // scale),
        ]
        for total, size, max_bytes in (
            (4 << 20, 100, 200),
            (32 << 20, 100, 1 << 20),
            (64 << 20, 16_000, 65_535),
            (64 << 20, 16_000, 1 << 20),
        ):
            rows += [
                reads(next(folders), total // scale, size, max_bytes, end) for end in (None, sink)
            ]
    sink.close()
    return rows


def main() -> None:
    """Print the rows, and as JSON with `--json`."""
    rows = run(quick="--quick" in sys.argv)
    if "--json" in sys.argv:
        print(json.dumps([row._asdict() for row in rows]))
        return
    for row in rows:
        bare = "" if row.bare_write_us is None else f"   bare write {row.bare_write_us:8.2f} us"
        per_mb = "" if row.ms_per_mb is None else f"   {row.ms_per_mb:8.3f} ms/MB"
        print(f"{row.case:48} {row.microseconds:9.2f} us{bare}{per_mb}")


if __name__ == "__main__":
    main()
