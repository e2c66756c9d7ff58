"""A JVM running tests/compat/java: Kafka's tools, a Kafka client, or the reference broker."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import re
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from compat.line_process import LineProcess
from tidelog_bench.peers import kafka_jars

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCES = sorted((Path(__file__).parent / "java").glob("*.java"))
# Short-lived JVMs on few cores: the first compiler alone and a serial collector start fastest.
FAST_START = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
]
# Warnings of expected trouble (a killed broker, a missing topic) would only bury real failures.
QUIET = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]


def require_jars() -> str:
    """The classpath of Kafka's jars, or skip the test with the reason."""
    try:
        return kafka_jars.classpath()
    except kafka_jars.JarsUnavailableError as missing:
        pytest.skip(str(missing))


class ToolResult(NamedTuple):
    """What a console tool left: exit code (-1 when it did not end in time) and its two streams."""

    exit: int
    out: str
    err: str


@functools.cache
def driver_classes() -> Path:
    """The folder of compiled drivers, in the cache under the hash of their sources."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()[:16]
    jars = kafka_jars.classpath()
    target = kafka_jars.cache_dir() / f"driver-{digest}"
    with (kafka_jars.cache_dir() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "done").exists():
            compiler = [kafka_jars.javac(), "-nowarn", "-cp", jars, "-d", str(target)]
            subprocess.run([*compiler, *map(str, SOURCES)], check=True, timeout=120)
            (target / "done").touch()
    return target


class Jvm(LineProcess):
    """One JVM with the driver in it."""

    def __init__(self, log: Path, *, heap: str = "-Xmx256m", options: Sequence[str] = ()) -> None:
        classpath = f"{driver_classes()}:{kafka_jars.classpath()}"
        launch = [kafka_jars.java(), heap, *FAST_START, *QUIET, *options, "-cp", classpath]
        super().__init__([*launch, "Driver"], log)

    def tool(self, main: str, *args: str, stdin: str = "", timeout_s: float = 60.0) -> ToolResult:
        """Run the main class of one of Kafka's tools, named below org.apache.kafka.tools."""
        answer = self.call(
            "tool",
            main=_full_name(main),
            args=list(args),
            stdin=stdin,
            timeout_ms=int(timeout_s * 1000),
            answer_timeout_s=timeout_s + 10,
        )
        return ToolResult(answer["exit"], answer["out"], answer["err"])


def tool_alone(main: str, *args: str, until: str = "(?!)", timeout_s: float = 60.0) -> ToolResult:
    """The same in a JVM of its own, for a tool that goes on with its threads or ends the JVM.

    It is killed once a line of its output has the pattern `until`.
    """
    launch = [kafka_jars.java(), "-Xmx256m", *FAST_START, *QUIET, "-cp", kafka_jars.classpath()]
    lines: list[str] = []
    with tempfile.TemporaryFile("w+") as errors:
        command = [*launch, _full_name(main), *args]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            assert process.stdout is not None
            late = threading.Timer(timeout_s, process.kill)
            late.start()
            for line in process.stdout:
                lines.append(line)
                if re.search(until, line):
                    process.kill()
                    break
            code = process.wait()
            late.cancel()
        errors.seek(0)
        if lines and re.search(until, lines[-1]):
            code = 0
        return ToolResult(max(code, -1), "".join(lines), errors.read())


def _full_name(main: str) -> str:
    return main if main.startswith(("org.", "kafka.")) else f"org.apache.kafka.tools.{main}"
