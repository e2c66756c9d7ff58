"""A real S3 server for tests: versitygw, built once from the Go module proxy into the cache."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

VERSION = "v1.8.0"
MODULE = "github.com/versity/versitygw/cmd/versitygw"
BUILD_TIMEOUT_S = 900
START_TIMEOUT_S = 60
ACCESS_KEY = "tidelog"
SECRET_KEY = "tidelog-secret"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


@functools.cache
def versitygw_program() -> Path:
    """The program; skips the test when Go is missing or the module cannot be had."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelog"
    folder = root / f"versitygw-{VERSION}"
    program = folder / "versitygw"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _build(folder)
    return program


def _build(folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("versitygw: no `go` on PATH")
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
        if "dial tcp" not in result.stderr:
            pytest.fail(f"versitygw cannot be built: {lines[-1]}")
        pytest.skip(f"versitygw: {lines[-1]}")


class Versitygw:
    """A server on a folder: its buckets are the folder's folders."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        """`port` 0 takes a free one, which the server has again after `start`."""
        self.folder = folder
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it listens."""
        program = versitygw_program()
        for name in ("buckets", "sidecar"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        if not self.port:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
        command = [program, "--port", f"127.0.0.1:{self.port}", "--quiet", "--keep-alive"]
        command += ["--access", ACCESS_KEY, "--secret", SECRET_KEY]
        command += ["posix", "--sidecar", self.folder / "sidecar", self.folder / "buckets"]
        with (self.folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [str(part) for part in command], stdout=output, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            assert self._process.poll() is None, (self.folder / "output").read_text()
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert time.monotonic() < deadline, "versitygw does not listen"
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """End it; its buckets stay."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(START_TIMEOUT_S)
