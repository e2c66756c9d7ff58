"""Runs the rooms' own tests on further Pythons: `python tests/pythons.py 3.12 3.13`.

A version that this machine lacks is left out, which the last line says; clients, Spark and the
reference run on the main Python only.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ["tests/protocol", "tests/storage", "tests/broker", "tests/sim"]
MARKERS = "not compat and not reference and not spark and not slow"
NAMES = "not planted_bug"  # that checks find them is no matter of the Python


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
    """Set up `.venv-<version>` and run the tests in it; returns pytest's exit code."""
    venv = ROOT / f".venv-{version}"
    uv = [str(ROOT / ".venv/bin/uv"), "--quiet"]
    subprocess.run([*uv, "venv", "--allow-existing", "--python", python, str(venv)], check=True)
    target = str(venv / "bin/python")
    package = f"{ROOT}[test,s3,metrics]"
    subprocess.run([*uv, "pip", "install", "--python", target, "-e", package], check=True)
    command = [target, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-m", MARKERS]
    command += ["-k", NAMES]
    return subprocess.run([*command, *ROOMS], cwd=ROOT, check=False).returncode


def main(versions: list[str]) -> int:
    """Run each version; returns 1 when one fails."""
    passed, failed, missing = [], [], []
    for version in versions:
        python = find(version)
        if python is None:
            missing.append(version)
            continue
        print(f"Python {version}: {python}", flush=True)
        (failed if run(version, python) else passed).append(version)
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
