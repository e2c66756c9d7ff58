"""tidelog as its users start it: `python -m tidelog serve`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tidelog_bench.peers.peer import PARTITIONS, Peer

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Tidelog"]


class Tidelog(Peer):
    """This project's broker on the interpreter that runs the harness."""

    name = "tidelog"

    def command(self) -> Sequence[str]:
        """Serve until standard input ends; `file.delete.delay.ms` as for the other peers."""
        options = ["--port", str(self.port), "--data-dir", str(self.folder), "--until-stdin-ends"]
        settings = {"num.partitions": str(PARTITIONS), "log.segment.delete.delay.ms": "1000"}
        for key, value in settings.items():
            options += ["--set", f"{key}={value}"]
        return [sys.executable, "-m", "tidelog", "serve", *options]
