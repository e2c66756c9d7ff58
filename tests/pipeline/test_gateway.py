"""A JVM of Spark's that does not start, and the words of one that does. The JVM is a script."""

from __future__ import annotations

import gc
import os
import signal
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from pyspark import SparkContext, java_gateway

from tidelog_pipeline.gateway import JvmError, start_jvm

if TYPE_CHECKING:
    from pathlib import Path

HEAP = "Invalid maximum heap size: -Xmxlots"
JARS = "java.lang.RuntimeException: [unresolved dependency: a#b;1: not found]"


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)


# PySpark leaves what it started to the interpreter.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("no_jvm")
@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (f"\n{HEAP}\nError: Could not create the Java Virtual Machine.", HEAP),
        (f'WARNING: x\n:: loading settings ::\nException in thread "main" {JARS}\n\tat a.b', JARS),
        ("", "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."),
    ],
)
def test_a_jvm_that_ends_says_why_in_one_line(
    words: str, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    (tmp_path / "words").write_text(words)
    script = tmp_path / "bin" / "spark-submit"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/words >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(JvmError) as caught:
        start_jvm({"spark.driver.memory": "lots"})
    assert str(caught.value) == cause
    assert capfd.readouterr() == ("", "")
    del caught
    gc.collect()


@pytest.mark.usefixtures("no_jvm")
def test_what_a_jvm_says_comes_once_it_has_started(monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    ends, known = [], []

    def launch(_conf: object, given: dict[str, int]) -> object:
        ends.append(os.dup(given["stderr"]))
        os.write(ends[0], b"WARNING: Using incubator modules: jdk.incubator.vector\nearly\n")
        return SimpleNamespace()

    def initialize(*, gateway: object) -> None:
        known.append(gateway)

    monkeypatch.setattr(java_gateway, "launch_gateway", launch)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", initialize)
    start_jvm({})
    assert len(known) == 1
    os.write(ends[0], b"late\n")
    os.close(ends[0])
    for thread in threading.enumerate():
        if thread.name == "errors of Spark":
            thread.join(60)
    assert capfd.readouterr().err == "early\nlate\n"


@pytest.mark.usefixtures("no_jvm")
def test_an_interrupt_waits_until_the_jvm_can_end(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def launch(_conf: object, _given: object) -> object:
        signal.raise_signal(signal.SIGINT)
        begun.append(1)
        return SimpleNamespace()

    # A shell's background jobs ignore the signal.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(java_gateway, "launch_gateway", launch)
    try:
        with pytest.raises(KeyboardInterrupt):
            start_jvm({})
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert begun == [1]
