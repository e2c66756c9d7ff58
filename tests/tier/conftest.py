"""The three places of a remote tier, as the recording store is told of them."""

from __future__ import annotations

import pytest

from support.remote_places import DirectoryPlace


@pytest.fixture
def store(place):
    return properties_of(place)


def properties_of(place):
    """What `TieredCluster` takes as its store."""
    inner = "directory" if isinstance(place, DirectoryPlace) else "s3"
    return {"inner": inner, **place.config}
