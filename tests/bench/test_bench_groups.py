"""The question about groups, small, on a real broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from unittest.mock import Mock

from tidelog_bench import bench_groups
from tidelog_bench.bench_groups import Group, Size, measure
from tidelog_bench.peers.tidelog import Tidelog

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_group_is_stable_when_each_member_has_its_part_of_one_epoch() -> None:
    group = Group("g", Size(members=2, partitions=4))
    group.joined()
    group.holds(0, 1, frozenset(range(4)))
    group.joined()
    assert group.joined_at > 0
    group.holds(0, 2, frozenset({0, 1}))
    group.holds(1, 1, frozenset({2, 3}))
    assert not group.stable_at, "the second one is in an older epoch"
    group.holds(1, 2, frozenset({1, 2}))
    assert not group.stable_at, "a partition has two members"
    group.holds(1, 2, frozenset({2, 3}))
    assert group.stable_at >= group.joined_at


def test_both_protocols_and_heartbeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_groups, "SETTLED_INTERVALS", 1)
    size = Size(
        members=3, partitions=6, groups=1, beating=4, connections=2, interval_s=0.05, seconds=0.1
    )
    peer = Tidelog(tmp_path / "broker")
    try:
        peer.start()
        figures = measure(peer, size)
    finally:
        peer.remove()
    assert figures.keys() == {"KIP-848 ms", "classic ms", "heartbeats, % of a core"}
    assert figures["KIP-848 ms"] > 0
    assert figures["classic ms"] > 0


def test_peers_are_measured_in_turns_and_removed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peers = {"one": Mock(), "other": Mock()}
    makers = {name: Mock(return_value=peer) for name, peer in peers.items()}
    monkeypatch.setattr(bench_groups, "PEERS", makers)
    monkeypatch.setattr("sys.argv", ["bench", "--rounds", "2"])
    measured = Mock(side_effect=[{"ms": 1.0}, {"ms": 2.0}, {"ms": 3.0}, {"ms": 4.0}])
    bench_groups.compare("", measured)
    assert [call.args[0] for call in measured.mock_calls] == [*peers.values()] * 2
    assert all(peer.remove.call_count == 2 for peer in peers.values())
    assert json.loads(capsys.readouterr().out) == {
        "one": [{"ms": 1.0}, {"ms": 3.0}],
        "other": [{"ms": 2.0}, {"ms": 4.0}],
    }
