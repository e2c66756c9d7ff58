"""Our Go programs (kfake's process, the franz-go load), built once into the user's cache."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tidelog_bench.peers.kafka_jars import cache_dir

__all__ = ["GoUnavailableError", "go_program"]

SOURCES = Path(__file__).parent.parent / "go"
BUILD_TIMEOUT_S = 600


class GoUnavailableError(Exception):
    """Why a program cannot be built, in one line."""


@functools.cache
def go_program(name: str) -> Path:
    """The program of `go/<name>`, built if its sources have changed."""
    go = shutil.which("go")
    if go is None:
        raise GoUnavailableError(f"Go is needed for {name}: no `go` on PATH")
    files = [SOURCES / "go.mod", SOURCES / "go.sum", *sorted((SOURCES / name).glob("*.go"))]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    cache = cache_dir().parent
    cache.mkdir(parents=True, exist_ok=True)
    program = cache / f"bench-{name}-{digest}"
    with (cache / "go.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            result = subprocess.run(
                [go, "build", "-o", str(program), f"./{name}"],
                cwd=SOURCES,
                env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"},
                capture_output=True,
                text=True,
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
            if result.returncode:
                lines = result.stderr.strip().splitlines() or ["no reason given"]
                raise GoUnavailableError(f"{name} cannot be built: {lines[-1]}")
    return program
