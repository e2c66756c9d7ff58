"""`python -m compat.chaos`: one run by hand; prints its rounds and its figures."""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from compat.chaos.rounds import run_chaos


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m compat.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--rounds", type=int, default=1000, help="at most so many (1000)")
    parser.add_argument("--minutes", type=float, default=5, help="no round begins later (5)")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tidelog-chaos-") as folder:
        figures = run_chaos(
            Path(folder), options.seed, options.rounds, _say, until_s=60 * options.minutes
        )
    print(figures)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
