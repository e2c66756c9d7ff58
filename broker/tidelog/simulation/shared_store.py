"""The remote tier of a simulated cluster: a directory on a machine that never dies.

tidelog's own directory store works on it, through the files of each broker. While it is down, each
call fails as one of a network file system does, which the store reports as retriable.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, cast

from tidelog.simulation.disk import SimDisk

if TYPE_CHECKING:
    from tidelog_storage.seams import File, FileSystem

__all__ = ["SharedStore", "tier_settings"]

FOLDER = "remote-tier"


def tier_settings(copies: int, min_isr: int) -> dict[str, str]:
    """Settings of brokers whose topics are all tiered, within seconds. `copies` is the number of
    replicas of the metadata topic."""
    topic = "rlmm.config.remote.log.metadata.topic."
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": (
            "tidelog_storage.remote.directory_store.DirectoryStore"
        ),
        "rsm.config.dir": FOLDER,
        "remote.storage.topics": "*",
        "remote.log.manager.task.interval.ms": "500",
        "remote.log.manager.task.retry.backoff.ms": "100",
        "remote.log.manager.task.retry.backoff.max.ms": "500",
        f"{topic}num.partitions": "3",
        f"{topic}replication.factor": str(copies),
        f"{topic}min.isr": str(min_isr),
        "log.roll.ms": "1000",
        "log.local.retention.ms": "2000",
    }


class SharedStore:
    """The directory and its machine."""

    def __init__(self, seed: int | str) -> None:
        self.disk = SimDisk(f"{seed}:remote tier")
        self._files = self.disk.files()
        self.outages = 0  # so many last

    def beside(self, own: FileSystem) -> FileSystem:
        """Return a broker's files, with those of the directory among them."""
        return cast("FileSystem", _Mounted(self, own))

    def call(self, verb: str, path: str, *args: Any, **options: Any) -> Any:
        """Do what a file system does; OSError while the machine is down."""
        self.check()
        result = getattr(self._files, verb)(path, *args, **options)
        return _OpenFile(self, result) if verb == "open" else result

    def check(self) -> None:
        """Raise OSError while the machine is down."""
        if self.outages:
            raise OSError(errno.EHOSTDOWN, "the simulated store is down")


class _OpenFile:
    """An open file of the store."""

    def __init__(self, store: SharedStore, file: File) -> None:
        self._store, self._file = store, file

    def __getattr__(self, verb: str) -> Any:
        if verb != "close":
            self._store.check()
        return getattr(self._file, verb)


class _Mounted:
    """Files of two machines, by their paths."""

    def __init__(self, store: SharedStore, own: FileSystem) -> None:
        self._store, self._own = store, own

    def __getattr__(self, verb: str) -> Any:
        def call(path: str, *args: Any, **options: Any) -> Any:
            if path.partition("/")[0] == FOLDER:
                return self._store.call(verb, path, *args, **options)
            return getattr(self._own, verb)(path, *args, **options)

        return call
