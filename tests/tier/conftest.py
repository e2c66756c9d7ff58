"""The three places of a remote tier, as the recording store is told of them."""

from __future__ import annotations

import pytest

from support.remote_places import DirectoryPlace, place_of

S3 = pytest.mark.xdist_group("s3")


@pytest.fixture(
    params=[  # what a store must do is tested in tests/storage; `test_kafka_leader.py` has S3 in CI
        "directory",
        pytest.param("moto", marks=pytest.mark.nightly),
        pytest.param("versitygw", marks=[pytest.mark.nightly, S3]),
    ]
)
def place(request, tmp_path):
    with place_of(request, tmp_path) as place:
        yield place


@pytest.fixture
def store(place):
    return properties_of(place)


def properties_of(place):
    """What `TieredCluster` takes as its store."""
    inner = "directory" if isinstance(place, DirectoryPlace) else "s3"
    return {"inner": inner, **place.config}
