"""A broker's process that is to end before it serves: at once, whatever it is about."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from support.processes import END_S_MAX, Start, ended
from tidelog import server
from tidelog.__main__ import main
from tidelog.cli.ending import STOP_SECONDS_MAX
from tidelog.cluster.quorum import driver
from tidelog.tiered import tier
from tidelog.tiered.metadata import topic
from tidelog_bench.peers.address import free_ports

if TYPE_CHECKING:
    from pathlib import Path

# The broker's own code but for a recovery that takes for ever; `hears` decides what it does when
# somebody interrupts it.
LONG_RECOVERY = """
import sys
from tidelog.__main__ import main
from tidelog_storage.manager import LogManager

def recover(*_, **__):
    words = "recovering"
    while True:
        try:
            if words:
                print(words, flush=True)
            words = ""
            while True:
                pass
        except KeyboardInterrupt:
            if {hears}:
                raise

LogManager.open = recover
sys.exit(main(sys.argv[1:]))
"""

# Its own code, but that the signal comes at a moment that Python makes nothing good of.
SIGNALLED_AT = """
import os, signal, sys
from tidelog.__main__ import main
from tidelog_storage.manager import LogManager

class Closing:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):
            pass

class Waiting:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        signal.raise_signal(signal.SIGALRM)  # as half a second later
        for _ in range(1000):
            pass

class Generated:
    def __init__(self):
        exec("os.kill(os.getpid(), signal.SIGTERM)\\nfor _ in range(1000): pass")

def open_signalled(*arguments, **named):
    {place}()
    return whole(*arguments, **named)

whole, LogManager.open = LogManager.open, open_signalled
sys.exit(main(sys.argv[1:]))
"""


def recovering(
    start: Start, tmp_path: Path, *words: str, hears: bool = True
) -> subprocess.Popen[str]:
    code = LONG_RECOVERY.format(hears=hears)
    process = start(sys.executable, "-c", code, *words, TMPDIR=str(tmp_path))
    assert process.stdout is not None
    assert process.stdout.readline() == "recovering\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("more", [(), ("--brokers", "3"), ("--until-stdin-ends",)], ids=str)
def test_a_long_recovery_is_interrupted(
    start: Start, number: int, more: tuple[str, ...], tmp_path: Path
) -> None:
    process = recovering(start, tmp_path, "serve", "--port", "0", *more)
    process.send_signal(number)
    code, out, err = ended(process)
    assert (code, err) == (0, "")
    assert "ready" not in out
    assert list(tmp_path.iterdir()) == [], "the temporary data"


def test_one_that_cannot_be_interrupted_is_ended(start: Start, tmp_path: Path) -> None:
    process = recovering(start, tmp_path, "serve", "--port", "0", hears=False)
    process.send_signal(signal.SIGTERM)
    code, _, err = ended(process)
    assert code == 1
    assert err == "tidelog: did not stop within 4.5 s; exiting\n"


def waiting(start: Start, tmp_path: Path, *program: str) -> tuple[subprocess.Popen[str], int]:
    """One of two brokers, which finds no other; and the port of its controller listener."""
    ports = free_ports(2)
    assert main(["format", "--node-id", "1", "--data-dir", str(tmp_path)]) == 0
    process = start(
        *(sys.executable, *program, "broker", "--node-id", "1", "--port", "0"),
        f"--controller-quorum=1@127.0.0.1:{ports[0]},2@127.0.0.1:{ports[1]}",
        f"--data-dir={tmp_path}",
        "--until-stdin-ends",
    )
    return process, ports[0]


@pytest.mark.parametrize("how", ["signal", "end of input"])
def test_waiting_for_other_brokers_is_interrupted(start: Start, how: str, tmp_path: Path) -> None:
    process, port = waiting(start, tmp_path, "-m", "tidelog")
    while not listens(port):
        assert process.poll() is None
        time.sleep(0.01)
    if how == "signal":
        process.send_signal(signal.SIGTERM)
        process.wait(END_S_MAX)  # its input goes on
    assert ended(process) == (0, "", "")


@pytest.mark.parametrize("place", ["Closing", "Waiting", "Generated"])
def test_a_signal_finds_the_start_in_no_wrong_place(
    start: Start, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception raised there was printed and forgotten, or the exit code said SIGINT."""
    (tmp_path / "signalled.py").write_text(SIGNALLED_AT.format(place=place))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process, _ = waiting(start, tmp_path / "data", "-m", "signalled")
    process.wait(END_S_MAX)
    assert ended(process) == (0, "", "")


@pytest.mark.parametrize("more", [(), ("--brokers", "3")], ids=str)
def test_the_end_of_an_input_that_cannot_be_watched_is_refused(more: tuple[str, ...]) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "tidelog", "serve", "--port", "0", "--until-stdin-ends", *more],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=END_S_MAX,
        check=False,
    )
    assert process.returncode == 2
    assert process.stderr.endswith(
        "--until-stdin-ends: standard input is neither a pipe nor a terminal\n"
    )


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


# Its own code, telling what of its end is done within which limit.
TOLD_END = """
import sys
from contextlib import contextmanager
from tidelog.__main__ import main
from tidelog.cli import serve_cluster
from tidelog.embedded.cluster import Cluster

@contextmanager
def limit(seconds=4.5):
    print("[", seconds)
    yield
    print("]")

def remove(self):
    print("remove")
    removed(self)

async def stop(self):
    print("stop")
    await stopped(self)

serve_cluster.stop_within_limit = limit
removed, Cluster.remove_temporary = Cluster.remove_temporary, remove
stopped, Cluster.stop_brokers = Cluster.stop_brokers, stop
sys.exit(main(sys.argv[1:]))
"""


def test_temporary_data_has_a_limit_of_its_own_to_be_removed_in(
    start: Start, tmp_path: Path
) -> None:
    """Brokers that had stopped well were said not to have, on a disk busy with removing. On one
    that is busier still, 4.5 s were too short for the files of a thousand partitions."""
    words = ("serve", "--brokers", "2", "--port", "0")
    process = start(sys.executable, "-u", "-c", TOLD_END, *words, TMPDIR=str(tmp_path))
    assert process.stdout is not None
    assert process.stdout.readline().startswith("tidelog ready")
    process.send_signal(signal.SIGTERM)
    code, out, err = ended(process)
    assert (code, err) == (0, "")
    assert out.split() == ["[", "4.5", "stop", "]", "[", "30.0", "remove", "]"]
    assert list(tmp_path.iterdir()) == []


def test_no_call_starts_a_broker_while_all_stop(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    told = """
from tidelog.control.http import HttpDoor

async def close(self):
    print("door")
    await closed(self)

closed, HttpDoor.stop = HttpDoor.stop, close
"""
    words = ("serve", "--port", "0", "--control", "127.0.0.1:0")
    process = start(sys.executable, "-u", "-c", told + TOLD_END, *words, TMPDIR=str(tmp_path))
    assert process.stdout is not None
    assert process.stdout.readline().startswith("tidelog ready")
    process.send_signal(signal.SIGTERM)
    code, out, err = ended(process)
    assert (code, err) == (0, "")
    assert out.split()[:5] == ["door", "[", "4.5", "stop", "]"]


MANY_LOGS = """
from tidelog_storage.manager import LogManager

LogManager.unflushed = 100
"""


def test_logs_that_are_not_durable_have_time_to_be_flushed(start: Start, tmp_path: Path) -> None:
    """A thousand partitions with three replicas were not flushed in 4.5 s, and recovered at the
    next start."""
    words = ("serve", "--data-dir", str(tmp_path / "data"), "--port", "0")
    process = start(sys.executable, "-u", "-c", MANY_LOGS + TOLD_END, *words)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("tidelog ready")
    process.send_signal(signal.SIGTERM)
    code, out, err = ended(process)
    assert (code, err) == (0, "")
    assert out.split()[:4] == ["[", "7.5", "stop", "]"]


TOLD_LIMIT = """
import sys
from contextlib import contextmanager
from tidelog.__main__ import main
from tidelog.cli import broker

@contextmanager
def limit(seconds):
    print(seconds)
    yield

broker.stop_within_limit = limit
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("how", "limit"), [("signal", "7.5"), ("end of input", "4.5")])
def test_one_of_several_has_time_to_move_its_leaderships(
    start: Start, how: str, limit: str, tmp_path: Path
) -> None:
    """The end of the input means that all stop together."""
    assert main(["format", "--node-id", "1", "--data-dir", str(tmp_path)]) == 0
    process = start(
        *(sys.executable, "-u", "-c", TOLD_LIMIT, "broker", "--node-id", "1", "--port", "0"),
        f"--controller-quorum=1@127.0.0.1:{free_ports(1)[0]}",
        f"--data-dir={tmp_path}",
        "--until-stdin-ends",
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("tidelog ready")
    if how == "signal":
        process.send_signal(signal.SIGTERM)
        process.wait(END_S_MAX)  # its input goes on
    assert ended(process) == (0, f"{limit}\n", "")


def test_the_limits_of_its_parts_come_to_less_than_that_of_a_stop() -> None:
    parts = [
        server.CLOSE_SECONDS_MAX,
        tier.COPY_S_MAX,
        topic.LAST_SAVE_S_MAX,
        tier.CLOSE_S_MAX,
        driver.LEAVE_S_MAX,
    ]
    assert sum(parts) < STOP_SECONDS_MAX


# Its own code, which is asked once more when all is done but the end of the process itself.
ASKED_AGAIN = """
import os, signal, sys
from tidelog.__main__ import main

code = main(sys.argv[1:])
for number in (signal.SIGTERM, signal.SIGINT):
    os.kill(os.getpid(), number)
print("ended")
sys.exit(code)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("more", [(), ("--brokers", "2")], ids=str)
def test_one_that_is_asked_twice_ends_as_if_asked_once(
    start: Start, number: int, more: tuple[str, ...], tmp_path: Path
) -> None:
    """The loop's signal handlers went with it: a second SIGTERM just then was exit code -15."""
    words = ("serve", "--port", "0", *more)
    process = start(sys.executable, "-u", "-c", ASKED_AGAIN, *words, TMPDIR=str(tmp_path))
    assert process.stdout is not None
    assert process.stdout.readline().startswith("tidelog ready")
    process.send_signal(number)
    assert ended(process) == (0, "ended\n", "")
