"""Spread of replicas over brokers and racks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.metadata import CountedRng
from tidelog.cluster.controller.placement import PlacementError, place
from tidelog.cluster.metadata.image import BrokerImage


def brokers(*racks: str | None, fenced: tuple[int, ...] = ()) -> list[BrokerImage]:
    return [
        BrokerImage(node_id, "h", node_id, rack=rack, fenced=node_id in fenced)
        for node_id, rack in enumerate(racks, 1)
    ]


class Chance(CountedRng):
    """The high end of every range."""

    def uniform(self, low: float, high: float) -> float:
        return high


def test_one_broker() -> None:
    assert place(brokers(None), 3, 1, CountedRng()) == [(1,)] * 3
    assert place(brokers(None), 1, 1, Chance()) == [(1,)]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=7),
    partitions=st.integers(1, 30),
    data=st.data(),
)
def test_replicas_are_distinct_and_even(
    racks: list[str | None], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    placed = place(brokers(*racks), partitions, factor, CountedRng())
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= set(range(1, len(racks) + 1))
    leaders = Counter(replicas[0] for replicas in placed)
    counts = [leaders[node_id] for node_id in range(1, len(racks) + 1)]
    assert max(counts) - min(counts) <= 1


def test_replicas_lie_in_different_racks() -> None:
    nodes = brokers("a", "a", "b", "b", "c", "c")
    rack_of = {broker.node_id: broker.rack for broker in nodes}
    for replicas in place(nodes, 12, 3, CountedRng()):
        assert {rack_of[node_id] for node_id in replicas} == {"a", "b", "c"}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(racks=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=7), data=st.data())
def test_racks_of_any_size_share_a_partition(racks: list[str], data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    rack_of = dict(enumerate(racks, 1))
    for replicas in place(brokers(*racks), 10, factor, CountedRng()):
        used = Counter(rack_of[node_id] for node_id in replicas)
        for rack in set(racks):
            full = used[rack] == racks.count(rack)
            assert full or used[rack] >= max(used.values()) - 1


def test_brokers_whose_directories_are_all_cordoned_get_nothing() -> None:
    """KIP-1066."""
    one, two = b"1" * 16, b"2" * 16
    first, second = brokers(None, None)
    first = first._replace(log_dirs=(one, two), cordoned_log_dirs=(two,))
    assert place([first, second], 1, 2, CountedRng())
    first = first._replace(cordoned_log_dirs=(two, one))
    assert place([first, second], 2, 1, CountedRng()) == [(2,)] * 2
    with pytest.raises(PlacementError, match="directories cordoned"):
        place([first, second], 1, 2, CountedRng())


def test_brokers_about_to_stop_get_nothing() -> None:
    nodes = brokers(None, None, None)
    nodes[1] = nodes[1]._replace(in_controlled_shutdown=True)
    assert all(2 not in replicas for replicas in place(nodes, 4, 2, CountedRng()))
    with pytest.raises(PlacementError, match=r"only 2 broker\(s\) are registered"):
        place(nodes, 1, 3, CountedRng())


def test_fenced_brokers_follow_but_never_lead() -> None:
    nodes = brokers(None, None, None, fenced=(2,))
    nodes[1] = nodes[1]._replace(in_controlled_shutdown=True)  # it has stopped: fenced, no more
    placed = place(nodes, 6, 3, CountedRng())
    assert all(replicas[-1] == 2 for replicas in placed)
    assert all(
        2 not in replicas for replicas in place(brokers(None, None, fenced=(2,)), 4, 1, Chance())
    )


@pytest.mark.parametrize(
    ("nodes", "factor", "text"),
    [
        (brokers(None), 0, "must be positive"),
        (brokers(None), 2, "only 1 broker"),
        (brokers(None, fenced=(1,)), 1, "All brokers are currently fenced"),
        ([], 1, "All brokers are currently fenced"),
    ],
)
def test_refusals(nodes: list[BrokerImage], factor: int, text: str) -> None:
    with pytest.raises(PlacementError, match=text):
        place(nodes, 1, factor, CountedRng())
