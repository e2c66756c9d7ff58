"""`PartitionDraft`: elections, ends of reassignments, eligible replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.controller_cluster import TOPIC_ID, directory, partition
from tidelog.cluster.controller.changes import (
    RECOVERED,
    RECOVERING,
    Election,
    PartitionDraft,
    Rules,
)
from tidelog.cluster.metadata.replay import merge_partition

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import PartitionImage


def changed(
    old: PartitionImage,
    alive: tuple[int, ...] = (1, 2, 3, 4, 5),
    *,
    election: Election = Election.ONLINE,
    eligible: bool = False,
    min_isr: int = 1,
    **wanted: Any,
) -> PartitionImage | None:
    """What becomes of a partition; None if nothing changes."""
    rules = Rules(
        may_lead=lambda _, node_id: node_id in alive,
        default_directory=directory,
        min_isr=min_isr,
        eligible_enabled=eligible,
        election=election,
    )
    draft = PartitionDraft(old, rules)
    for name, value in wanted.items():
        setattr(draft, name, value)
    record = draft.record(TOPIC_ID)
    return None if record is None else merge_partition(old, record)


def summary(new: PartitionImage | None) -> tuple[int, tuple[int, ...], int, int]:
    """Leader, ISR, and how far the leader and partition epochs rose."""
    assert new is not None
    return new.leader, new.isr, new.leader_epoch - 5, new.partition_epoch - 7


def test_nothing_wanted_nothing_changed() -> None:
    assert changed(partition()) is None
    assert changed(partition(), election=Election.UNCLEAN) is None
    assert changed(partition(), election=Election.PREFERRED) is None


@pytest.mark.parametrize(
    ("isr", "alive", "result"),
    [
        ([2, 3], (2, 3), (2, (2, 3), 1, 1)),  # the leader left: the first replica in sync
        ([1, 3], (1, 3), (1, (1, 3), 0, 1)),  # another left: no new leader epoch
        ([3], (3,), (3, (3,), 1, 1)),
        ([3], (), (-1, (3,), 1, 1)),  # in sync, but not alive
    ],
)
def test_clean_elections(
    isr: list[int], alive: tuple[int, ...], result: tuple[int, tuple[int, ...], int, int]
) -> None:
    assert summary(changed(partition(), alive, isr=isr)) == result


def test_the_order_is_that_of_the_replicas_not_of_the_isr() -> None:
    old = partition((3, 1, 2), isr=(1, 2, 3), leader=3)
    assert summary(changed(old, (1, 2), isr=[2, 1])) == (1, (2, 1), 1, 1)


def test_the_last_member_stays_in_the_isr_without_a_leader() -> None:
    gone = changed(partition(isr=(1,)), (2, 3), isr=[])
    assert summary(gone) == (-1, (1,), 1, 1)
    assert gone is not None
    assert changed(gone, (2, 3)) is None, "nobody in sync is alive: nothing to do"
    back = changed(gone, (1, 2, 3))
    assert summary(back) == (1, (1,), 2, 2)


def test_unclean_elections_take_the_first_that_lives_and_mark_it() -> None:
    old = partition(isr=(1,), leader=-1)
    new = changed(old, (2, 3), election=Election.UNCLEAN)
    assert summary(new) == (2, (2,), 1, 1)
    assert new is not None
    assert new.leader_recovery_state == RECOVERING
    again = changed(new, (3,), election=Election.UNCLEAN, isr=[])
    assert summary(again) == (3, (3,), 2, 2)
    assert again is not None
    assert again.leader_recovery_state == RECOVERING
    recovered = changed(again, (3,), recovery_state=RECOVERED)
    assert summary(recovered) == (3, (3,), 2, 3)
    assert recovered is not None
    assert recovered.leader_recovery_state == RECOVERED


def test_unclean_elections_prefer_in_sync_replicas() -> None:
    new = changed(partition(isr=(1, 3)), (2, 3), election=Election.UNCLEAN, isr=[3])
    assert summary(new) == (3, (3,), 1, 1)
    assert new is not None
    assert new.leader_recovery_state == RECOVERED


def test_preferred_elections() -> None:
    old = partition(leader=2)
    assert summary(changed(old, election=Election.PREFERRED)) == (1, (1, 2, 3), 1, 1)
    assert changed(old, (2, 3), election=Election.PREFERRED) is None
    behind = partition(isr=(2, 3))
    assert changed(behind, election=Election.PREFERRED) is None, "not in sync"
    assert changed(old, election=Election.ONLINE) is None, "the present leader will do"


def test_a_reassignment_ends_with_the_last_new_replica_in_sync() -> None:
    old = partition((4, 2, 3, 1), isr=(1, 2, 3), adding_replicas=(4,), removing_replicas=(1,))
    assert changed(old, isr=[1, 2, 3]) is None
    new = changed(old, isr=[1, 2, 3, 4])
    assert summary(new) == (4, (2, 3, 4), 1, 1)
    assert new is not None
    assert (new.replicas, new.adding_replicas, new.removing_replicas) == ((4, 2, 3), (), ())
    assert new.directories == (directory(4), directory(2), directory(3))


def test_a_reassignment_ends_although_one_that_stays_is_out_of_sync() -> None:
    """Unless it removes more than it adds (PartitionReassignmentReplicas)."""
    old = partition((4, 2, 3, 1), isr=(1, 2), adding_replicas=(4,), removing_replicas=(1,))
    new = changed(old, isr=[1, 2, 4])
    assert summary(new) == (4, (2, 4), 1, 1)
    assert new is not None
    assert (new.replicas, new.removing_replicas) == ((4, 2, 3), ())
    two = partition((4, 3, 1, 2), isr=(1, 2), adding_replicas=(4,), removing_replicas=(1, 2))
    new = changed(two, isr=[1, 2, 4])
    assert summary(new) == (1, (1, 2, 4), 0, 1)
    assert new is not None
    assert new.removing_replicas == (1, 2)


def test_a_replica_taken_away_begins_a_leader_epoch() -> None:
    old = partition((1, 2, 3), isr=(1, 2), removing_replicas=(3,))
    assert summary(changed(old, isr=[1, 2])) == (1, (1, 2), 1, 1)


def test_new_replicas_get_directories() -> None:
    new = changed(partition((1, 2)), replicas=[1, 2, 5], adding=[5])
    assert new is not None
    assert new.directories == (directory(1), directory(2), directory(5))
    moved = changed(partition((1, 2), directories=(directory(1), bytes(16))), refreshed=[2])
    assert moved is not None
    assert moved.directories == (directory(1), directory(2))
    assert moved.leader_epoch == 5


# ---- eligible leader replicas (KIP-966) -------------------------------------------------------


def test_a_replica_that_leaves_an_isr_below_the_minimum_stays_eligible() -> None:
    new = changed(partition(), (1, 2), eligible=True, min_isr=2, isr=[1, 2])
    assert new is not None
    assert new.eligible_leader_replicas == ()
    alone = changed(new, (1,), eligible=True, min_isr=2, isr=[1])
    assert alone is not None
    assert (alone.isr, alone.eligible_leader_replicas) == ((1,), (2,))
    nobody = changed(alone, (), eligible=True, min_isr=2, isr=[])
    assert nobody is not None
    assert (nobody.leader, nobody.isr) == (-1, ())
    assert nobody.eligible_leader_replicas == (1, 2)
    assert nobody.last_known_eligible_leader_replicas == (1,)
    back = changed(nobody, (2,), eligible=True, min_isr=2)
    assert back is not None
    assert (back.leader, back.isr, back.leader_recovery_state) == (2, (2,), RECOVERED)
    assert back.eligible_leader_replicas == (1,)
    assert back.last_known_eligible_leader_replicas == ()
    full = changed(back, (1, 2), eligible=True, min_isr=2, isr=[2, 1])
    assert full is not None
    assert full.eligible_leader_replicas == ()


def test_an_unclean_shutdown_ends_eligibility() -> None:
    old = partition(isr=(), leader=-1, eligible_leader_replicas=(2, 3))
    new = changed(old, (), eligible=True, min_isr=2, isr=[], unclean_shutdowns=(2,))
    assert new is not None
    assert new.eligible_leader_replicas == (3,)


def test_a_removed_replica_is_not_eligible() -> None:
    """It would be again once it is added with an empty log. Apache Kafka 4.3.1 keeps it."""
    moving = {"replicas": (2, 3, 1), "adding_replicas": (3,), "removing_replicas": (2,)}
    old = partition(isr=(2,), leader=2, eligible_leader_replicas=(1,))._replace(**moving)
    new = changed(old, eligible=True, min_isr=2, isr=[2, 3])
    assert new is not None
    assert (new.replicas, new.leader, new.isr) == ((3, 1), 3, (3,))
    assert new.eligible_leader_replicas == (1,)


def test_the_last_known_leader_leads_if_no_other_replica_is_left() -> None:
    old = partition(isr=(), leader=-1, last_known_eligible_leader_replicas=(2,))
    assert changed(old, (1, 3), eligible=True, min_isr=2) is None
    new = changed(old, (1, 2, 3), eligible=True, min_isr=2)
    assert new is not None
    assert (new.leader, new.isr, new.leader_recovery_state) == (2, (2,), RECOVERING)
    assert new.last_known_eligible_leader_replicas == ()


def test_a_leader_that_goes_is_recorded_even_if_its_isr_stays() -> None:
    """Kafka 4.3's maybeUpdateLastKnownLeader looks at the leader alone."""
    new = changed(partition(isr=(1,)), (), eligible=True)
    assert new is not None
    assert (new.leader, new.isr) == (-1, (1,))
    assert new.last_known_eligible_leader_replicas == (1,)
    later = changed(new, (), eligible=True, min_isr=2, isr=[], unclean_shutdowns=(1,))
    assert later is not None
    assert later.eligible_leader_replicas == ()
    assert later.last_known_eligible_leader_replicas == (1,)


def test_eligible_replicas_go_when_the_feature_is_off() -> None:
    new = changed(partition(eligible_leader_replicas=(3,), isr=(1, 2)))
    assert new is not None
    assert new.eligible_leader_replicas == ()
