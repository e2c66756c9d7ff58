"""Starts Spark's JVM, so that one that does not start says why in one line.

PySpark says only `JAVA_GATEWAY_EXITED`, and the JVM prints a trace. So what the JVM writes to
standard error is kept until it has started, and passed on from then on.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

__all__ = ["JvmError", "end_jvm", "interrupt", "start_jvm"]

_THROWN = re.compile(r'^Exception in thread "main" (.+)', re.MULTILINE)
_NO_NEWS = b"WARNING: Using incubator modules: jdk.incubator.vector\n"  # Spark always adds it


class JvmError(RuntimeError):
    """The JVM ended before it could be used; the message is one line that says why."""


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM of this process unless there is one. JvmError if it ends at once."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - an extra, and large
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    launch: Any = launch_gateway
    errors = _Errors()
    try:
        try:
            with _uninterrupted():
                gateway = launch(conf, {"stderr": errors.end})
        finally:
            os.close(errors.end)
    except PySparkRuntimeError as error:
        raise JvmError(_cause(errors.all()) or str(error)) from error
    errors.pass_on()
    gateway.errors = errors
    SparkContext._ensure_initialized(gateway=gateway)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """An interrupt waits for the end of this, a second one does not: a JVM that is left while it
    starts never ends."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if came:
            before(number, frame)
        came.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def interrupt(*_: object) -> NoReturn:
    """Handle SIGINT. PySpark's own handler uses a connection to the JVM that may be in use."""
    logging.disable()  # Py4J logs a trace for each thread that waits for an answer
    raise KeyboardInterrupt


def end_jvm() -> None:
    """End this process's JVM with all it runs, before the process itself ends."""
    from pyspark import SparkContext  # noqa: PLC0415 - an extra, and large

    gateway: Any = SparkContext._gateway
    context: Any = SparkContext._active_spark_context
    if context is not None and context._accumulatorServer is not None:
        context._accumulatorServer.handle_error = lambda *_: None  # it would print a trace
    if gateway is not None and gateway.proc is not None:
        if hasattr(gateway, "errors"):
            gateway.errors.keep()
        gateway.proc.stdin.close()  # PythonGatewayServer ends, and its hooks stop Spark
        gateway.proc.wait()


class _Errors:
    """A pipe for a JVM. Its lines are kept first, then passed on to standard error."""

    def __init__(self) -> None:
        self._begin, self.end = os.pipe()
        self._kept: list[bytes] | None = []
        self._lock = threading.Lock()
        # A pool would wait for the JVM at the end of this process, and the JVM for this process.
        self._thread = threading.Thread(  # noqa: TID251
            target=self._read, name="errors of Spark", daemon=True
        )
        self._thread.start()

    def _read(self) -> None:
        with os.fdopen(self._begin, "rb") as lines:
            for line in lines:
                with self._lock:
                    if line == _NO_NEWS:
                        continue
                    if self._kept is None:
                        os.write(2, line)
                    else:
                        self._kept.append(line)

    def pass_on(self) -> None:
        """Write what was kept, and from now on every line as it comes."""
        with self._lock:
            os.write(2, b"".join(self._kept or ()))
            self._kept = None

    def keep(self) -> None:
        """Pass nothing on any more."""
        with self._lock:
            self._kept = []

    def all(self) -> str:
        """All lines, once the JVM has ended."""
        self._thread.join()
        return b"".join(self._kept or ()).decode(errors="replace")


def _cause(text: str) -> str:
    """The line that says why a JVM ended: what was thrown, or its first words."""
    thrown = _THROWN.search(text)
    if thrown is not None:
        return thrown[1]
    lines = (line.strip() for line in text.splitlines() if not line.startswith("WARNING: "))
    return next(filter(None, lines), "")
