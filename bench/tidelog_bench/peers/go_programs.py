"""Our Go programs, built once into the user's cache: kfake's process and the franz-go load here,
the franz-go client of the tests from its own folder.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tidelog_bench.peers.kafka_jars import cache_dir

__all__ = ["GoBuildError", "GoUnavailableError", "go_program"]

SOURCES = Path(__file__).parent.parent / "go"
BUILD_TIMEOUT_S = 600


class GoUnavailableError(Exception):
    """Why a program cannot be built, in one line."""


class GoBuildError(GoUnavailableError):
    """Go and the modules are there, and the program itself does not compile."""


@functools.cache
def go_program(name: str, sources: Path = SOURCES) -> Path:
    """The program of the folder `name` in the module at `sources`, built if that has changed."""
    go = shutil.which("go")
    if go is None:
        raise GoUnavailableError(f"Go is needed for {name}: no `go` on PATH")
    files = [sources / "go.mod", sources / "go.sum", *sorted((sources / name).glob("*.go"))]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    cache = cache_dir().parent
    cache.mkdir(parents=True, exist_ok=True)
    program = cache / f"go-{name}-{digest}"
    with (cache / "go.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            result = subprocess.run(
                [go, "build", "-o", str(program), f"./{name}"],
                cwd=sources,
                env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"},
                capture_output=True,
                text=True,
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
            if result.returncode:
                lines = result.stderr.strip().splitlines() or ["no reason given"]
                offline = "dial tcp" in result.stderr
                error = GoUnavailableError if offline else GoBuildError
                raise error(f"{name} cannot be built: {lines[-1]}")
    return program
