"""How the S3 store takes what goes wrong, from a server that does just that."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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

SEGMENT = remote_segment(size=1000)


class BadServer(ThreadingHTTPServer):
    """Answers every request with `status` and an S3 error `code`, or as `behaviour` says."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.code, self.behaviour = 500, "InternalError", "error"
        self.requests = 0
        self.conditions = []
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
def test_every_call_maps_its_errors(server, new_store, tmp_path, status, code, kind):
    server.status, server.code = status, code
    for call in calls(new_store(server.url), tmp_path):
        with pytest.raises(RemoteStorageError) as caught:
            call()
        assert type(caught.value) is kind
        assert code in str(caught.value)


def test_no_such_key(server, new_store):
    server.status, server.code = 404, "NoSuchKey"
    with pytest.raises(RemoteResourceNotFound):
        new_store(server.url).fetch_segment(SEGMENT, 0)


def test_throttled_calls_are_tried_again_first(server, new_store):
    server.status, server.code = 503, "SlowDown"
    with pytest.raises(RetriableRemoteStorageError):
        new_store(server.url, retries_max="3").fetch_segment(SEGMENT, 0)
    assert server.requests == 3


@pytest.mark.parametrize("behaviour", ["reset", "hang"])
def test_connections_that_end_or_hang(server, new_store, tmp_path, behaviour):
    server.behaviour = behaviour
    for call in calls(new_store(server.url, read_timeout_ms="200"), tmp_path):
        with pytest.raises(RetriableRemoteStorageError):
            call()


def test_a_refused_connection(new_store, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # nobody listens
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        for call in calls(new_store(url), tmp_path):
            with pytest.raises(RetriableRemoteStorageError):
                call()


def test_a_body_that_ends_early_is_noticed(server, new_store):
    server.behaviour = "short"
    store = new_store(server.url)
    with store.fetch_segment(SEGMENT, 0) as stream, pytest.raises(RetriableRemoteStorageError):
        stream.read()
    with store.fetch_segment(SEGMENT, 0) as stream, pytest.raises(RetriableRemoteStorageError):
        list(iter(lambda: stream.read(6), b""))


def test_who_may_not_list_can_copy_and_delete(server, new_store, tmp_path):
    server.behaviour = "modest"
    content = bytes(6 << 20)
    store = new_store(server.url, multipart_part_bytes=str(5 << 20))
    segment = remote_segment(size=len(content))
    store.copy_segment(segment, segment_files(tmp_path, content))
    assert server.conditions.count("*") == 7  # six objects and the manifest
    store.delete_segment(segment)


def test_without_credentials_nothing_is_tried_again(server, new_store, monkeypatch):
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
    ],
)
def test_wrong_properties_are_named(config, word, monkeypatch):
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(ValueError, match=word):
        S3Store().configure(config)


def test_what_the_properties_mean():
    settings = S3Settings.parse({"bucket": "b", "prefix": "/a/b/", "endpoint.url": "http://x"})
    assert (settings.prefix, settings.path_style, settings.region) == ("a/b/", True, None)
    settings = S3Settings.parse({"bucket": "b", "region": "eu-west-1"})
    assert (settings.prefix, settings.path_style, settings.region) == ("", False, "eu-west-1")
