"""Places where a remote tier can be in tests: a directory, moto in process, a real S3 server.

`place` is a fixture of all tests (`conftest.py`), `versitygw` the server that it may need.
"""

from __future__ import annotations

import contextlib
import os

import pytest

from support.versitygw import ENVIRONMENT, Versitygw
from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.s3_store import S3Store

BUCKET = "remote-tier"


class _Place:
    def open_store(self, **config):
        store = self.store_class()
        store.configure({**self.config, **config})
        return store


class DirectoryPlace(_Place):
    """Looks at what a directory store has left in its folder, and changes it."""

    store_class = DirectoryStore

    def __init__(self, folder):
        self.folder = folder
        self.config = {"dir": str(folder)}

    def names(self):
        """Of all files; folders may come and go meanwhile."""
        return sorted(
            os.path.relpath(f"{folder}/{name}", self.folder)
            for folder, _, names in os.walk(self.folder)
            for name in names
        )

    def read(self, name):
        return (self.folder / name).read_bytes()

    def put(self, name, data):
        """Write over it behind the store's back; None removes it."""
        if data is None:
            (self.folder / name).unlink()
        else:
            (self.folder / name).write_bytes(data)


class S3Place(_Place):
    """Looks at what an S3 store has left in its bucket, and changes it."""

    store_class = S3Store

    def __init__(self, **config):
        import boto3

        self.config = {"bucket": BUCKET, "region": "us-east-1", "prefix": "some/where", **config}
        endpoint = config.get("endpoint.url")
        self.client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")

    def names(self):
        keys = [key for page in self._pages() for key in page]
        assert all(key.startswith("some/where/") for key in keys)
        return sorted(key.removeprefix("some/where/") for key in keys)

    def read(self, name):
        return self.client.get_object(Bucket=BUCKET, Key="some/where/" + name)["Body"].read()

    def put(self, name, data):
        """Write over it behind the store's back; None removes it."""
        if data is None:
            self.client.delete_object(Bucket=BUCKET, Key="some/where/" + name)
        else:
            self.client.put_object(Bucket=BUCKET, Key="some/where/" + name, Body=data)

    def uploads(self):
        return self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])

    def remove(self):
        """The bucket with all that is in it."""
        for page in list(self._pages()):
            if page:
                objects = [{"Key": key} for key in page]
                self.client.delete_objects(Bucket=BUCKET, Delete={"Objects": objects})
        self.client.delete_bucket(Bucket=BUCKET)

    def _pages(self):
        """The keys of all objects; at most 1000 a page."""
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
            yield [entry["Key"] for entry in page.get("Contents", ())]


@pytest.fixture(scope="module")
def versitygw(tmp_path_factory):
    server = Versitygw(tmp_path_factory.mktemp("versitygw"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(
    params=[
        "directory",
        pytest.param("moto", marks=pytest.mark.nightly),  # as the real S3 server, and slower
        pytest.param("versitygw", marks=pytest.mark.xdist_group("s3")),
    ]
)
def place(request, tmp_path):
    with place_of(request, tmp_path) as place:
        yield place


@contextlib.contextmanager
def place_of(request, folder):
    """The place whose name is the parameter of a fixture; empty. A directory is in the folder."""
    if request.param == "directory":
        yield DirectoryPlace(folder / "tier")
        return
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        if request.param == "moto":
            from moto import mock_aws

            with mock_aws():
                place = S3Place()
                place.client.create_bucket(Bucket=BUCKET)
                yield place
            return
        place = S3Place(**{"endpoint.url": request.getfixturevalue("versitygw").url})
        place.client.create_bucket(Bucket=BUCKET)
        yield place
        place.remove()
