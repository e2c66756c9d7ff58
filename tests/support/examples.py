"""What the examples need beyond tidelog and the extra `test`: packages, jars, compiled tests.

Each is fetched or built once into the user's cache, and again if its files change. `make programs`
does that before any test.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog_bench.peers.go_programs import GoBuildError, GoUnavailableError
from tidelog_bench.peers.kafka_jars import JarsUnavailableError, cache_dir, classpath, javac

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["EXAMPLES", "UNAVAILABLE", "java_classes", "java_jars", "needs_of"]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BUILD_S_MAX = 600


class PackagesUnavailableError(Exception):
    """Why packages cannot be had, in one line."""


UNAVAILABLE = (PackagesUnavailableError, GoUnavailableError, JarsUnavailableError)


def needs_of(name: str) -> Path | None:
    """Where what an example needs lies: its packages, or its compiled tests; None for nothing."""
    folder = EXAMPLES / name
    kinds = {
        "requirements.txt": python_packages,
        "package-lock.json": node_modules,
        "go.mod": go_test,
        "pom.xml": java_classes,
    }
    for file, made in kinds.items():
        if (folder / file).exists():
            return made(folder)
    return None


def python_packages(folder: Path) -> Path:
    """A folder for PYTHONPATH. It is apart from the other packages, with which some conflict."""
    requirements = folder / "requirements.txt"
    python = f"python-{sys.version_info.major}.{sys.version_info.minor}"

    def make(target: Path) -> None:
        uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet"]
        _fetch([*uv, "--python", sys.executable, "--target", str(target), "-r", str(requirements)])

    return _made_once(f"{folder.name}-{python}", [requirements], make)


def node_modules(folder: Path) -> Path:
    """The folder `node_modules`."""
    files = [folder / "package.json", folder / "package-lock.json"]

    def make(target: Path) -> None:
        for file in files:
            shutil.copy(file, target)
        _fetch(["npm", "ci", "--silent", "--no-audit", "--no-fund", "--prefix", str(target)])

    return _made_once(folder.name, files, make) / "node_modules"


def go_test(folder: Path) -> Path:
    """The program of the tests."""

    def make(target: Path) -> None:
        go = shutil.which("go")
        if go is None:
            raise GoUnavailableError("no `go` on PATH")
        built = subprocess.run(
            [go, "test", "-c", "-o", str(target / "tests"), "."],
            cwd=folder,
            env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"},
            capture_output=True,
            text=True,
            timeout=BUILD_S_MAX,
            check=False,
        )
        if built.returncode:
            error = GoUnavailableError if "dial tcp" in built.stderr else GoBuildError
            raise error(f"cannot be built: {built.stderr.strip()}")

    files = [folder / "go.mod", folder / "go.sum", *sorted(folder.glob("*.go"))]
    return _made_once(folder.name, files, make) / "tests"


def java_jars(folder: Path) -> str:
    """The classpath of the example's POM."""
    return classpath(folder / "pom.xml")


def java_classes(folder: Path) -> Path:
    """The compiled classes."""
    sources = sorted(folder.rglob("*.java"))

    def make(target: Path) -> None:
        compiler = [javac(), "-nowarn", "-cp", java_jars(folder), "-d", str(target)]
        subprocess.run([*compiler, *map(str, sources)], check=True, timeout=BUILD_S_MAX)

    java_jars(folder)
    return _made_once(folder.name, [folder / "pom.xml", *sources], make)


def _made_once(name: str, files: Iterable[Path], make: Callable[[Path], None]) -> Path:
    """The folder that `make` has filled from these files; the first caller does, others wait."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    cache = cache_dir().parent
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / f"example-{name}-{digest}"
    with (cache / f"example-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "done").exists():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            make(target)
            (target / "done").touch()
    return target


def _fetch(command: list[str]) -> None:
    """Run an installer; PackagesUnavailableError has the command that a person may run."""
    shown = " ".join(command)
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=BUILD_S_MAX, check=False
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise PackagesUnavailableError(f"{shown}: {error}") from error
    if ended.returncode:
        lines = (ended.stderr or ended.stdout).strip().splitlines() or ["no reason given"]
        raise PackagesUnavailableError(f"{shown}: {lines[-1]}")
