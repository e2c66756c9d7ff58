"""Apache Kafka's own console tools, asked about either kind of brokers: in one JVM."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from compat.jvm import Jvm

if TYPE_CHECKING:
    from compat.jvm import ToolResult


class Console:
    """Tools by their class below `org.apache.kafka.tools`, with the brokers' addresses."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._jvm: Jvm | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="console-")

    def run(self, main: str, *args: str) -> ToolResult:
        """Run one; the JVM is started by the first."""
        if self._jvm is None:
            self._jvm = Jvm(Path(self._folder.name) / "jvm.log")
        where = ("--bootstrap-server", self._bootstrap)
        return self._jvm.tool(main, *where, *args, timeout_s=120.0)

    def close(self) -> None:
        """End the JVM, if there is one."""
        if self._jvm is not None:
            self._jvm.close()
        self._folder.cleanup()
