"""Fixtures of the storage room: a disk that can be killed, and the folder of its logs; a
remote store in each place."""

from __future__ import annotations

import pytest

from tidelog.simulation.disk import SimDisk


@pytest.fixture
def disk():
    return SimDisk(0)


@pytest.fixture
def files(disk):
    """Its files, with a folder `data` that is there after a power cut as well."""
    files = disk.files()
    files.make_dirs("data")
    files.fsync_dir("data")
    return files


@pytest.fixture
def store(place):
    store = place.open_store()
    yield store
    store.close()
    store.close()
