"""Run the rooms' own tests on further Pythons: `python tests/pythons.py [--all] 3.12 3.13`.

Without `--all` it is a sample: of each module the first cases of some tests, of each property few
examples. What differs between Pythons (the event loop, processes, the command line's parser, new
warnings) shows in some cases as well as in all. A version that this machine lacks is left out,
which the last line says. Clients, Spark and the reference run on the main Python only.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ["tests/protocol", "tests/storage", "tests/broker", "tests/sim"]
OURS = "not compat and not reference and not spark"
ALL = ["-m", OURS, *ROOMS]
SAMPLE = ["--sample", "-m", f"{OURS} and not slow and not nightly", *ROOMS[:3]]
# The loop that simulated clusters run in is a matter of the Python, what they do in it is not.
SAMPLE += ["tests/sim/test_loop.py", "tests/sim/test_simulation.py"]
SAMPLE += ["tests/simulation/test_app_loop.py", "tests/simulation/test_sealing.py"]


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


def run(version: str, python: str, selection: list[str]) -> int:
    """Set up `.venv-<version>` and run the selected tests in it; returns pytest's exit code."""
    venv = ROOT / f".venv-{version}"
    uv = [str(ROOT / ".venv/bin/uv"), "--quiet"]
    subprocess.run([*uv, "venv", "--allow-existing", "--python", python, str(venv)], check=True)
    target = str(venv / "bin/python")
    package = f"{ROOT}[test]"
    subprocess.run([*uv, "pip", "install", "--python", target, "-e", package], check=True)
    print(f"Python {version}: {python}", flush=True)
    command = [target, "-m", "pytest", "-q", *selection]
    # One process compiles the tests for this Python, else each of the three would.
    subprocess.run([*command, "--collect-only"], cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    command += ["-n", "3", "--dist", "loadgroup"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main(arguments: list[str]) -> int:
    """Run each version; returns 1 when one fails."""
    parser = argparse.ArgumentParser(description="Run tests on further Pythons.")
    parser.add_argument("--all", action="store_true", help="every case of every test")
    parser.add_argument("versions", nargs="+")
    options = parser.parse_args(arguments)
    passed, failed, missing = [], [], []
    for version in options.versions:
        python = find(version)
        if python is None:
            missing.append(version)
        elif run(version, python, ALL if options.all else SAMPLE) == 0:
            passed.append(version)
        else:
            failed.append(version)
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
