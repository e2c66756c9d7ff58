"""Ranged reads of S3 objects by signed URLs.

boto3 spends 1.5 ms of processor time on a request, in an interpreter that the broker's loop needs
too: more than reading 8 MiB from a server nearby takes. Here a URL is signed once for all reads of
an object, and sent over connections of this module. Any answer other than the requested bytes is
left to boto3, which repeats the request and reports the error.

Calls block and come from several threads; they share only dictionaries, and use one item at a time.
"""

# ruff: noqa: PLC0415 - boto3 takes a third of a second to import, and is an extra

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from tidelog_storage.remote.api import RetriableRemoteStorageError

if TYPE_CHECKING:
    from tidelog_storage.seams import Buffer

__all__ = ["SignedReads"]

_VALID_S = 3600  # an older URL is refused, and signed again
_URLS_MAX = 1024
_MISSES_MAX = 3  # in a row: not a server for this
_FORBIDDEN = 403
_NOT_FOR_THIS = frozenset({200, 301, 302, 307, 308, 400, _FORBIDDEN, 405, 501})


class SignedReads:
    """Reads of the objects of one bucket."""

    def __init__(self, client: Any, bucket: str, verify: bool | str) -> None:
        """`verify` is the file of trusted certificates, True for the usual ones."""
        from botocore.httpsession import URLLib3Session
        from botocore.utils import get_environ_proxies

        config = client.meta.config
        self._client = client
        self._bucket = bucket
        self._http = URLLib3Session(
            verify=verify,
            proxies=config.proxies or get_environ_proxies(client.meta.endpoint_url),
            timeout=(config.connect_timeout, config.read_timeout),
            max_pool_connections=config.max_pool_connections,
        )
        self._urls: dict[str, str] = {}
        self._misses = 0

    def get(self, key: str, start: int, last: int) -> SignedBody | None:
        """The bytes from `start` to `last`; None if they are not to be had in this way."""
        if self._misses >= _MISSES_MAX:
            return None
        try:
            answer = self._ask(key, start, last)
        except Exception:  # noqa: BLE001 - whatever it is, boto3 says it better
            return None
        size = last + 1 - start
        if answer.status_code == 206 and answer.headers.get("Content-Length") == str(size):
            self._misses = 0
            return SignedBody(answer.raw, size, key)
        answer.raw.close()
        self._urls.pop(key, None)
        self._misses += answer.status_code in _NOT_FOR_THIS
        return None

    def _ask(self, key: str, start: int, last: int) -> Any:
        headers = {"Range": f"bytes={start}-{last}", "Accept-Encoding": "identity"}
        known = self._urls.get(key)
        if known is not None:
            answer = self._send(known, headers)
            if answer.status_code != _FORBIDDEN:
                return answer
            answer.raw.close()  # it may be too old
        target = {"Bucket": self._bucket, "Key": key}
        url = self._client.generate_presigned_url("get_object", target, ExpiresIn=_VALID_S)
        if len(self._urls) >= _URLS_MAX:
            self._urls.clear()
        self._urls[key] = url
        return self._send(url, headers)

    def _send(self, url: str, headers: dict[str, str]) -> Any:
        from botocore.awsrequest import AWSPreparedRequest

        request = AWSPreparedRequest("GET", url, headers, None, True)
        # Hooks that watch or answer boto3's requests get this one too.
        events = self._client.meta.events
        answer = events.emit_until_response("before-send.s3.GetObject", request=request)[1]
        return self._http.send(request) if answer is None else answer

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


class SignedBody(io.RawIOBase):
    """The body of an answer; one that ends early is an error that a later try may heal."""

    fills_buffers = True  # see `chunks.load_chunk`

    def __init__(self, raw: Any, size: int, name: str) -> None:
        self._raw = raw
        # urllib3 copies what it reads, the answer of `http.client` below it does not.
        below = getattr(raw, "_original_response", None)
        self._readinto = getattr(below, "readinto", None)
        self._left = size
        self._name = name

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes, all that are left without one."""
        wanted = self._left if size is None or size < 0 else min(size, self._left)
        data = bytearray(wanted)
        with memoryview(data) as view:
            have = 0
            while have < wanted:
                have += self.readinto(view[have:])
        return bytes(data)

    def readinto(self, buffer: Buffer, /) -> int:  # type: ignore[override]
        """Some bytes into a buffer; 0 at the end."""
        from urllib3.exceptions import HTTPError

        wanted = min(len(buffer), self._left)
        if not wanted:
            return 0
        try:
            with memoryview(buffer)[:wanted] as view:
                have = self._fill(view)
        except (HTTPError, OSError) as error:
            raise RetriableRemoteStorageError(f"{self._name}: {error}") from error
        if not have:
            raise RetriableRemoteStorageError(f"{self._name}: {self._left} bytes are missing")
        self._left -= have
        return have

    def _fill(self, view: memoryview) -> int:
        if self._readinto is not None:
            have: int = self._readinto(view)
            return have
        data = self._raw.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Let the connection go, for the next one if nothing is left to be read."""
        if not self.closed:
            if self._left:
                self._raw.close()
            elif hasattr(self._raw, "release_conn"):
                self._raw.release_conn()
        super().close()
