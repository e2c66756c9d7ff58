"""What rot on a disk excuses, and what it may not take from a cluster."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest

from sim.cluster.faults import OVER_S_MAX, ClusterFault, ClusterFaults
from sim.cluster.rot import Damage, Rot
from sim.history import TopicHistory, Violation
from tidelog.simulation.loop import simulate
from tidelog_protocol.errors import ErrorCode

CORRUPT = ErrorCode.CORRUPT_MESSAGE


def damage_of(node_id, topic):
    machine = Mock()
    machine.config.node_id = node_id
    return Damage(machine, (topic.name, topic.topic_id), f"data/{topic.name}-0", Mock())


def test_a_replica_may_refuse_its_own_bad_bytes_alone() -> None:
    """A batch whose last offset has rotted is not served (seed 565 of two brokers)."""
    rot, topic = Rot(Mock()), TopicHistory("t", b"t" * 16, 2, {})
    assert not rot.refuses(CORRUPT, 1, topic.partition(0))
    rot.damage = damage_of(1, topic)
    assert rot.refuses(CORRUPT, 1, topic.partition(0))
    assert not rot.refuses(CORRUPT, 2, topic.partition(0))
    assert not rot.refuses(CORRUPT, 1, topic.partition(1))
    assert not rot.refuses(ErrorCode.UNKNOWN_SERVER_ERROR, 1, topic.partition(0))


def test_a_replica_refuses_until_it_has_read_again_what_was_the_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rot, topic = Rot(Mock()), TopicHistory("t", b"t" * 16, 1, {})
    damage = damage_of(1, topic)
    monkeypatch.setattr(damage, "undo", lambda: True)
    assert rot._undo(damage)
    assert rot.refuses(CORRUPT, 1, topic.partition(0))
    assert not rot.refuses(CORRUPT, 2, topic.partition(0))


@pytest.mark.parametrize(
    ("voters", "away", "rotten", "keeps"),
    [
        (3, [], None, True),
        (3, [2], None, False),
        (4, [], 3, False),  # seed 1184: both waited for a controller
        (4, [1], None, True),  # it is the same broker
        (5, [2], None, True),
        (5, [2], 3, False),
        (3, [4], None, True),  # no voter
    ],
)
def test_faults_leave_a_majority_of_voters_without_rot(
    voters: int, away: list[int], rotten: int | None, keeps: bool
) -> None:
    world = Mock(away=dict.fromkeys(away), are_voters_in_doubt=False)
    world.machines.voters = voters
    world.machines.image.return_value = None  # the log names none
    world.metadata_rot.machine = None if rotten is None else Mock()
    if rotten is not None:
        world.metadata_rot.machine.config.node_id = rotten
    assert ClusterFaults(world, ()).keeps_quorum(1) is keeps
    world.are_voters_in_doubt = True  # seed 453: one was removed while another had a rotten log
    assert not ClusterFaults(world, ()).keeps_quorum(1)


def test_a_fault_that_does_not_end_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one, which it waited for, had failed: the run went on for ever (seed 1184)."""

    async def main(loop):
        world = Mock(loop=loop, seed=1, clients=[])
        await ClusterFaults(world, [ClusterFault(0, "kill", 1, 0, 0)]).run()

    async def stay(_faults, _fault):
        await asyncio.Event().wait()

    for writer in ("SteadyIdempotent", "SteadyPlain"):
        monkeypatch.setattr(f"sim.cluster.faults.{writer}", Mock())
    monkeypatch.setattr(ClusterFaults, "_do", stay)
    with pytest.raises(Violation, match=f"1 faults last longer than {OVER_S_MAX:g} s"):
        simulate(1, main)
