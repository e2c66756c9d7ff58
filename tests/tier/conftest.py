"""The three places of a remote tier, as the recording store is told of them."""

from __future__ import annotations

import pytest

from support.remote_places import DirectoryPlace


@pytest.fixture
def store(place):
    """Properties of `TieredCluster(store)`."""
    inner = "directory" if isinstance(place, DirectoryPlace) else "s3"
    return {"inner": inner, **place.config}
