"""The Go client (franz-go), built once into the cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tidelog_bench.peers import kafka_jars

SOURCES = Path(__file__).parent / "go"


def build_go_client() -> Path:
    """The program; skips the test when Go is missing or its modules cannot be had."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("the Go client needs Go: no `go` on PATH")
    files = sorted(SOURCES.glob("*"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    cache = kafka_jars.cache_dir().parent
    cache.mkdir(parents=True, exist_ok=True)
    program = cache / f"franz-go-client-{digest}"
    with (cache / "go.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            result = subprocess.run(
                [go, "build", "-o", str(program), "."],
                cwd=SOURCES,
                env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"},
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            if result.returncode and "dial tcp" in result.stderr:
                pytest.skip("the Go client's modules cannot be downloaded")
            assert result.returncode == 0, result.stderr
    return program
