"""kfake, franz-go's fake cluster, as a process: in memory, or with a folder as its disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_bench.peers.go_programs import go_program
from tidelog_bench.peers.peer import PARTITIONS, Peer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Kfake"]


class Kfake(Peer):
    """One kfake broker."""

    def __init__(self, folder: Path, *, disk: bool) -> None:
        super().__init__(folder, "kfake disk" if disk else "kfake memory")
        self._disk = disk

    def prepare(self) -> None:
        """Build the program, the first time."""
        super().prepare()
        go_program("kfake")

    def command(self) -> Sequence[str]:
        """Run ours around the library."""
        data = [str(self.folder)] if self._disk else []
        return [str(go_program("kfake")), str(self.port), str(PARTITIONS), *data]
