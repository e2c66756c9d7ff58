"""`tidelog produce` and `tidelog consume`: many lines, lines as they come, lines that are none."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from itertools import chain
from typing import TYPE_CHECKING

import pytest

import tidelog
from support.processes import COMMAND, END_S_MAX, Start, ended
from tidelog.__main__ import main
from tidelog_protocol.records import iter_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LINES = 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    with tidelog.run(data_dir=folder) as cluster:
        yield cluster.bootstrap_servers


# Its own code, heard by Ctrl-C: a shell has what it runs in the background ignore it, and so do
# heirs.
LISTENING = """
import signal, sys
from tidelog.__main__ import main

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(sys.argv[1:]))
"""


def producing(server: str, *words: str) -> tuple[str, ...]:
    """The command."""
    return (sys.executable, "-c", LISTENING, "produce", "-b", server, *words)


def produced(start: Start, server: str, *words: str, text: str) -> tuple[int, str]:
    """Exit code and errors."""
    code, _, err = ended(start(*producing(server, *words)), text)
    return code, err


def consumed(server: str, capsys: pytest.CaptureFixture[str], topic: str, *words: str) -> list[str]:
    capsys.readouterr()
    words = (topic, "--from-beginning", "--until-end", *words)
    assert main(["consume", "-b", server, *words]) == 0
    return capsys.readouterr().out.splitlines()


def created(server: str, topic: str, partitions: int = 1) -> None:
    words = ["create", topic, "--partitions", str(partitions)]
    assert main(["topics", "-b", server, *words]) == 0


def test_many_lines_are_written_in_order_and_in_few_batches(
    start: Start, server: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It took a thread's turn for each line: 4,000 a second."""
    created(server, "many", 3)
    lines = [f"{number % 1000}:{number} and so on" for number in range(LINES)]
    (tmp_path / "lines").write_text("\n".join(lines) + "\r\n")
    with (tmp_path / "lines").open("rb") as file:
        process = start(*producing(server, "many", "--key-separator", ":"), stdin=file)
    assert ended(process) == (0, "", f"{LINES} records written to many\n")
    batches, found = 0, []
    for partition in range(3):
        words = ["--partition", str(partition), "--key", ":"]
        told = consumed(server, capsys, "many", *words)
        assert told == sorted(told, key=number_in)
        found.append(told)
        for segment in (folder / f"many-{partition}").glob("*.log"):
            batches += sum(1 for _ in iter_batches(segment.read_bytes()))
    assert sorted(chain(*found), key=number_in) == lines
    keys = [{line.split(":")[0] for line in told} for told in found]
    assert sum(map(len, keys)) == 1000, "a key is in one partition"
    assert min(map(len, keys)) > 100
    assert batches < LINES // 100


def number_in(line: str) -> int:
    return int(line.split(maxsplit=1)[0].split(":")[1])


def test_lines_are_written_as_they_come(
    start: Start, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    created(server, "typed")
    process = start(*producing(server, "typed"))
    assert process.stdin is not None
    for number, line in enumerate(("one\n", "\n", "three\nfo", "ur\r\nfive")):
        process.stdin.write(line)
        process.stdin.flush()
        if number < 3:  # as soon as it is a line
            words = ["--from-beginning", "-n", str(number + 1)]
            assert main(["consume", "-b", server, "typed", *words]) == 0
    assert ended(process) == (0, "", "5 records written to typed\n")
    assert consumed(server, capsys, "typed") == ["one", "", "three", "four", "five"]


def test_ctrl_c_ends_it_while_it_waits_for_lines(
    start: Start, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A thread waited for the next line first."""
    created(server, "interrupted")
    process = start(*producing(server, "interrupted"))
    assert process.stdin is not None
    process.stdin.write("typed\n")
    process.stdin.flush()
    assert main(["consume", "-b", server, "interrupted", "--from-beginning", "-n", "1"]) == 0
    process.send_signal(signal.SIGINT)
    assert process.wait(END_S_MAX) == 130  # its input goes on
    assert ended(process) == (130, "", "")
    assert consumed(server, capsys, "interrupted") == ["typed"]


def test_what_stands_before_a_line_that_cannot_be_sent_is_written(
    start: Start, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    created(server, "bad")
    told = produced(start, server, "bad", "--key-separator", ":", text="a:1\nb:2\nnone\nc:3\n")
    assert told == (1, "tidelog produce: no ':' in line b'none'\n")
    told = produced(start, server, "bad", text="3\n" + "x" * 2_000_000)
    assert told == (1, "tidelog produce: a line has more than 1048576 bytes\n")
    assert consumed(server, capsys, "bad") == ["1", "2", "3"]
    code, err = produced(start, server, "bad", text="x" * 1_048_576 + "\n")  # more as a batch
    assert (code, "MessageSizeTooLarge" in err, err.count("\n")) == (1, True, 1)
    assert produced(start, server, "bad", "--partition", "1", text="4\n") == (
        1,
        "tidelog produce: bad has no partition 1\n",
    )
    assert produced(start, server, "bad", "--partition", "0", "--null", "4", text="4\n")[0] == 0
    assert json.loads(consumed(server, capsys, "bad", "--json")[-1])["value"] is None


# Its own code, but for its patience.
IMPATIENT = """
import sys
from tidelog.__main__ import main
from tidelog.cli import produce

produce._WRITTEN_S_MAX = produce._STOP_S_MAX = 0.5
sys.exit(main(sys.argv[1:]))
"""


def test_lines_that_no_broker_takes_are_an_error(start: Start) -> None:
    """The client library tries for ever, and so did we, Ctrl-C or not."""
    with tidelog.run() as cluster:
        words = ["produce", "-b", cluster.bootstrap_servers, "t"]
        process = start(sys.executable, "-c", IMPATIENT, *words)
        assert process.stdin is not None
        process.stdin.write("taken\n")
        process.stdin.flush()
        consume = ["consume", "-b", cluster.bootstrap_servers, "t", "--from-beginning", "-n", "1"]
        until(lambda: main(consume) == 0)  # the topic is made by the line
        cluster.kill()
        result = ended(process, "not taken\n")
    assert result == (
        1,
        "",
        "tidelog produce: the last lines were not acknowledged within 0.5 s\n",
    )


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + END_S_MAX
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_output_that_is_closed_ends_consume(start: Start, server: str) -> None:
    created(server, "head")
    assert produced(start, server, "head", text="line\n" * 50_000)[0] == 0
    words = ["consume", "-b", server, "head", "--from-beginning"]
    process = start(*COMMAND, *words)
    assert process.stdout is not None
    assert os.read(process.stdout.fileno(), 5) == b"line\n"
    process.stdout.close()
    assert process.wait(END_S_MAX) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""
