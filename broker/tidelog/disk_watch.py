"""Decide what a broker does when its disk fails: crash, or continue without a directory.

`server.py` builds it. Failed syncs (`GuardedFiles`), replicas and periodic work report to it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.start_error import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog_storage.manager import LogManager

__all__ = ["DiskWatch"]

log = logging.getLogger("tidelog.server")


class DiskWatch:
    """The log directories of one broker; a failed one is not used again until a restart."""

    def __init__(
        self,
        logs: LogManager,
        metadata_directory: str,
        *,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_failure` gets the error that ends the broker."""
        self._logs = logs
        self._metadata_directory = metadata_directory
        self._on_failure = on_failure
        self._failed = {one.path for one in logs.directories if one.failure is not None}
        self._loop = loop = asyncio.get_running_loop()
        self.on_spare_failure: list[Callable[[str, OSError], None]] = []
        """Called in order with a failed directory, and its error, if the broker continues."""
        for directory in logs.taken():
            failed = partial(self.failed, directory.path)
            # Syncs run, and fail, on threads.
            directory.files.on_failure = partial(loop.call_soon_threadsafe, failed)

    def failed(self, path: str, error: BaseException) -> None:
        """End the broker, unless it can continue without the log directory at `path`: it ends when
        its last one fails, or that of the metadata log (KIP-112)."""
        if path in self._failed:
            return
        self._failed.add(path)
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            cause = OSError(errno.EIO, str(error), path)
        self._logs.files_of(path).fail(cause)
        is_last = all(directory.failure is not None for directory in self._logs.directories)
        if is_last or path == self._metadata_directory:
            self._on_failure(cause)
        else:
            log.error(
                "log directory %s failed: its replicas are offline until it is mended and the"
                " broker started again: %s",
                path,
                one_line(cause),
            )
            for listener in self.on_spare_failure:
                # Later: the caller may be in the middle of an append.
                self._loop.call_soon(listener, path, cause)

    def file_failed(self, error: OSError) -> None:
        """Report a failure of the directory of the file in this error."""
        path = self._logs.holder_of(str(error.filename))
        if path is None:
            self._on_failure(error)
        else:
            self.failed(path, error)
