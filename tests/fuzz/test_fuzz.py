"""The corpus again, and some new input, the same in each run: `make fuzz` looks for more."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import guided, lines
from fuzz.campaign import TARGETS, campaign, corpus_of, silent, starts_of
from fuzz.oracles import Target, TooSlowError, find_fault
from fuzz.sequences import play
from support.clusters import run

SEED = "ci"
"""A constant: new input of each commit would break whatever commit it found an old bug at."""

# New inputs of each target: about a second of CPU time each, 20 s of all.
NEW = {
    **dict.fromkeys(TARGETS, 3000),
    "requests": 5000,
    "responses": 3000,
    "otlp": 3000,
    "frames": 300,
    "key-sets": 700,
    "batches": 8000,
    "pem": 800,
    "group-records": 1500,
    "remote-events": 2000,
    "log-files": 250,
    "metadata-files": 500,
    "remote-files": 1000,
    "remote-metadata-files": 1500,
}

SEQUENCES = 150

every_target = pytest.mark.parametrize("name", TARGETS)


@every_target
def test_what_found_a_bug_finds_none_any_more(name: str) -> None:
    target = TARGETS[name]
    known = dict(enumerate(target.seeds())) | corpus_of(target)
    with silent():
        faults = {key: find_fault(target, data, with_memory=True) for key, data in known.items()}
    assert {key: fault.text for key, fault in faults.items() if fault is not None} == {}


@every_target
def test_most_seeds_are_accepted(name: str) -> None:
    """A target that refuses or breaks on all that it begins with looks at nothing."""
    target = TARGETS[name]
    seeds = target.seeds()
    with silent():
        accepted = sum(is_accepted(target, each) for each in seeds)
    assert accepted >= max(1, len(seeds) * 2 // 3), f"{accepted} of {len(seeds)}"


def is_accepted(target: Target, data: bytes) -> bool:
    try:
        target.run(data)
    except target.declared:
        return False
    return True


@every_target
def test_new_input_raises_only_the_declared_errors(name: str) -> None:
    with silent():
        faults = list(campaign(TARGETS[name], SEED, range(NEW[name])))
    assert [(fault.kind, fault.text, fault.data) for fault in faults] == []


def test_each_kind_of_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An undeclared error, an endless loop, and memory without bounds."""

    def run(data: bytes) -> None:
        if data == b"loop":
            while True:
                pass
        if data == b"memory":
            bytearray(2000)
        if data == b"declared":
            raise LookupError
        raise ValueError

    monkeypatch.setattr("fuzz.oracles.CPU_S_MAX", 0.05)
    monkeypatch.setattr("fuzz.oracles.MEMORY_BYTES", 1000)
    monkeypatch.setattr("fuzz.oracles.MEMORY_PER_BYTE", 1)
    target = Target("t", run, (LookupError,), list)
    assert find_fault(target, b"declared") is None
    kinds = {data: find_fault(target, data, with_memory=True) for data in (b"loop", b"memory", b"")}
    found = [fault.kind.split()[0] for fault in kinds.values() if fault is not None]
    assert found == [TooSlowError.__name__, "AssertionError", "ValueError"]


@pytest.mark.skipif(not lines.is_there(), reason="sys.monitoring is of Python 3.12")
def test_without_atheris_too_what_reaches_new_code_is_changed_further() -> None:
    """Each byte that is right leads to a line: chance alone would need years."""
    wanted = b"corpus!!"

    def run(data: bytes) -> None:
        right = 0
        if data[:1] == wanted[:1]:
            right += 1
            if data[1:2] == wanted[1:2]:
                right += 1
                if data[2:3] == wanted[2:3]:
                    right += 1
                    if data[3:4] == wanted[3:4]:
                        right += 1
        if right == 4:
            raise ValueError

    def other_byte(data: bytes, seed: int) -> bytes:
        rng = random.Random(seed)
        place = rng.randrange(4)
        return data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]

    target = Target("t", run, (), lambda: [bytes(4)], other_byte)
    with lines.Lines(__file__) as reached:
        assert next(campaign(target, SEED, range(100_000), reached), None) is not None


@pytest.mark.nightly  # seconds of libFuzzer
@pytest.mark.skipif(not guided.is_there(), reason="atheris has wheels for Python 3.11 on Linux")
def test_atheris_keeps_what_reaches_new_code(tmp_path: Path) -> None:
    (corpus := tmp_path / "corpus").mkdir()
    command = [sys.executable, "-m", "fuzz.guided", "jaas", "3", str(tmp_path / "found")]
    folder = Path(__file__).parents[1]
    subprocess.run([*command, str(corpus)], cwd=folder, check=True, capture_output=True)
    assert len(list(corpus.iterdir())) > len(starts_of(TARGETS["jaas"]))
    assert not (tmp_path / "found").exists()


def test_sequences_of_requests_leave_a_broker_that_serves_and_starts(tmp_path: Path) -> None:
    seeds = [f"{SEED}:{number}" for number in range(SEQUENCES)]

    async def test() -> None:
        assert await play(tmp_path / "data", seeds) == {}

    run(test)
