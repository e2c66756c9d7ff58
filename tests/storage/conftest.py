"""Fixtures of the storage room: a disk that can be killed, and the folder of its logs."""

from __future__ import annotations

import pytest

from sim.disk import SimDisk


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
