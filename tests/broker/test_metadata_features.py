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
from tidelog.foundation import check_features
from tidelog.start_error import StartError
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse

WITHOUT = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "transaction.version": 2,
}
OF_GROUPS = ("group.version", "share.version", "streams.version")
WITH = WITHOUT | dict.fromkeys(OF_GROUPS, 1)


@pytest.fixture(params=[0, 1])
def level_of_groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Whether brokers serve consumer groups of KIP-848, share groups and streams groups."""
    level: int = request.param
    for name in ("GROUP_VERSION", "SHARE_VERSION", "STREAMS_VERSION"):
        monkeypatch.setattr(features, name, level)
    return level


def test_a_new_cluster_begins_with_the_levels(level_of_groups: int) -> None:
    levels = initial_levels()
    assert levels == (WITH if level_of_groups else WITHOUT)
    assert next(iter(levels)) == "metadata.version", "it says how to read what follows"
    records = bootstrap_records(levels, min_insync_replicas=2)
    image = replay(ClusterImage(cluster_id="c"), records, offset=1, leader_epoch=1, controller_id=1)
    assert image.features == levels
    assert image.broker_configs == {"": {"min.insync.replicas": "2"}}
    formatted = decode_snapshot(SnapshotId(0, 0), bootstrap_checkpoint(1_700_000_000_000), "c")
    assert formatted.features == levels


def test_what_brokers_register(level_of_groups: int) -> None:
    ranges = {
        "metadata.version": (7, 30),
        "transaction.version": (0, 2),
        "eligible.leader.replicas.version": (0, 1),
        "kraft.version": (0, 1),
    }
    if level_of_groups:
        ranges |= dict.fromkeys(OF_GROUPS, (0, 1))
    assert supported_levels() == ranges


def answer(finalized: dict[str, int], version: int = 4) -> ApiVersionsResponse:
    image = ClusterImage("c", features=finalized, offset=99)
    api = VersionsApi(served=[], cluster_id="c", node_id=1, image=lambda: image)
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    return api.api_versions(make_context(ApiKey.API_VERSIONS, version), request)


def test_clients_see_the_level_of_the_log(level_of_groups: int) -> None:
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
    levels = {"metadata.version": 31, "transaction.version": 2, "streams.version": 2, "old": 0}
    assert unsupported(levels) == ["metadata.version 31", "streams.version 2"]


def test_levels_that_a_directory_of_kafka_keeps() -> None:
    """What Kafka 4.3.1's `kafka-storage format` finalizes, without options."""
    levels = WITH | {"eligible.leader.replicas.version": 1}
    assert unsupported(levels) == []
    assert finalized_levels(levels) == levels
    check_features(ClusterImage("c", features=levels), levels)


@pytest.mark.parametrize(
    ("name", "level", "advice"),
    [
        ("new.version", 3, "--feature new.version=0`"),
        ("transaction.version", 3, "--feature transaction.version=2`"),
        ("kraft.version", 1, "MirrorMaker"),
    ],
)
def test_a_level_that_is_not_known_refuses_the_start(name: str, level: int, advice: str) -> None:
    with pytest.raises(StartError) as refused:
        check_features(ClusterImage("c"), WITH | {name: level})
    assert f"{name} {level}" in str(refused.value)
    assert advice in str(refused.value)
    assert "\n" not in str(refused.value)
