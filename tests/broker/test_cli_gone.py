"""`tidelog serve --isolated` when brokers' processes end by themselves, or not in order."""

from __future__ import annotations

import os
import signal
import sys
from typing import IO, TYPE_CHECKING

import pytest

from support.processes import END_S_MAX, READY, Start, ended
from tidelog.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

# Its own code, which says the process ids of the brokers before it is ready.
TELLS_PIDS = """
import sys
from tidelog.__main__ import main
from tidelog.embedded.cluster import Cluster
from tidelog.embedded.nodes import ProcessNode

async def start(self):
    await started(self)
    print(*[node.pid for node in self.brokers])
    return self

started, Cluster.start = Cluster.start, start
ProcessNode.PROGRAM = {program}
sys.exit(main(sys.argv[1:]))
"""

# A broker's own code, but that the second one can't stop.
STOPS_BADLY = """
import os, signal, sys
from tidelog.__main__ import main
from tidelog.server import BrokerServer

async def stop(self, **how):
    await stopped(self, **how)
    if self.config.node_id == 2:
        {end}

stopped, BrokerServer.stop = BrokerServer.stop, stop
sys.exit(main(["broker", *sys.argv[1:]]))
"""


class Isolated:
    """Isolated brokers, whose processes can be killed."""

    def __init__(
        self, start: Start, brokers: int, program: tuple[str, ...] = ("tidelog", "broker")
    ) -> None:
        words = ["serve", "--port", "0", "--brokers", str(brokers), "--isolated"]
        words += ["--log-level", "error"]  # brokers may warn of one that is gone
        self.process = start(sys.executable, "-u", "-c", TELLS_PIDS.format(program=program), *words)
        self.pids = [int(word) for word in self._line(self.process.stdout).split()]
        self.servers = self._line(self.process.stdout).removeprefix(READY).split(",")

    def _line(self, stream: IO[str] | None) -> str:
        assert stream is not None
        line = stream.readline()
        assert line, self.process.communicate(timeout=END_S_MAX)
        return line.strip()

    def kill(self, broker: int) -> str:
        """What is said then."""
        os.kill(self.pids[broker - 1], signal.SIGKILL)
        return self._line(self.process.stderr)

    def end(self) -> tuple[int, str, str]:
        """Exit code, and what else is said."""
        return ended(self.process)


def gone(broker: int, left: str) -> str:
    how = "its process was killed by SIGKILL"
    return f"tidelog: broker {broker} is gone: {how}; still running: {left}"


def test_a_killed_broker_is_reported_and_the_others_still_serve(
    start: Start,
    capsys: pytest.CaptureFixture[str],
) -> None:
    served = Isolated(start, 3)
    assert served.kill(2) == gone(2, "1, 3")
    for broker in (1, 3):
        assert main(["topics", "-b", served.servers[broker - 1], "list"]) == 0
    capsys.readouterr()
    served.process.send_signal(signal.SIGINT)
    assert served.end() == (0, "", "")


def test_when_no_broker_is_left_it_ends_and_says_so(start: Start) -> None:
    served = Isolated(start, 2)
    assert served.kill(2) == gone(2, "1")
    assert served.kill(1) == gone(1, "none")
    assert served.end() == (1, "", "")


@pytest.mark.parametrize(
    ("end", "said", "how"),
    [
        ("raise OSError('no')", "tidelog: did not stop cleanly: no\n", "ended with exit code 1"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "", "was killed by SIGKILL"),
    ],
    ids=["fails", "dies"],
)
def test_an_unclean_stop_is_reported(
    start: Start, end: str, said: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code was 0, though what the broker had was not all flushed."""
    (tmp_path / "badly.py").write_text(STOPS_BADLY.format(end=end))
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{path}")
    served = Isolated(start, 2, program=("badly",))
    served.process.send_signal(signal.SIGTERM)
    line = f"tidelog: broker 2 did not stop cleanly: its process {how}\n"
    assert served.end() == (1, "", f"{said}{line}")
