"""Whose answers about a group's offsets count."""

from __future__ import annotations

import random
from unittest.mock import Mock

import pytest

from sim.cluster.groups import OFFSETS_TOPIC, CoordinatorClient
from sim.cluster.in_sync_checkers import InSyncChecker
from tidelog.cluster.metadata.image import PartitionImage


@pytest.mark.parametrize(("heard", "term"), [(7, (2, 0)), (8, None)])
def test_a_coordinator_that_nothing_newer_is_seen_of_may_be_an_earlier_one(
    heard: int, term: tuple[int, int] | None
) -> None:
    """Those who knew of the next one were dead or still loading (seed 729 of three brokers)."""
    in_sync = InSyncChecker(Mock())
    in_sync.image_offset = heard
    state = PartitionImage(0, 2, 0, 1, (2, 3), (2, 3))
    image = Mock(offset=7, topics={OFFSETS_TOPIC: Mock(partitions=(state,))})
    world = Mock()
    world.machines.image.return_value = image
    world.checkers.in_sync = in_sync
    assert CoordinatorClient(world, "client", "group", random.Random(1)).term() == term
