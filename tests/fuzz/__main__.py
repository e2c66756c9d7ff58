"""`python -m fuzz --minutes N [TARGET...]`: new input, another one in each run.

A third of the time goes to sequences of requests, the rest to the targets in turn: what reaches
new code is changed further, with atheris where it is there and a target has 10 s, else from
Python 3.12 on. The inputs of
faults are written to `fuzz/found`, to be added to the corpus with the fix. `--seed S` replays what
a run without atheris, or a sequence, has found.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fuzz import guided, lines
from fuzz.campaign import TARGETS, campaign, silent
from fuzz.guided import write
from fuzz.lines import Lines
from fuzz.sequences import play

FOUND = Path(__file__).parent / "found"
GUIDED_S_MIN = 10.0  # of a target: a process with atheris takes as long to begin
SEQUENCES = 300  # between two restarts of the broker
SEQUENCE = "sequences"


def main() -> int:
    """The number of faults, at most 1."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    options = parser.parse_args()
    names = options.targets or [*TARGETS, SEQUENCE]
    seconds = 60 * options.minutes
    shares = dict.fromkeys(names, seconds / len(names))
    if SEQUENCE in names and len(names) > 1:
        shares = dict.fromkeys(names, seconds * 2 / 3 / (len(names) - 1))
        shares[SEQUENCE] = seconds / 3
    is_guided = guided.is_there() and any(
        shares[name] >= GUIDED_S_MIN for name in names if name != SEQUENCE
    )
    has_coverage = is_guided or lines.is_there()
    print(f"seed {options.seed}, {'with' if has_coverage else 'without'} coverage", flush=True)
    before = _found()
    for name in names:
        if name == SEQUENCE:
            fuzz_sequences(options.seed, shares[name])
        elif guided.is_there() and shares[name] >= GUIDED_S_MIN:
            fuzz_guided(name, shares[name])
        else:
            fuzz_here(name, options.seed, shares[name])
        print(f"{name}: {shares[name]:.0f} s, {len(_found() - before)} faults so far", flush=True)
    for path in sorted(_found() - before):
        print(path.read_text())
    return min(len(_found() - before), 1)


def _found() -> set[Path]:
    return set(FOUND.glob("*/*.txt"))


def fuzz_guided(name: str, seconds: float) -> None:
    """In a process of its own."""
    command = [sys.executable, "-m", "fuzz.guided", name, str(max(1, round(seconds))), str(FOUND)]
    with tempfile.TemporaryDirectory() as corpus:
        run = subprocess.run([*command, corpus], check=False, capture_output=True, text=True)
    if run.returncode:
        write(FOUND, name, f"the process of {name} ended", b"", run.stderr[-5000:])


def fuzz_here(name: str, seed: str, seconds: float) -> None:
    """In this process, without atheris."""
    end = time.monotonic() + seconds
    with silent(), Lines() as reached:
        numbers = itertools.takewhile(lambda _: time.monotonic() < end, itertools.count())
        for fault in campaign(TARGETS[name], seed, numbers, reached):
            write(FOUND, name, fault.kind, fault.data, fault.text)


def fuzz_sequences(seed: str, seconds: float) -> None:
    """To brokers that restart. What they say is kept if it is a fault."""
    end, number = time.monotonic() + seconds, 0
    logging.getLogger("tidelog").addHandler(logging.NullHandler())
    while time.monotonic() < end:
        seeds = [f"{seed}:{each}" for each in range(number, number + SEQUENCES)]
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(play(Path(folder) / "data", seeds))
        for name, texts in found.items():
            write(FOUND, SEQUENCE, texts[0].rpartition("\n")[2], name.encode(), "\n".join(texts))
        number += SEQUENCES


if __name__ == "__main__":
    sys.exit(main())
