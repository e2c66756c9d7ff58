"""The tiered cases, small, on a real broker with a tier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidelog_bench.cases import METRICS
from tidelog_bench.peers.go_programs import GoBuildError, GoUnavailableError, go_program
from tidelog_bench.peers.tiered import (
    EAGER,
    TIERED_CLUSTERS,
    TieredS3,
    TieredTidelog,
    tier_of,
)
from tidelog_bench.peers.versitygw import program
from tidelog_bench.results import ORDER
from tidelog_bench.tier_cases import (
    TIER_NAMES,
    CancelledReads,
    CopyDelay,
    CopyingProduce,
    Rebuild,
    RemoteRead,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    try:
        go_program("tier")
        go_program("load")
    except GoBuildError:
        raise
    except GoUnavailableError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TieredTidelog]:
    made = TieredTidelog(tmp_path / "tidelog", EAGER)
    made.start()
    yield made
    made.remove()
    assert not tier_of(made.folder).exists()


def test_one_broker(broker: TieredTidelog) -> None:
    read = RemoteRead(250).run(broker, 0.1)
    assert read["remote by local"] == read["remote read"] / read["local read"] > 0
    produce = CopyingProduce(1, 1, 8).run(broker, 0.25)
    assert produce["p99 copying"] > 0 < produce["p99 plain"]
    cancelled = CancelledReads(1000).run(broker, 0.1)
    assert cancelled["descriptors left"] <= 0  # what was open before may have been closed
    check_that_nothing_is_left(cancelled)
    copied = CopyDelay().run(broker, 0.0)
    assert 0 < copied["copy delay"] < 60_000
    assert METRICS.keys() >= {*read, *produce, *cancelled, *copied}


def check_that_nothing_is_left(cancelled: dict[str, float]) -> None:
    """Of reads that were indeed remote, and needed indexes."""
    assert cancelled["remote reads"] > 0 < cancelled["index cache used"]
    assert cancelled["purgatory"] == cancelled["index cache"] == 0


def test_a_tier_in_s3(tmp_path: Path) -> None:
    pytest.importorskip("boto3")
    try:
        program()
    except GoBuildError:
        raise
    except GoUnavailableError as missing:
        pytest.skip(str(missing))
    broker = TieredS3(tmp_path / "tidelog", EAGER)
    try:
        broker.start()
        assert RemoteRead(250).run(broker, 0.1)["remote read"] > 0
        check_that_nothing_is_left(CancelledReads(1000).run(broker, 0.1))
    finally:
        broker.remove()
    assert not tier_of(broker.folder).exists()


def test_a_new_follower_fetches_what_is_local_alone(tmp_path: Path) -> None:
    cluster = TIERED_CLUSTERS["tidelog"](tmp_path / "cluster", EAGER)
    try:
        cluster.start()
        figures = Rebuild(500).run(cluster, 0.1)
    finally:
        cluster.remove()
    assert figures["local bytes"] > 50 > 10 > figures["remote bytes"] > 0
    assert METRICS.keys() >= figures.keys()


def test_names_are_in_the_order_of_tables() -> None:
    assert ORDER.keys() >= set(TIER_NAMES)
