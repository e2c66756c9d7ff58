"""A remote store on S3, or anything that speaks it (boto3, the extra `s3`).

Every object is written on condition that none of its name is there, so a segment is never
overwritten by another; names have the segment's id, and what lies under it and carries that id (an
earlier try of the same copy) is written over. Large logs go up in parts. The manifest is written
last and deleted first, for people and tools: which segments are read is decided by their metadata,
as KIP-405 has it.

Calls block and come from several threads, which boto3's clients allow. Errors: what a later try may
heal (throttling, 5xx, connections, time-outs, bodies that end early) is
RetriableRemoteStorageError.
"""

# ruff: noqa: PLC0415 - boto3 takes a third of a second to import, and is an extra

from __future__ import annotations

import io
from contextlib import contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from tidelog_protocol.primitives import uuid_to_str
from tidelog_storage.remote.api import (
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tidelog_storage.remote.layout import (
    INDEX_ENDINGS,
    LOG_ENDING,
    MANIFEST_ENDING,
    checked_parts,
    folder_name,
    manifest,
    object_name,
    parts_of,
    sources,
)
from tidelog_storage.remote.s3_settings import S3Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import BinaryIO

    from tidelog_storage.remote.api import IndexKind, RemoteSegment, SegmentFiles
    from tidelog_storage.remote.layout import ObjectFacts
    from tidelog_storage.remote.s3_reads import SignedReads
    from tidelog_storage.seams import Buffer, FileSystem

__all__ = ["S3Store"]

_ID_KEY = "tidelog-segment-id"  # user metadata of every object
_NOT_FOUND = frozenset({"NoSuchKey", "404", "NotFound"})
_FORBIDDEN = frozenset({"AccessDenied", "403", "Forbidden", "NotImplemented", "MethodNotAllowed"})
_TAKEN = frozenset({"PreconditionFailed", "412"})
_RETRIABLE = frozenset(
    {
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "RequestLimitExceeded",
        "BandwidthLimitExceeded",
        "RequestTimeout",
        "RequestTimeTooSkewed",
        "ConditionalRequestConflict",
        "PreconditionFailed",  # another client wrote the same name meanwhile
        "OperationAborted",
        "ServiceUnavailable",
        "InternalError",
        "ExpiredToken",  # the credential chain fetches a new one
    }
)


class S3Store:
    """`RemoteStorage` in a bucket; see `layout.py` for the names below the prefix.

    Properties: `S3Settings`.
    """

    def __init__(self, files: FileSystem | None = None) -> None:
        """`files` is where local segments are read from: this machine's own without it."""
        self._files = files
        self._client: Any = None
        self._signed: SignedReads | None = None
        self._bucket = ""
        self._prefix = ""
        self._part_bytes = 0

    def configure(self, config: Mapping[str, str]) -> None:
        """Take the properties and make a client; nothing is asked of the server yet."""
        settings = S3Settings.parse(config)
        if self._files is None:
            from tidelog_storage.os_files import OsFileSystem

            self._files = OsFileSystem()
        self._bucket = settings.bucket
        self._prefix = settings.prefix
        self._part_bytes = settings.part_bytes
        self._client, self._signed = settings.connect()

    # ---- copying ------------------------------------------------------------------------------

    def copy_segment(self, segment: RemoteSegment, data: SegmentFiles) -> None:
        """Upload all objects, the manifest last. There is no custom metadata."""
        written: list[dict[str, str]] = []
        try:
            with _errors(segment):
                self._copy_all(segment, data, written)
        except Exception:
            self._take_back(written)
            raise

    def _copy_all(
        self, segment: RemoteSegment, data: SegmentFiles, written: list[dict[str, str]]
    ) -> None:
        """`written` are the objects that may be there by this copy."""
        assert self._files is not None, "configure comes first"
        objects: dict[str, ObjectFacts] = {}
        for ending, source in sources(data):
            facts = [0, 0]
            parts = parts_of(self._files, source, self._part_bytes)
            self._upload(segment, ending, checked_parts(parts, facts), written)
            objects[ending] = (facts[0], facts[1])
        if objects[LOG_ENDING][0] != segment.size:
            raise RemoteStorageError(
                f"{data.log} has {objects[LOG_ENDING][0]} bytes, not {segment.size}"
            )
        self._upload(segment, MANIFEST_ENDING, iter((manifest(segment, objects),)), written)

    def _take_back(self, written: list[dict[str, str]]) -> None:
        """Delete the objects of a failed copy, the manifest first, as far as the server allows: the
        next try has another id and would never remove them."""
        with suppress(Exception):
            for target in reversed(written):
                self._client.delete_object(**target)

    def _upload(
        self,
        segment: RemoteSegment,
        ending: str,
        parts: Iterator[bytes],
        written: list[dict[str, str]],
    ) -> None:
        first = next(parts, b"")
        second = next(parts, None)
        target = {"Bucket": self._bucket, "Key": self._key(segment, ending)}
        metadata = {_ID_KEY: uuid_to_str(segment.segment_id.bytes)}
        if second is not None:
            self._upload_parts(target, metadata, chain((first, second), parts), written)
            return
        written.append(target)  # before: the answer may get lost
        try:
            self._client.put_object(**target, Body=first, Metadata=metadata, IfNoneMatch="*")
        except Exception as error:
            if _code(error) not in _TAKEN:
                raise
            written.pop()  # it may be of another segment
            if not self._is_taken(target, metadata):
                raise
            written.append(target)
            self._client.put_object(**target, Body=first, Metadata=metadata)

    def _is_taken(self, target: dict[str, str], metadata: dict[str, str]) -> bool:
        """Return whether an earlier try of this copy has already written this object.

        RemoteStorageError if another segment has that name.
        """
        try:
            there = self._client.head_object(**target)["Metadata"]
        except Exception as error:
            if (
                _code(error) in _NOT_FOUND | _FORBIDDEN
            ):  # S3 answers 403 for a missing object without the permission to list
                return False
            raise
        if there.get(_ID_KEY) != metadata[_ID_KEY]:
            raise RemoteStorageError(
                f"{target['Key']} already exists and belongs to another segment"
            )
        return True

    def _upload_parts(
        self,
        target: dict[str, str],
        metadata: dict[str, str],
        parts: Iterator[bytes],
        written: list[dict[str, str]],
    ) -> None:
        """A multipart upload; given up, it leaves nothing. Whether the name is taken is asked
        before the parts are sent: an upload whose completion was refused cannot be completed."""
        client = self._client
        condition = {} if self._is_taken(target, metadata) else {"IfNoneMatch": "*"}
        upload = client.create_multipart_upload(**target, Metadata=metadata)["UploadId"]
        try:
            done = []
            for number, part in enumerate(parts, 1):
                answer = client.upload_part(**target, UploadId=upload, PartNumber=number, Body=part)
                done.append({"PartNumber": number, "ETag": answer["ETag"]})
            written.append(target)
            client.complete_multipart_upload(
                **target, UploadId=upload, MultipartUpload={"Parts": done}, **condition
            )
        except BaseException as error:
            if _code(error) in _TAKEN:
                written.remove(target)  # it is of another segment
            self._abandon(target, upload)
            raise

    def _abandon(self, target: dict[str, str], upload: str) -> None:
        """Free the parts of an upload; if that fails too, the segment's deletion does it."""
        from botocore.exceptions import BotoCoreError, ClientError

        with suppress(BotoCoreError, ClientError):
            self._client.abort_multipart_upload(**target, UploadId=upload)

    # ---- reading ------------------------------------------------------------------------------

    def fetch_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        """A ranged GET of the `.log`; the answer is streamed."""
        if start < 0 or (end is not None and end < start):
            raise ValueError(f"invalid range of a segment: bytes {start} to {end}")
        if start >= segment.size:
            return io.BytesIO()  # S3 calls such a range an error
        last = segment.size - 1 if end is None else min(end, segment.size - 1)
        if self._signed is not None:
            body = self._signed.get(self._key(segment, LOG_ENDING), start, last)
            if body is not None:
                return cast("BinaryIO", body)
        return self._get(segment, LOG_ENDING, Range=f"bytes={start}-{last}")

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        """One index, whole, and checked by the sum that the server keeps of it."""
        return self._get(segment, INDEX_ENDINGS[kind], ChecksumMode="ENABLED")

    def fetch_manifest(self, segment: RemoteSegment) -> BinaryIO:
        """What was copied; see `DescribedRemoteStorage`."""
        return self._get(segment, MANIFEST_ENDING)

    def _get(self, segment: RemoteSegment, ending: str, **options: str) -> BinaryIO:
        with _errors(segment):
            answer = self._client.get_object(
                Bucket=self._bucket, Key=self._key(segment, ending), **options
            )
        return cast("BinaryIO", _Body(answer["Body"], answer["ContentLength"], segment))

    # ---- deleting -----------------------------------------------------------------------------

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete the manifest, then all other objects and what uploads were left undone.

        One by one: what every server that speaks S3 understands.
        """
        with _errors(segment):
            for ending in (MANIFEST_ENDING, LOG_ENDING, *INDEX_ENDINGS.values()):
                self._client.delete_object(Bucket=self._bucket, Key=self._key(segment, ending))
            # Indexes can be larger than a part too; but MinIO lists by whole keys alone (and frees
            # what is a day old by itself).
            for ending in ("", LOG_ENDING):
                self._abandon_all(self._key(segment, ending))

    def _abandon_all(self, prefix: str) -> None:
        """Free the parts of all uploads whose keys begin so, if this client may look for them."""
        client = self._client
        try:
            uploads = client.list_multipart_uploads(Bucket=self._bucket, Prefix=prefix)
        except Exception as error:
            if _code(error) in _FORBIDDEN:
                return
            raise
        for upload in uploads.get("Uploads", ()):
            client.abort_multipart_upload(
                Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"]
            )

    def close(self) -> None:
        """Give up the connections."""
        for connections in (self._client, self._signed):
            if connections is not None:
                connections.close()

    def _key(self, segment: RemoteSegment, ending: str) -> str:
        folder = folder_name(segment.topic_id_partition)
        return f"{self._prefix}{folder}/{object_name(segment, ending)}"


class _Body(io.RawIOBase):
    """The body of an answer; botocore notices one that ends early."""

    def __init__(self, body: Any, size: int, segment: RemoteSegment) -> None:
        self._body = body
        self._left = size
        self._segment = segment

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes, all that are left without one."""
        is_rest = size is None or size < 0 or size >= self._left
        with _errors(self._segment):  # asked for the rest, the parsers below copy less
            data = cast("bytes", self._body.read(None if is_rest else size))
        self._left -= len(data)
        return data

    def readinto(self, buffer: Buffer, /) -> int:  # type: ignore[override]
        """Fill a buffer as far as there are bytes."""
        target = memoryview(buffer)
        data = self.read(len(target))
        target[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Let the connection go."""
        if not self.closed:
            self._body.close()
        super().close()


# ---- errors --------------------------------------------------------------------------------------


@contextmanager
def _errors(segment: RemoteSegment) -> Iterator[None]:
    """botocore's errors as the remote tier's."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        NoCredentialsError,
        ParamValidationError,
    )
    from urllib3.exceptions import HTTPError

    name = f"{folder_name(segment.topic_id_partition)}/{object_name(segment, '')}"
    try:
        yield
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        raise _kind_of(_code(error), status)(f"{name}: {error}") from error
    except (NoCredentialsError, ParamValidationError) as error:
        raise RemoteStorageError(f"{name}: {error}") from error
    except (BotoCoreError, HTTPError, OSError) as error:  # refused, reset, too late, cut short
        raise RetriableRemoteStorageError(f"{name}: {error}") from error


def _kind_of(code: str, status: int) -> type[RemoteStorageError]:
    if code in _NOT_FOUND:
        return RemoteResourceNotFound
    if code in _RETRIABLE or status >= 500 or status in (408, 429):
        return RetriableRemoteStorageError
    return RemoteStorageError


def _code(error: Any) -> str:
    """S3's word for an error, "" if it is none of S3's."""
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))
