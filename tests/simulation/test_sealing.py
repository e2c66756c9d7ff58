"""What a process gives a simulated application: time, chance, and no outside world."""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import secrets
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import types
import uuid
from datetime import date as imported_date
from pathlib import Path
from time import monotonic as imported_monotonic
from typing import TYPE_CHECKING

import pytest

from tidelog.simulation.sealing import START_S, SimulationRefusedError, sealed

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW_S = 12.5


@contextlib.contextmanager
def seal(seed: int = 1) -> Iterator[list[object]]:
    """Yields what was asked for in vain, and the seconds of sleep."""
    asked: list[object] = []
    with sealed(lambda: NOW_S, asked.append, seed, asked.append):
        yield asked


def test_clocks_are_virtual() -> None:
    with seal():
        seen = (time.time(), time.monotonic(), time.perf_counter(), imported_monotonic())
        in_ns = (time.time_ns(), time.monotonic_ns())
        now = datetime.datetime.now(datetime.UTC)
        words = (time.strftime("%Y", time.gmtime()), imported_date.today().year)  # noqa: DTZ011
    assert seen == (START_S + NOW_S, NOW_S, NOW_S, NOW_S)
    assert in_ns == (int((START_S + NOW_S) * 1e9), int(NOW_S * 1e9))
    assert now == datetime.datetime.fromtimestamp(START_S + NOW_S, datetime.UTC)
    assert type(now) is datetime.datetime
    assert words == ("2023", 2023)


def test_clocks_are_real_again_afterwards() -> None:
    before = (time.time, imported_monotonic, datetime.datetime, random.Random.seed, os.getpid())
    with seal():
        assert time.time is not before[0]
        assert os.getpid() != before[4]
    after = (time.time, imported_monotonic, datetime.datetime, random.Random.seed, os.getpid())
    assert after == before
    assert time.time() > START_S + NOW_S


def test_a_module_that_is_imported_meanwhile_gets_the_real_clock_back() -> None:
    module = types.ModuleType("imported_in_a_run")
    sys.modules[module.__name__] = module
    with seal():
        exec("from time import time\nfrom datetime import datetime", module.__dict__)
        assert module.time() == START_S + NOW_S
    del sys.modules[module.__name__]
    assert module.time is time.time
    assert module.datetime is datetime.datetime


def test_datetimes_keep_their_class() -> None:
    real = datetime.datetime(2020, 1, 2)  # noqa: DTZ001
    with seal():
        made = datetime.datetime(2020, 1, 2)  # noqa: DTZ001
        assert isinstance(real, datetime.datetime)
        assert isinstance(real, datetime.date)
        assert issubclass(type(real), datetime.datetime)
        assert datetime.datetime.fromisoformat("2020-01-02") == made == real
        assert datetime.datetime.utcnow().tzinfo is None  # noqa: DTZ003
    assert type(made) is type(real)


def test_another_thread_sees_the_real_clock() -> None:
    seen: list[float] = []
    begin, done = threading.Event(), threading.Event()

    def read() -> None:
        begin.wait(30)
        seen.append(time.time())
        done.set()

    thread = threading.Thread(target=read)
    thread.start()
    with seal():
        begin.set()
        done.wait(30)
    thread.join()
    assert seen[0] > START_S + 1000


def draws() -> tuple[object, ...]:
    return (
        random.random(),
        random.Random().random(),
        random.SystemRandom().random(),
        uuid.uuid4(),
        uuid.uuid1(),
        secrets.token_hex(8),
        os.urandom(4),
    )


def test_chance_follows_the_seed() -> None:
    state = random.getstate()
    with seal(1):
        first = draws()
    with seal(1):
        again = draws()
    with seal(2):
        other = draws()
    assert first == again
    assert all(one != two for one, two in zip(first, other, strict=True) if type(one) is not uuid)
    assert random.getstate() == state


def test_a_generator_with_a_seed_of_its_own_is_left_alone() -> None:
    expected = random.Random(5).random()
    with seal():
        assert random.Random(5).random() == expected


def test_sleep_blocks_the_process_that_calls_it() -> None:
    with seal() as asked:
        time.sleep(1.5)
    assert asked == [1.5]


@pytest.mark.parametrize(
    ("what", "advice"),
    [
        (lambda: threading.Thread(target=print).start(), "a thread.*asyncio.to_thread"),
        (socket.socket, "a socket.*bootstrap_servers"),
        (lambda: socket.getaddrinfo("localhost", 80), "a look-up of a host"),
        (lambda: subprocess.run(["true"], check=True), "a child process.*process"),
        (Path("written").touch, "the file 'written': keep in memory"),
        (Path("/dev/urandom").read_bytes, "the file '/dev/urandom'"),
        (lambda: os.mkdir("folder"), "a change of files"),
        (lambda: sqlite3.connect("data.db"), "the file 'data.db'"),
    ],
)
def test_the_outside_world_is_refused(what: object, advice: str) -> None:
    with seal() as asked, pytest.raises(SimulationRefusedError, match=advice):
        what()
    assert [type(one) for one in asked] == [SimulationRefusedError]


def test_files_may_be_read_and_memory_used(tmp_path: Path) -> None:
    (tmp_path / "schema").write_text("{}")
    with seal() as asked:
        assert (tmp_path / "schema").read_text() == "{}"
        sqlite3.connect(":memory:").close()
    assert asked == []
    (tmp_path / "written").write_text("afterwards")
