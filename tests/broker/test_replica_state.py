"""What a leader notes of one follower."""

from __future__ import annotations

import pytest

from tidelog.cluster.metadata.image import BrokerImage
from tidelog.replication.replica_state import UNKNOWN_OFFSET, ReplicaRules, ReplicaState


def fetched(
    offset: int, *, leader_end: int = 10, now_ms: int = 1000, epoch: int = 4
) -> ReplicaState:
    replica = ReplicaState()
    replica.record_fetch(offset, 2, leader_end=leader_end, now_ms=now_ms, broker_epoch=epoch)
    return replica


def test_a_fetch_is_noted_whole() -> None:
    replica = fetched(7)
    assert (replica.log_end_offset, replica.log_start_offset) == (7, 2)
    assert (replica.last_fetch_leader_end_offset, replica.last_fetch_ms) == (10, 1000)
    assert replica.broker_epoch == 4


def test_a_fetch_back_is_progress_back() -> None:
    replica = fetched(7)
    replica.record_fetch(3, 2, leader_end=10, now_ms=2000, broker_epoch=4)
    assert replica.log_end_offset == 3


def test_one_that_never_caught_up_is_not_caught_up() -> None:
    replica = fetched(7, now_ms=5)
    assert not replica.is_caught_up(10, 5, 30_000)
    assert replica.is_caught_up(7, 5, 30_000)


def test_a_follower_that_always_trails_a_little_stays_caught_up() -> None:
    replica = ReplicaState()
    for round_, end in enumerate(range(0, 1000, 10)):
        now_ms = round_ * 1000
        replica.record_fetch(max(0, end - 10), 0, leader_end=end, now_ms=now_ms, broker_epoch=1)
        assert replica.is_caught_up(end, now_ms, 2000)


@pytest.mark.parametrize("in_sync", [True, False])
def test_a_new_leader_forgets_and_an_old_one_does_not(in_sync: bool) -> None:
    replica = fetched(7)
    replica.reset(in_sync=in_sync, new_leader=False, leader_end=12, now_ms=90_000)
    assert (replica.log_end_offset, replica.broker_epoch) == (7, 4)
    assert replica.last_fetch_leader_end_offset == 12
    assert replica.is_caught_up(12, 90_000, 30_000) is in_sync
    replica.reset(in_sync=in_sync, new_leader=True, leader_end=12, now_ms=90_000)
    assert (replica.log_end_offset, replica.log_start_offset) == (UNKNOWN_OFFSET, UNKNOWN_OFFSET)
    assert replica.broker_epoch == -1
    assert replica.is_caught_up(12, 120_000, 30_000) is in_sync
    assert not replica.is_caught_up(12, 120_001, 30_000)


@pytest.mark.parametrize(
    ("broker", "eligible"),
    [
        (BrokerImage(2, "h", 1, epoch=4), True),
        (BrokerImage(2, "h", 1, epoch=5), False),
        (BrokerImage(2, "h", 1, epoch=4, fenced=True), False),
        (BrokerImage(2, "h", 1, epoch=4, in_controlled_shutdown=True), False),
        (None, False),
    ],
)
def test_which_replicas_may_join_the_isr(broker: BrokerImage | None, eligible: bool) -> None:
    rules = ReplicaRules()
    rules.brokers = {} if broker is None else {2: broker}
    assert rules.is_eligible(2, fetched(7)) is eligible
    assert not rules.is_eligible(2, ReplicaState())  # it has not fetched
    assert rules.is_alive(2) is (broker is not None and not broker.fenced)
