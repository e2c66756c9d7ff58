"""The features of a cluster: what its log begins with, what brokers register, what clients see."""

from __future__ import annotations

import pytest

from support.handler_calls import make_context
from tidelog.api.versions import VersionsApi
from tidelog.cluster.formatting import bootstrap_checkpoint
from tidelog.cluster.metadata import features
from tidelog.cluster.metadata.features import (
    finalized_levels,
    initial_levels,
    supported_levels,
    unsupported,
)
from tidelog.cluster.metadata.image import ClusterImage
from tidelog.cluster.metadata.records import bootstrap_records
from tidelog.cluster.metadata.replay import replay
from tidelog.cluster.metadata.snapshots import SnapshotId, decode_snapshot
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse

WITHOUT = {"metadata.version": 30, "transaction.version": 2}
WITH = WITHOUT | {"group.version": 1}


@pytest.fixture(params=[0, 1])
def group_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Whether brokers serve consumer groups of KIP-848."""
    level: int = request.param
    monkeypatch.setattr(features, "GROUP_VERSION", level)
    return level


def test_a_new_cluster_begins_with_the_levels(group_version: int) -> None:
    levels = initial_levels()
    assert levels == (WITH if group_version else WITHOUT)
    assert next(iter(levels)) == "metadata.version", "it says how to read what follows"
    image = replay(
        ClusterImage(cluster_id="c"), bootstrap_records(), offset=1, leader_epoch=1, controller_id=1
    )
    assert image.features == levels
    formatted = decode_snapshot(SnapshotId(0, 0), bootstrap_checkpoint(1_700_000_000_000), "c")
    assert formatted.features == levels


def test_what_brokers_register(group_version: int) -> None:
    ranges = {"metadata.version": (7, 30), "transaction.version": (0, 2)}
    assert supported_levels() == (ranges | {"group.version": (0, 1)} if group_version else ranges)


def test_share_groups_have_a_feature_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "share.version" not in initial_levels()
    monkeypatch.setattr(features, "SHARE_VERSION", 1)
    assert initial_levels() == WITH | {"share.version": 1}
    assert supported_levels()["share.version"] == (0, 1)
    assert finalized_levels({"share.version": 1})["share.version"] == 1
    assert "share.version" not in finalized_levels(WITH)


def answer(finalized: dict[str, int], version: int = 4) -> ApiVersionsResponse:
    image = ClusterImage("c", features=finalized, offset=99)
    api = VersionsApi(served=[], cluster_id="c", node_id=1, image=lambda: image)
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    return api.api_versions(make_context(ApiKey.API_VERSIONS, version), request)


def test_clients_see_the_level_of_the_log(group_version: int) -> None:
    for finalized in (
        WITHOUT,
        WITH,
        WITHOUT | {"transaction.version": 1},
        {"metadata.version": 30},
    ):
        shown = answer(finalized)
        assert {
            each.name: (each.min_version, each.max_version) for each in shown.supported_features
        } == supported_levels()
        known = {name: level for name, level in finalized.items() if name in supported_levels()}
        assert (
            {each.name: each.max_version_level for each in shown.finalized_features}
            == {each.name: each.min_version_level for each in shown.finalized_features}
            == known
            == finalized_levels(finalized)
        )
        assert shown.finalized_features_epoch == 99, "the metadata offset that this broker applied"


def test_old_clients_see_no_feature_that_may_be_at_level_0() -> None:
    shown = answer(WITH, 3)
    assert [each.name for each in shown.supported_features] == ["metadata.version"]
    assert {each.name: each.max_version_level for each in shown.finalized_features} == WITH


def test_levels_that_a_broker_cannot_work_with() -> None:
    levels = {"metadata.version": 31, "transaction.version": 2, "share.version": 1, "old": 0}
    assert unsupported(levels) == ["metadata.version 31", "share.version 1"]
