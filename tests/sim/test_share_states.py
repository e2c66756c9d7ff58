"""The state of share groups while brokers die and links are cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from sim.history import Violation
from sim.share_states import run_share_states
from tidelog.coordinators.share import shard
from tidelog.coordinators.share.coordinator import ShareCoordinator
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("seed", range(2))
def test_acknowledged_states_stay(seed: int) -> None:
    written, fenced = run_share_states(seed)
    assert written > 100
    assert fenced > 10


async def _at_once(_coordinator: ShareCoordinator, _shard: Any) -> ErrorCode:
    return ErrorCode.NONE


@dataclass(frozen=True)
class Planted:
    """A bug, and the first seed at which it is found; a later one will do when seeds shift."""

    owner: Any
    name: str
    wrong: Callable[..., Any] | property
    seed: int


PLANTED = {
    "answers do not wait for the commit": Planted(ShareCoordinator, "_settled", _at_once, 3),
    "a new leader fences none": Planted(shard, "_fenced", lambda *_: None, 0),
    "the log is pruned to the last snapshot of any state": Planted(
        shard.ShareShard, "redundant_offset", property(lambda self: self._snapshot_offset), 0
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[bug]
    monkeypatch.setattr(planted.owner, planted.name, planted.wrong)
    with pytest.raises(Violation):
        _run_many(planted.seed)


def _run_many(first: int) -> None:
    for seed in range(first, first + 20):
        run_share_states(seed)
