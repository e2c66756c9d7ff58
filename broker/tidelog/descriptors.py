"""Divide the process's file descriptors between log files, connections and the rest.

Of a limit of N, files take up to a quarter (each may have a mapping, which holds another
descriptor), and an eighth is kept for short-lived files and for connections to other brokers. A
connection that would exceed the rest is closed at once. Partitions need none: their files release
descriptors (`storage/open_files.py`), so any number of partitions can be created.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
from typing import TYPE_CHECKING, Any

from tidelog_storage.open_files import OPEN_FILES, lacks_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Doorkeeper", "Refused", "share_out", "watch_accept_errors"]

_log = logging.getLogger("tidelog.network.connection")

_FILES_MAX = 16_384  # a process may have 65,530 mappings on Linux
_REST_MAX = 4096
_LIMIT_MAX = 1 << 20  # requested from a system without a hard limit
_ACCEPT_ERROR = "socket.accept() out of system resource"  # asyncio's message
WARNING_EVERY_S = 60.0


def share_out() -> None:
    """Raise the soft limit to the hard one, and bound the files by it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _LIMIT_MAX if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS grants less than its hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    OPEN_FILES.limit = min(max(_limit() // 8, 8), _FILES_MAX)


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _LIMIT_MAX if soft == resource.RLIM_INFINITY else soft


def _has_room(listening: int) -> bool:
    """Return whether a connection leaves enough descriptors for files and the rest.

    A new descriptor gets the lowest number that is free. So its number is at most the count of the
    descriptors in use, of the whole process.
    """
    try:
        lowest_free = os.dup(listening)
    except OSError:
        return False
    os.close(lowest_free)
    limit = _limit()
    rest = min(limit // 8, _REST_MAX)
    return lowest_free < limit - rest - max(2 * OPEN_FILES.limit - len(OPEN_FILES), 0)


class Doorkeeper:
    """Creates the protocol objects of a listener's connections; closes those beyond the limit."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self.factory = factory
        self.listening = -1  # the descriptor of the listening socket, once it is bound
        self._warnings = _Warnings()

    def __call__(self) -> asyncio.BaseProtocol:
        """Return the protocol object of the connection being accepted."""
        if self.listening < 0 or _has_room(self.listening):
            return self.factory()
        self._warnings.warn(
            "closing new connections: this process may have no more than %d open files"
            " (ulimit -n), and the rest is kept for logs",
            _limit(),
        )
        return Refused()


class Refused(asyncio.Protocol):
    """The protocol of a connection that is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        assert isinstance(transport, asyncio.WriteTransport)
        transport.abort()


class _Warnings:
    """Limits warnings to one a minute."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def warn(self, text: str, *args: object) -> None:
        """Log it unless one was logged in the last minute."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_s:
            self._next_s = now_s + WARNING_EVERY_S
            _log.warning(text, *args)


def watch_accept_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Log a loop's failing accepts once a minute; asyncio retries after a second, but logs each
    failure with a traceback."""
    if not isinstance(loop.get_exception_handler(), _AcceptErrors):
        loop.set_exception_handler(_AcceptErrors(loop.get_exception_handler()))


class _AcceptErrors:
    """A loop's exception handler for failed accepts; others go to the previous handler."""

    def __init__(
        self, previous: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
    ) -> None:
        self._previous = previous
        self._warnings = _Warnings()

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle one exception."""
        error = context.get("exception")
        if context.get("message") == _ACCEPT_ERROR:
            if lacks_descriptors(error):
                OPEN_FILES.make_room()
            self._warnings.warn("cannot accept connections, trying again: %s", error)
        elif self._previous is not None:
            self._previous(loop, context)
        else:
            loop.default_exception_handler(context)
