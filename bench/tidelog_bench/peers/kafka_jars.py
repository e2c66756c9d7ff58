"""Apache Kafka's jars, resolved once by Maven into the user's cache.

They are the reference broker, its console tools and the Java clients; benchmarks and compatibility
tests share them. `python -m tidelog_bench.peers.kafka_jars` prints the classpath:
`java -cp "$(python -m tidelog_bench.peers.kafka_jars)" org.apache.kafka.tools.TopicCommand`.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["KAFKA_VERSION", "JarsUnavailableError", "cache_dir", "classpath", "java", "javac"]

KAFKA_VERSION = "4.3.1"
POM = Path(__file__).parent / "pom.xml"
RESOLVE_TIMEOUT_S = 300


class JarsUnavailableError(Exception):
    """Why the jars (or Java itself) cannot be had, in one line."""


def cache_dir() -> Path:
    """Where everything built or resolved for benchmarks and tests lies: kept between runs."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "tidelog" / f"kafka-{KAFKA_VERSION}"


def java() -> str:
    """The java launcher: JAVA_HOME's or the one on PATH."""
    return _program("java")


def javac() -> str:
    """The Java compiler (a JDK, not only a JRE)."""
    return _program("javac")


def _program(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / name).exists():
        return str(Path(home) / "bin" / name)
    found = shutil.which(name)
    if found is None:
        raise JarsUnavailableError(f"Java is needed: no `{name}` on PATH or in JAVA_HOME")
    return found


@functools.cache
def classpath(pom: Path = POM) -> str:
    """The classpath of all jars of a POM. The first caller resolves them while others wait for it.

    Other jars lie in another folder: what runs on the older ones keeps them.
    """
    java()
    stamp = pom.read_bytes()
    libs = cache_dir() / f"libs-{hashlib.sha256(stamp).hexdigest()[:16]}"
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = libs / "pom.xml"
        if not done.exists() or done.read_bytes() != stamp:
            _resolve(pom, libs)
            done.write_bytes(stamp)
    return f"{libs}/*"


def _resolve(pom: Path, libs: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailableError(
            "Maven is needed once, for Apache Kafka's jars: no `mvn` on PATH"
        )
    shutil.rmtree(libs, ignore_errors=True)
    libs.mkdir(parents=True)
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    try:
        result = subprocess.run(
            [*command, f"-DoutputDirectory={libs}"],
            capture_output=True,
            text=True,
            timeout=RESOLVE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        raise JarsUnavailableError("Maven did not resolve Apache Kafka's jars in time") from expired
    if result.returncode:
        lines = [line for line in (result.stdout + result.stderr).splitlines() if "ERROR" in line]
        raise JarsUnavailableError(f"Maven could not resolve Apache Kafka's jars: {lines[:1]}")


if __name__ == "__main__":
    print(classpath())
