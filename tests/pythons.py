"""Runs the rooms' own tests on further Pythons, all at once: `python tests/pythons.py 3.12 3.13`.

Half the time of tests with brokers is waiting. A version that this machine lacks is left out, which
the last line says; clients, Spark and the reference run on the main Python only.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ["tests/protocol", "tests/storage", "tests/broker", "tests/sim"]
MARKERS = "not compat and not reference and not spark and not slow"
# No matter of the Python: that checks find planted bugs, that a seed is one run, that many seeds
# have everything in them, which of them once found a bug in what the broker decides, and what
# becomes of a transaction at whose every step somebody dies. Of the mixed workload the first seeds.
ELSEWHERE = (
    "planted_bug",
    "hash_seed",
    "same_run_twice",
    "within_some_seeds",
    "seed_that_failed_once",
    "at_a_step_halves_nothing",
    "the_command_line_",
    *(f"test_all_promises_hold[3-{seed}]" for seed in (9, 12, 19, 27, 75, 171)),
)


def find(version: str) -> str | None:
    """An interpreter of this version, on PATH or among pyenv's."""
    places = [shutil.which(f"python{version}")]
    places += sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))
    for place in places:
        if (
            place
            and subprocess.run([place, "-c", ""], capture_output=True, check=False).returncode == 0
        ):
            return place
    return None


def run(version: str, python: str) -> int:
    """Set up `.venv-<version>` and run the tests in it; returns pytest's exit code.

    What they say is told when they have ended, in one piece.
    """
    venv = ROOT / f".venv-{version}"
    uv = [str(ROOT / ".venv/bin/uv"), "--quiet"]
    subprocess.run([*uv, "venv", "--allow-existing", "--python", python, str(venv)], check=True)
    target = str(venv / "bin/python")
    package = f"{ROOT}[test,s3,metrics]"
    subprocess.run([*uv, "pip", "install", "--python", target, "-e", package], check=True)
    command = [target, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-m", MARKERS]
    command += ["-k", f"not ({' or '.join(ELSEWHERE)})"]
    ended = subprocess.run(
        [*command, *ROOMS],
        cwd=ROOT,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(f"Python {version}: {python}\n{ended.stdout}", flush=True)
    return ended.returncode


def main(versions: list[str]) -> int:
    """Run each version; returns 1 when one fails."""
    places = {version: find(version) for version in versions}
    found = {version: python for version, python in places.items() if python is not None}
    with ThreadPoolExecutor() as pool:
        codes = dict(zip(found, pool.map(run, found, found.values()), strict=True))
    passed = [version for version, code in codes.items() if code == 0]
    failed = [version for version, code in codes.items() if code != 0]
    missing = [version for version in versions if version not in found]
    print(verdict(passed, failed, missing), flush=True)
    return 1 if failed else 0


def verdict(passed: list[str], failed: list[str], missing: list[str]) -> str:
    """The last line: what is known now, and what is not."""
    parts = [
        ("passed on Python", passed, ""),
        ("FAILED on Python", failed, ""),
        ("NOT CHECKED: Python", missing, " (not on this machine)"),
    ]
    return "; ".join(f"{word} {', '.join(which)}{why}" for word, which, why in parts if which)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
