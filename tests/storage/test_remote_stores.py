"""What every remote store must do, on a directory, on moto in process, on a real S3 server."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from botocore.exceptions import EndpointConnectionError

from support.remote import PARTITION, remote_segment, segment_files
from support.remote_places import BUCKET, DirectoryPlace
from tidelog_protocol.checksum import crc32c
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.remote.api import (
    IndexKind,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
    SegmentFiles,
)
from tidelog_storage.remote.chunks import CorruptRemoteDataError
from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.layout import (
    INDEX_ENDINGS,
    LOG_ENDING,
    MANIFEST_ENDING,
    folder_name,
)

if TYPE_CHECKING:
    from pathlib import Path

    from support.remote_places import S3Place
    from tidelog_storage.remote.api import RemoteStorage
    from tidelog_storage.remote.s3_store import S3Store

CONTENT = bytes(range(256)) * 4
PARTS = {"multipart.part.bytes": str(5 << 20)}
NAME = f"{folder_name(PARTITION)}/{0:020d}-AAAAAAAAAAAAAAAAAAAAAQ"  # of `segment_of()`


@pytest.fixture
def s3(place):
    if isinstance(place, DirectoryPlace):
        pytest.skip("of S3 alone")
    return place


def segment_of(content=CONTENT, number=1, **options):
    return remote_segment(number, size=len(content), **options)


class TestRemoteStorage:
    def test_what_was_copied_is_read(self, store: RemoteStorage, tmp_path: Path) -> None:
        segment = segment_of()
        assert store.copy_segment(segment, segment_files(tmp_path, CONTENT)) is None
        assert store.fetch_segment(segment, 0).read() == CONTENT
        expected = {
            IndexKind.OFFSET: b"offset" + CONTENT[:10],
            IndexKind.TIMESTAMP: b"time",
            IndexKind.TRANSACTION: b"x" * 34,
            IndexKind.PRODUCER_SNAPSHOT: b"",
            IndexKind.LEADER_EPOCH: b"0\n1\n0 0\n",
        }
        for kind, data in expected.items():
            with store.fetch_index(segment, kind) as stream:
                assert stream.read() == data

    def test_ranges_are_inclusive_and_end_with_the_segment(
        self, store: RemoteStorage, tmp_path: Path
    ) -> None:
        segment = segment_of()
        store.copy_segment(segment, segment_files(tmp_path, CONTENT))
        for start, end in [(0, 0), (1, 9), (1000, None), (1000, 1023), (1000, 5000), (0, 1023)]:
            stop = len(CONTENT) if end is None else end + 1
            assert store.fetch_segment(segment, start, end).read() == CONTENT[start:stop]
        assert store.fetch_segment(segment, len(CONTENT)).read() == b""
        assert store.fetch_segment(segment, 5000, 6000).read() == b""
        for start, end in [(-1, None), (9, 8)]:
            with pytest.raises(ValueError, match="bytes"):
                store.fetch_segment(segment, start, end)

    def test_a_stream_is_read_in_pieces(self, store: RemoteStorage, tmp_path: Path) -> None:
        segment = segment_of()
        store.copy_segment(segment, segment_files(tmp_path, CONTENT))
        with store.fetch_segment(segment, 10) as stream:
            assert stream.readable()
            pieces = [stream.read(100), stream.read(1)]
            buffer = bytearray(50)
            count = stream.readinto(buffer)
            pieces += [bytes(buffer[:count]), stream.read(), stream.read(), stream.read(5)]
        assert b"".join(pieces) == CONTENT[10:]
        assert pieces[-2:] == [b"", b""]
        stream.close()

    def test_nothing_there_is_not_found(self, store: RemoteStorage) -> None:
        segment = segment_of()
        with pytest.raises(RemoteResourceNotFound):
            store.fetch_segment(segment, 0)
        for kind in IndexKind:
            with pytest.raises(RemoteResourceNotFound):
                store.fetch_index(segment, kind)

    def test_a_missing_transaction_index_is_not_found(
        self, store: RemoteStorage, tmp_path: Path
    ) -> None:
        segment = segment_of()
        store.copy_segment(segment, segment_files(tmp_path, CONTENT, txn_index=None))
        with pytest.raises(RemoteResourceNotFound):
            store.fetch_index(segment, IndexKind.TRANSACTION)
        assert store.fetch_index(segment, IndexKind.OFFSET).read()

    @pytest.mark.parametrize("kind", IndexKind)
    def test_an_index_that_is_not_what_was_copied_is_not_served(
        self, place: DirectoryPlace | S3Place, store: RemoteStorage, tmp_path: Path, kind: IndexKind
    ) -> None:
        """Cut at an entry, or with another producer id in it, it would be believed."""
        if not isinstance(place, DirectoryPlace):
            pytest.skip("an S3 server keeps the sums itself, and boto3 looks at them")
        segment = segment_of()
        files = segment_files(tmp_path, CONTENT, txn_index=b"x" * 68)
        store.copy_segment(segment, files)
        with store.fetch_index(segment, kind) as stream:
            content = stream.read()
        (name,) = [name for name in place.names() if name.endswith(INDEX_ENDINGS[kind])]
        path = place.folder / name
        wrong = [content + b"more"]
        if content:
            wrong += [content[: len(content) // 2], b"", bytes((content[0] ^ 4,)) + content[1:]]
        for data in wrong:
            path.write_bytes(data)
            with pytest.raises(CorruptRemoteDataError, match=INDEX_ENDINGS[kind]):
                store.fetch_index(segment, kind)
        path.unlink()
        with pytest.raises(CorruptRemoteDataError):  # nor is it taken for one that never was
            store.fetch_index(segment, kind)
        path.write_bytes(content)
        assert store.fetch_index(segment, kind).read() == content
        for data in (b"", b"[]", b"{}", b'{"objects": {"' + path.name.encode() + b'": 1}}'):
            (path.parent / (path.name.split(".")[0] + ".manifest.json")).write_bytes(data)
            with pytest.raises(CorruptRemoteDataError, match="manifest"):
                store.fetch_index(segment, kind)

    def test_copying_again_overwrites(self, store: RemoteStorage, tmp_path: Path) -> None:
        segment = segment_of()
        store.copy_segment(segment, segment_files(tmp_path, b"?" * len(CONTENT)))
        store.copy_segment(segment, segment_files(tmp_path, CONTENT))
        assert store.fetch_segment(segment, 0).read() == CONTENT

    def test_deleting_is_repeatable_and_leaves_nothing(
        self, place: DirectoryPlace | S3Place, store: RemoteStorage, tmp_path: Path
    ) -> None:
        files = segment_files(tmp_path, CONTENT)
        first, second = segment_of(), segment_of(number=2)
        store.delete_segment(first)
        store.copy_segment(first, files)
        store.copy_segment(second, files)
        store.delete_segment(first)
        store.delete_segment(first)
        with pytest.raises(RemoteResourceNotFound):
            store.fetch_segment(first, 0)
        with pytest.raises(RemoteResourceNotFound):
            store.fetch_index(first, IndexKind.TRANSACTION)
        assert store.fetch_segment(second, 0).read() == CONTENT
        store.delete_segment(second)
        assert place.names() == []
        store.copy_segment(first, files)
        assert store.fetch_segment(first, 0).read() == CONTENT

    def test_the_same_offsets_of_another_topic_id_or_segment_are_apart(
        self, store: RemoteStorage, tmp_path: Path
    ) -> None:
        segments = [
            segment_of(),
            segment_of(number=2),
            segment_of(
                topic_id_partition=PARTITION._replace(topic_id=UUID(bytes=b"another-topic-id"))
            ),
            segment_of(topic_id_partition=PARTITION._replace(partition=1)),
        ]
        for number, segment in enumerate(segments):
            content = bytes([number]) * len(CONTENT)
            store.copy_segment(segment, segment_files(tmp_path, content))
        for number, segment in enumerate(segments):
            assert store.fetch_segment(segment, 0).read() == bytes([number]) * len(CONTENT)

    def test_objects_are_kafkas_bytes_beside_a_manifest(
        self, place: DirectoryPlace | S3Place, store: RemoteStorage, tmp_path: Path
    ) -> None:
        segment = segment_of(epochs=((3, 0), (5, 40)))
        store.copy_segment(segment, segment_files(tmp_path, CONTENT))
        endings = [".index", ".leader-epoch-checkpoint", ".log", ".manifest.json"]
        endings += [".snapshot", ".timeindex", ".txnindex"]
        assert place.names() == [NAME + ending for ending in endings]
        assert place.read(NAME + ".log") == CONTENT
        manifest = json.loads(place.read(NAME + ".manifest.json"))
        assert manifest["leaderEpochs"] == {"3": 0, "5": 40}
        assert (manifest["startOffset"], manifest["endOffset"]) == (0, 99)
        assert len(manifest["objects"]) == 6
        for name, facts in manifest["objects"].items():
            data = place.read(f"{folder_name(PARTITION)}/{name}")
            assert facts == {"bytes": len(data), "crc32c": f"{crc32c(data, 0):08x}"}

    def test_a_log_of_another_size_is_no_copy(
        self, place: DirectoryPlace | S3Place, store: RemoteStorage, tmp_path: Path
    ) -> None:
        segment = segment_of(CONTENT + b"more")
        with pytest.raises(RemoteStorageError, match="1024 bytes, not 1028"):
            store.copy_segment(segment, segment_files(tmp_path, CONTENT))
        assert place.names() == []  # the next try has another id, and nobody looks for these

    def test_a_local_file_that_is_gone_is_no_copy(
        self, place: DirectoryPlace | S3Place, store: RemoteStorage, tmp_path: Path
    ) -> None:
        files = segment_files(tmp_path, CONTENT)
        with pytest.raises(RemoteStorageError):
            store.copy_segment(segment_of(), replace(files, time_index=str(tmp_path / "gone")))
        assert place.names() == []

    def test_many_threads_at_once(self, store: RemoteStorage, tmp_path: Path) -> None:
        def work(number):
            folder = tmp_path / str(number)
            folder.mkdir()
            content = random.Random(number).randbytes(50_000)
            segment = segment_of(content, number)
            store.copy_segment(segment, segment_files(folder, content))
            for start in range(0, 50_000, 17_000):
                read = store.fetch_segment(segment, start, start + 16_999).read()
                assert read == content[start : start + 17_000]
            if number % 2:
                store.delete_segment(segment)
            return segment

        with ThreadPoolExecutor(8) as pool:
            segments = list(pool.map(work, range(1, 17)))
        for segment in segments:
            if segment.segment_id.int % 2:
                with pytest.raises(RemoteResourceNotFound):
                    store.fetch_segment(segment, 0)
            else:
                assert len(store.fetch_segment(segment, 0).read()) == 50_000

    def test_a_log_of_several_parts(self, place: DirectoryPlace | S3Place, tmp_path: Path) -> None:
        store = place.open_store(**PARTS)
        for number, size in enumerate([5 << 20, (5 << 20) + 1, 11_000_000], 1):
            content = random.Random(size).randbytes(size)
            segment = segment_of(content, number)
            for _ in range(2):  # the second overwrites
                store.copy_segment(segment, segment_files(tmp_path, content))
            assert store.fetch_segment(segment, 0).read() == content
            at = size - 100
            assert store.fetch_segment(segment, at, at + 9).read() == content[at : at + 10]
            store.delete_segment(segment)
        assert place.names() == []
        store.close()


class TestS3:
    def test_another_segments_object_is_never_overwritten(
        self, s3: S3Place, store: S3Store, tmp_path: Path
    ) -> None:
        segment = segment_of()
        s3.put(NAME + ".log", b"somebody else's")
        with pytest.raises(RemoteStorageError, match="to another segment"):
            store.copy_segment(segment, segment_files(tmp_path, CONTENT))
        assert s3.read(NAME + ".log") == b"somebody else's"
        big = random.Random(0).randbytes(6 << 20)
        parts = s3.open_store(**PARTS)
        with pytest.raises(RemoteStorageError, match="to another segment"):
            parts.copy_segment(segment_of(big), segment_files(tmp_path, big))
        assert s3.read(NAME + ".log") == b"somebody else's"
        assert s3.uploads() == []

    def test_uploads_that_a_crash_left_go_with_their_segment(
        self, s3: S3Place, store: S3Store
    ) -> None:
        endings = [LOG_ENDING, *INDEX_ENDINGS.values(), MANIFEST_ENDING]
        for ending in endings:
            key = f"some/where/{NAME}{ending}"
            upload = s3.client.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
            s3.client.upload_part(
                Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=1, Body=b"x" * 1000
            )
        store.delete_segment(segment_of(number=2))
        assert len(s3.uploads()) == len(endings)
        store.delete_segment(segment_of())
        assert s3.uploads() == []

    def test_a_logs_upload_goes_where_uploads_are_listed_by_whole_keys(
        self, s3: S3Place, store: S3Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As MinIO has it."""
        client = store._client
        listed = client.list_multipart_uploads

        def of_one_key(**asked):
            uploads = listed(**asked).get("Uploads", [])
            return {"Uploads": [each for each in uploads if each["Key"] == asked["Prefix"]]}

        monkeypatch.setattr(client, "list_multipart_uploads", of_one_key)
        s3.client.create_multipart_upload(Bucket=BUCKET, Key=f"some/where/{NAME}.log")
        store.delete_segment(segment_of())
        assert s3.uploads() == []

    @pytest.mark.parametrize("verb", ["put_object", "complete_multipart_upload"])
    def test_a_copy_whose_answer_is_lost_leaves_nothing(
        self, s3: S3Place, tmp_path: Path, verb: str
    ) -> None:
        store = s3.open_store(**PARTS)
        content = bytes(6 << 20) if verb == "complete_multipart_upload" else CONTENT
        segment, files = segment_of(content), segment_files(tmp_path, content)
        for lost in range(1, 2 if len(content) > len(CONTENT) else 8):
            real, calls = getattr(store._client, verb), itertools.count(1)

            def call(real=real, calls=calls, lost=lost, **options):
                answer = real(**options)
                if next(calls) == lost:
                    raise EndpointConnectionError(endpoint_url="the other side")
                return answer

            setattr(store._client, verb, call)
            with pytest.raises(RetriableRemoteStorageError, match="the other side"):
                store.copy_segment(segment, files)
            setattr(store._client, verb, real)
            assert s3.names() == []
            assert s3.uploads() == []
        store.copy_segment(segment, files)
        assert store.fetch_segment(segment, 0).read() == content
        store.close()

    def test_a_bucket_that_is_not_there_is_not_retried(self, s3: S3Place, tmp_path: Path) -> None:
        store = s3.open_store(bucket="nobody-has-it")
        with pytest.raises(RemoteStorageError) as caught:
            store.copy_segment(segment_of(), segment_files(tmp_path, CONTENT))
        assert type(caught.value) is RemoteStorageError
        store.close()


def test_a_directory_store_makes_its_directory_and_is_configured_once_files_are_given(
    tmp_path: Path,
) -> None:
    store = DirectoryStore()
    with pytest.raises(ValueError, match="dir"):
        store.configure({})
    store.configure({"dir": f"{tmp_path}/a/b/"})
    files: SegmentFiles = segment_files(tmp_path, CONTENT)
    store.copy_segment(segment_of(), files)
    assert (tmp_path / "a/b" / folder_name(PARTITION)).is_dir()


@pytest.mark.parametrize("there", [(), ("file",), ("file", "below")], ids=str)
def test_a_directory_is_made_and_tried_if_it_is_to_be_written_to(
    tmp_path: Path, there: tuple[str, ...]
) -> None:
    if there:
        (tmp_path / "file").touch()
    folder = tmp_path.joinpath(*there or ("some", "tier"))
    store = DirectoryStore()
    store.prepare()  # of a subclass that has no directory of this kind
    store.configure({"dir": str(folder)})
    if there:
        with pytest.raises(ValueError, match=f"^dir: {folder} cannot be written to: Not a dir"):
            store.prepare()
    else:
        assert not folder.exists()
        for _ in range(2):
            store.prepare()
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("number", "lasts"), [(errno.EROFS, True), (errno.ENOSPC, False)])
def test_what_passes_by_itself_is_no_reason_not_to_start(
    tmp_path: Path, number: int, lasts: bool
) -> None:
    class Failing(OsFileSystem):
        def open(self, path, *, create=False):
            raise OSError(number, os.strerror(number), path)

    store = DirectoryStore(Failing(), str(tmp_path))
    with pytest.raises(ValueError, match="Read-only") if lasts else contextlib.nullcontext():
        store.prepare()
