"""versitygw: an S3 server on a folder, built once from the Go module proxy into the cache."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from tidelog_bench.peers.address import free_port, wait_until_listening
from tidelog_bench.peers.go_programs import GoBuildError, GoUnavailableError
from tidelog_bench.peers.kafka_jars import cache_dir
from tidelog_bench.peers.process import Child

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ENVIRONMENT", "REGION", "Versitygw"]

VERSION = "v1.8.0"
MODULE = "github.com/versity/versitygw/cmd/versitygw"
BUILD_TIMEOUT_S = 900
REGION = "us-east-1"
_ACCESS_KEY = "tidelog"
_SECRET_KEY = "tidelog-secret"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": _ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": _SECRET_KEY}
"""What its clients need."""


class Versitygw:
    """A server on a folder: its buckets are folders in it. The same port in all its lives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it listens. GoUnavailableError if it cannot be had."""
        for name in ("buckets", "sidecar"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        command = [str(program()), "--port", f"127.0.0.1:{self.port}", "--quiet", "--keep-alive"]
        command += ["--access", _ACCESS_KEY, "--secret", _SECRET_KEY]
        command += ["posix", "--sidecar", str(self.folder / "sidecar")]
        self._child = Child([*command, str(self.folder / "buckets")], self.folder / "output")
        wait_until_listening(self.port, self._child.check)

    def make_bucket(self, name: str) -> None:
        """By its folder, before it is asked for."""
        (self.folder / "buckets" / name).mkdir(parents=True, exist_ok=True)

    def cpu_seconds(self) -> float:
        """CPU time of this life of it."""
        assert self._child is not None, "it is not running"
        return self._child.cpu_seconds()

    def stop(self) -> None:
        """End it; its buckets stay."""
        child, self._child = self._child, None
        if child is not None:
            child.end()


@functools.cache
def program() -> Path:
    """The program; GoUnavailableError when Go is missing or the module cannot be had."""
    folder = cache_dir().parent / f"versitygw-{VERSION}"
    built = folder / "versitygw"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            _build(folder)
    return built


def _build(folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise GoUnavailableError("Go is needed for versitygw: no `go` on PATH")
    result = subprocess.run(
        [go, "install", f"{MODULE}@{VERSION}"],
        env={**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["no reason given"]
        error = GoUnavailableError if "dial tcp" in result.stderr else GoBuildError
        raise error(f"versitygw cannot be built: {lines[-1]}")
