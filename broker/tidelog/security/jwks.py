"""The keys that signed tokens are checked with: a JSON Web Key Set, from a file or over HTTP.

It is read again at intervals (`sasl.oauthbearer.jwks.endpoint.refresh.ms`), after failures with a
growing pause, and when a token names a key that is not known. Each attempt has a deadline as a
whole, and a limit of bytes: a server that sends too slowly or too much is given up. Kafka:
VerificationKeyResolverFactory, RefreshingHttpsJwks.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import logging
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from urllib.parse import SplitResult

    from tidelog.seams import Runtime

__all__ = ["BYTES_MAX", "KeySet", "KeySetError", "Pauses", "body_of", "parsed"]

log = logging.getLogger("tidelog.security.jwks")

BYTES_MAX = 1 << 20  # of a key set
HEAD_BYTES_MAX = 64 << 10  # of an HTTP response, before its body
FETCH_S_MAX = 10.0  # for connecting, asking and reading together
PORTS = {"http": 80, "https": 443}


class KeySetError(Exception):
    """A key set cannot be read; the text is why."""


class Pauses(NamedTuple):
    """Milliseconds between attempts to read a key set: after success, and after failures."""

    refresh_ms: int
    backoff_ms: int
    backoff_ms_max: int

    def after(self, failures: int) -> float:
        """Return the seconds until the next attempt, after so many failures in a row."""
        if not failures:
            return self.refresh_ms / 1000
        return min(self.backoff_ms << min(failures - 1, 32), self.backoff_ms_max) / 1000


class KeySet:
    """The keys of one listener, as JSON objects. Create it on the running loop."""

    def __init__(self, key: str, url: str, pauses: Pauses, runtime: Runtime) -> None:
        """`key` is the setting with the URL. ConfigError for a URL of another kind, and if the file
        that it names has no keys: one that comes over HTTP may come later."""
        self.keys: tuple[Mapping[str, Any], ...] = ()
        self._url = _split(key, url)
        self._pauses = pauses
        self._network = runtime.network
        self._wanted = asyncio.Event()
        self._read_s = 0.0  # when the last attempt began, of the loop
        self._problem = ""  # the last one that was logged
        if self._url.scheme == "file":
            try:
                self.keys = parsed(_read_file(self._url))
            except (KeySetError, OSError, ValueError) as error:
                raise ConfigError(key, f"{key}: {url}: {_reason(error)}") from None
        elif self._url.scheme not in PORTS or not self._url.hostname:
            raise ConfigError(key, f"{key}: {url} is no URL of a file, http or https")
        self._executor = runtime.new_executor("jwks", 1)
        self._task = asyncio.get_running_loop().create_task(self._refresh(), name="jwks")

    def close(self) -> None:
        """Stop reading."""
        self._task.cancel()
        self._executor.close()

    def want(self) -> None:
        """Read again soon, because a key is missing; not more often than after failures."""
        pause_s = self._pauses.backoff_ms_max / 1000
        if asyncio.get_running_loop().time() - self._read_s >= pause_s:
            self._wanted.set()

    async def _refresh(self) -> None:
        failures = 0
        if self.keys:
            await self._pause(0)
        while True:
            failures = 0 if await self._attempt() else failures + 1
            await self._pause(failures)

    async def _pause(self, failures: int) -> None:
        self._wanted.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wanted.wait(), self._pauses.after(failures))

    async def _attempt(self) -> bool:
        """Read the keys; return whether they could be read. The old ones stay otherwise."""
        self._read_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(FETCH_S_MAX):
                self.keys = parsed(await self._read())
        except (KeySetError, OSError, TimeoutError, ValueError) as error:
            problem = _reason(error)
            if problem != self._problem:
                log.warning("no keys of signed tokens from %s: %s", self._url.geturl(), problem)
            self._problem = problem
            return False
        self._problem = ""
        return True

    async def _read(self) -> bytes:
        url = self._url
        if url.scheme == "file":
            return await self._executor.run(_read_file, url)
        host = url.hostname or ""
        tls = ssl.create_default_context() if url.scheme == "https" else None
        port = url.port or PORTS[url.scheme]
        transport, protocol = await self._network.connect(host, port, _Receiver, tls)
        try:
            target = (url.path or "/") + (f"?{url.query}" if url.query else "")
            # HTTP/1.0: the response ends with the connection.
            head = (
                f"GET {target} HTTP/1.0\r\nHost: {url.netloc}\r\nAccept: application/json\r\n\r\n"
            )
            transport.write(head.encode("ascii", "replace"))
            return body_of(await cast("_Receiver", protocol).received)
        finally:
            transport.abort()


class _Receiver(asyncio.Protocol):
    """Takes a response up to the end of its connection."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        """Take a part; a response that is too large fails at once."""
        self._data += data
        if len(self._data) > BYTES_MAX + HEAD_BYTES_MAX and not self.received.done():
            self.received.set_exception(_too_large())

    def connection_lost(self, exc: Exception | None) -> None:
        """Complete the response."""
        if self.received.done():
            return
        if exc is None:
            self.received.set_result(bytes(self._data))
        else:
            self.received.set_exception(exc)


def _split(key: str, url: str) -> SplitResult:
    """Return the parts of a URL; ConfigError for a host or a port that is none."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # it is only checked when it is asked for
    except ValueError as error:
        raise ConfigError(key, f"{key}: {url} is no URL: {error}") from None
    return parts


def parsed(data: bytes) -> tuple[Mapping[str, Any], ...]:
    """Return the keys of a set; KeySetError."""
    if len(data) > BYTES_MAX:
        raise _too_large()
    try:
        keys = json.loads(data)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise KeySetError("it is no JSON Web Key Set") from None
    if not (isinstance(keys, list) and all(isinstance(each, dict) for each in keys)):
        raise KeySetError("it is no JSON Web Key Set")
    return tuple(keys)


def body_of(response: bytes) -> bytes:
    """Return the body of an HTTP response; KeySetError."""
    reader = http.client.HTTPResponse(cast("socket.socket", _Bytes(response)), method="GET")
    try:
        reader.begin()
        if reader.status != http.client.OK:
            raise KeySetError(f"the answer has status {reader.status}")
        return reader.read()
    except (http.client.HTTPException, ValueError, OverflowError):  # a length without end
        raise KeySetError("the answer is no HTTP response") from None
    finally:
        reader.close()


class _Bytes:
    """What HTTPResponse needs of a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BufferedIOBase:
        return io.BytesIO(self._data)


def _read_file(url: SplitResult) -> bytes:
    with open(url2pathname(url.path), "rb") as file:
        return file.read(BYTES_MAX + 1)


def _too_large() -> KeySetError:
    return KeySetError(f"it is larger than {BYTES_MAX} bytes")


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"it took longer than {FETCH_S_MAX:g} s"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
