"""How the S3 store takes what goes wrong, from a server that does just that."""

from __future__ import annotations

import logging
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from support.remote import remote_segment, segment_files
from support.versitygw import ENVIRONMENT
from tidelog_storage.remote.api import (
    IndexKind,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tidelog_storage.remote.s3_settings import S3Settings
from tidelog_storage.remote.s3_store import S3Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEGMENT = remote_segment(size=1000)
CONTENT = bytes(range(200)) * 5


class BadServer(ThreadingHTTPServer):
    """Answers every request with `status` and an S3 error `code`, or as `behaviour` says."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.code, self.behaviour = 500, "InternalError", "error"
        self.requests = 0
        self.conditions = []
        self.reads = []
        self.refusals = 0  # of signed URLs, from now on
        self.may_end = threading.Event()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        pass


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self):
        server = self.server
        server.requests += 1
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if server.behaviour == "hang":
            server.may_end.wait(60)
            self.close_connection = True
            return
        if server.behaviour == "reset":
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if server.behaviour == "modest":
            self.modest()
            return
        if server.behaviour == "ranges":
            self.ranges()
            return
        body = f"<Error><Code>{server.code}</Code><Message>no</Message></Error>".encode()
        status, sent = server.status, body
        if server.behaviour == "short":
            status, sent = 206, b"too little"
        self.send_response(status)
        self.send_header("Content-Length", str(1000 if server.behaviour == "short" else len(sent)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)
        self.close_connection = True

    def modest(self):
        """Writes and deletes, and tells nothing of what is there."""
        is_begin = self.command == "POST" and "uploads" in self.path
        told = self.command == "HEAD" or (self.command == "GET" and "uploads" in self.path)
        body = b"<Error><Code>AccessDenied</Code></Error>" if told else b""
        if is_begin:
            name = "InitiateMultipartUploadResult"
            body = f"<{name}><UploadId>u</UploadId></{name}>".encode()
        elif self.command == "POST":
            body = b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"
        self.server.conditions.append(self.headers.get("If-None-Match"))
        self.send_response(403 if told else 200)
        self.send_header("ETag", '"e"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.close_connection = True

    def ranges(self):
        """Reads of CONTENT, but not by signed URLs while there are `refusals`."""
        server = self.server
        is_signed = "X-Amz-Signature=" in self.path
        server.reads.append(self.path if is_signed else "boto3")
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        status, body = 206, CONTENT[first : last + 1]
        if is_signed and server.refusals:
            server.refusals -= 1
            status, body = 403, b"<Error><Code>AccessDenied</Code></Error>"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815 - http.server's names


@pytest.fixture
def server():
    server = BadServer()
    yield server
    server.may_end.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def new_store(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    stores = []

    def new(url, **config):
        store = S3Store()
        settings = {"bucket": "b", "endpoint.url": url, "retries.max": "1"}
        store.configure({**settings, **{k.replace("_", "."): v for k, v in config.items()}})
        stores.append(store)
        return store

    yield new
    for store in stores:
        store.close()


def calls(store, tmp_path):
    files = segment_files(tmp_path, b"c" * 1000)
    return [
        lambda: store.copy_segment(SEGMENT, files),
        lambda: store.fetch_segment(SEGMENT, 0),
        lambda: store.fetch_index(SEGMENT, IndexKind.OFFSET),
        lambda: store.delete_segment(SEGMENT),
    ]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (503, "SlowDown", RetriableRemoteStorageError),
        (500, "InternalError", RetriableRemoteStorageError),
        (502, "SomethingNew", RetriableRemoteStorageError),
        (429, "SomethingNew", RetriableRemoteStorageError),
        (400, "RequestTimeout", RetriableRemoteStorageError),
        (409, "ConditionalRequestConflict", RetriableRemoteStorageError),
        (403, "AccessDenied", RemoteStorageError),
        (404, "NoSuchBucket", RemoteStorageError),
        (400, "InvalidRequest", RemoteStorageError),
    ],
)
def test_every_call_maps_its_errors(
    server: BadServer,
    new_store: Callable[..., S3Store],
    tmp_path: Path,
    status: int,
    code: str,
    kind: type[RemoteStorageError],
) -> None:
    server.status, server.code = status, code
    for call in calls(new_store(server.url), tmp_path):
        with pytest.raises(RemoteStorageError) as caught:
            call()
        assert type(caught.value) is kind
        assert code in str(caught.value)


def test_no_such_key(server: BadServer, new_store: Callable[..., S3Store]) -> None:
    server.status, server.code = 404, "NoSuchKey"
    with pytest.raises(RemoteResourceNotFound):
        new_store(server.url).fetch_segment(SEGMENT, 0)


def test_throttled_calls_are_tried_again_first(
    server: BadServer, new_store: Callable[..., S3Store]
) -> None:
    server.status, server.code = 503, "SlowDown"
    with pytest.raises(RetriableRemoteStorageError):
        new_store(server.url, retries_max="3").fetch_segment(SEGMENT, 0)
    assert server.requests == 1 + 3  # by a signed URL, and then in earnest


@pytest.mark.parametrize("behaviour", ["reset", "hang"])
def test_connections_that_end_or_hang(
    server: BadServer, new_store: Callable[..., S3Store], tmp_path: Path, behaviour: str
) -> None:
    server.behaviour = behaviour
    for call in calls(new_store(server.url, read_timeout_ms="200"), tmp_path):
        with pytest.raises(RetriableRemoteStorageError):
            call()


def test_a_refused_connection(new_store: Callable[..., S3Store], tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # nobody listens
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        for call in calls(new_store(url), tmp_path):
            with pytest.raises(RetriableRemoteStorageError):
                call()


def test_a_body_that_ends_early_is_noticed(
    server: BadServer, new_store: Callable[..., S3Store]
) -> None:
    server.behaviour = "short"
    store = new_store(server.url)
    with store.fetch_segment(SEGMENT, 0) as stream, pytest.raises(RetriableRemoteStorageError):
        stream.read()
    with store.fetch_segment(SEGMENT, 0) as stream, pytest.raises(RetriableRemoteStorageError):
        list(iter(lambda: stream.read(6), b""))


def test_without_the_right_to_list_copies_and_deletions_work(
    server: BadServer, new_store: Callable[..., S3Store], tmp_path: Path
) -> None:
    server.behaviour = "modest"
    content = bytes(6 << 20)
    store = new_store(server.url, multipart_part_bytes=str(5 << 20))
    segment = remote_segment(size=len(content))
    store.copy_segment(segment, segment_files(tmp_path, content))
    assert server.conditions.count("*") == 7  # six objects and the manifest
    store.delete_segment(segment)


def test_without_credentials_nothing_is_tried_again(
    server: BadServer, new_store: Callable[..., S3Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(RemoteStorageError, match="credentials") as caught:
        new_store(server.url).fetch_segment(SEGMENT, 0)
    assert type(caught.value) is RemoteStorageError
    assert server.requests == 0


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({}, "bucket"),
        ({"bucket": "b", "multipart.part.bytes": "1000"}, "multipart.part.bytes"),
        ({"bucket": "b", "read.timeout.ms": "soon"}, "read.timeout.ms"),
        ({"bucket": "b", "path.style.access": "maybe"}, "path.style.access"),
        ({"bucket": "b", "profile": "nobody's"}, "nobody's"),
        ({"bucket": "b", "endpoint.url": "not a url"}, "endpoint"),
        ({"bucket": "a bucket"}, "bucket: 'a bucket' is not a bucket name"),
        ({"bucket": "b?list"}, "bucket"),
    ],
)
def test_wrong_properties_are_named(
    config: dict[str, str], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(ValueError, match=word):
        S3Store().configure(config)


def test_what_the_properties_mean() -> None:
    settings = S3Settings.parse({"bucket": "b", "prefix": "/a/b/", "endpoint.url": "http://x"})
    assert (settings.prefix, settings.path_style, settings.region) == ("a/b/", True, None)
    settings = S3Settings.parse({"bucket": "b", "region": "eu-west-1"})
    assert (settings.prefix, settings.path_style, settings.region) == ("", False, "eu-west-1")


def test_all_reads_of_an_object_go_by_one_signed_url(
    server: BadServer, new_store: Callable[..., S3Store]
) -> None:
    server.behaviour = "ranges"
    store = new_store(server.url)
    with store.fetch_segment(SEGMENT, 100, 499) as stream:
        assert stream.readable()
        assert stream.read(150) == CONTENT[100:250]
        buffer = bytearray(300)
        assert stream.readinto(buffer) == 250
        assert buffer[:250] == CONTENT[250:500]
        assert stream.readinto(buffer) == 0
        assert stream.read() == b""
    with store.fetch_segment(SEGMENT, 900) as stream:
        assert stream.readall() == CONTENT[900:]
    with store.fetch_segment(SEGMENT, 0):
        pass  # nobody wants it any more
    assert len(server.reads) == 3
    assert len(set(server.reads)) == 1
    assert "boto3" not in server.reads


def test_signed_reads_need_no_private_part_of_boto3(
    server: BadServer, new_store: Callable[..., S3Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.behaviour = "ranges"
    store = new_store(server.url)
    with monkeypatch.context() as patch:
        patch.delattr(store._client, "_endpoint")
        assert store.fetch_segment(SEGMENT, 7).read() == CONTENT[7:]
    assert "boto3" not in server.reads


def test_a_url_that_is_too_old_is_signed_anew(
    server: BadServer, new_store: Callable[..., S3Store]
) -> None:
    server.behaviour = "ranges"
    store = new_store(server.url)
    for start in range(5):
        server.refusals = 1 if start else 0
        assert store.fetch_segment(SEGMENT, start).read() == CONTENT[start:]
    assert "boto3" not in server.reads
    assert len(server.reads) == 1 + 2 * 4


def test_a_server_that_takes_no_signed_urls_is_asked_by_boto3(
    server: BadServer, new_store: Callable[..., S3Store]
) -> None:
    server.behaviour, server.refusals = "ranges", 1000
    store = new_store(server.url)
    for start in range(6):
        assert store.fetch_segment(SEGMENT, start).read() == CONTENT[start:]
    assert server.reads.count("boto3") == 6
    assert len(server.reads) == 6 + 3  # then it is known


def test_an_outage_is_no_reason_to_ask_in_another_way(
    server: BadServer, new_store: Callable[..., S3Store]
) -> None:
    server.behaviour = "reset"
    store = new_store(server.url)
    for _ in range(4):
        with pytest.raises(RetriableRemoteStorageError):
            store.fetch_segment(SEGMENT, 0)
    server.behaviour = "ranges"
    assert store.fetch_segment(SEGMENT, 0).read() == CONTENT
    assert "boto3" not in server.reads


def test_buckets_of_other_kinds_are_left_to_boto3() -> None:
    for bucket in ("arn:aws:s3::1:accesspoint/x.mrap", "name--usw2-az1--x-s3"):
        assert not S3Settings.parse({"bucket": bucket}).signs_urls


@pytest.mark.parametrize(
    "url", ["nonsense", "127.0.0.1:9000", "ftp://host", "http://", "http://h:x"]
)
def test_an_endpoint_that_is_none_is_named(url: str) -> None:
    with pytest.raises(ValueError, match=f"^endpoint.url: '{url}' is not of the form http://"):
        S3Settings.parse({"bucket": "b", "endpoint.url": url})


def test_no_text_shows_a_password_that_is_in_an_endpoint() -> None:
    with pytest.raises(ValueError, match=r"^endpoint.url: users and passwords are") as caught:
        S3Settings.parse({"bucket": "b", "endpoint.url": "http://key:hush@h:1"})
    assert "hush" not in str(caught.value)


def test_a_profile_that_there_is_not_is_named() -> None:
    with pytest.raises(ValueError, match=r"^profile: The config profile"):
        S3Settings.parse({"bucket": "b", "profile": "no such one"}).connect()


def test_debug_lines_of_the_libraries_have_no_secrets(
    server: BadServer, new_store: Callable[..., S3Store], caplog: pytest.LogCaptureFixture
) -> None:
    """botocore logs the access key and the session token when it signs a request."""
    libraries = {"boto3", "botocore", "s3transfer", "urllib3"}
    for name in libraries:
        logging.getLogger(name).setLevel(logging.NOTSET)
    caplog.set_level(logging.DEBUG)
    store = new_store(server.url)
    with pytest.raises(RemoteStorageError):
        store.fetch_segment(SEGMENT, 0)
    with pytest.raises(RemoteStorageError):
        store.fetch_index(SEGMENT, IndexKind.OFFSET)
    assert server.requests
    debugging = {one.name.partition(".")[0] for one in caplog.records if one.levelno < logging.INFO}
    assert libraries.isdisjoint(debugging)
