"""Static members of a classic group (KIP-345, KIP-814)."""

from __future__ import annotations

import pytest

from broker.group_harness import NONE, Harness
from tidelog.coordinators.groups.classic.group import GroupState
from tidelog.coordinators.groups.classic.member import JoinResult, StaticMemberStored
from tidelog_protocol.errors import ErrorCode


class TestStaticMembers:  # KIP-345
    def stable(self) -> Harness:
        harness = Harness()
        harness.join("s", instance="i-1")
        harness.join("t", instance="i-2")
        harness.wait(0)
        harness.sync_all("s", "t")
        return harness

    def test_are_never_asked_to_come_again(self) -> None:
        harness = Harness()
        harness.join("s", instance="i-1", requires_known_member_id=True)
        harness.wait(0)
        assert harness.joined["s"][0].error is NONE

    @pytest.mark.parametrize("skips", [False, True])
    def test_a_leader_comes_back_to_a_stable_group_without_rebalance(self, skips: bool) -> None:
        harness = self.stable()
        old = harness.member("s")
        harness.join("s", instance="i-1", supports_skipping_assignment=skips)
        (write,) = harness.writes
        assert isinstance(write.then, StaticMemberStored)
        assert len(harness.joined["s"]) == 1
        harness.store()
        result = harness.joined["s"][-1]
        assert (result.error, result.generation, result.skip_assignment) == (NONE, 1, skips)
        assert result.member_id != old
        assert harness.group.state is GroupState.STABLE
        # KIP-814: from v9 it leads under its new id; before, it must not assign again.
        assert result.leader == (result.member_id if skips else old)
        assert len(result.members) == (2 if skips else 0)
        harness.sync("s", result.member_id, instance="i-1")
        assert harness.synced["s"][-1].assignment == b"s"

    def test_the_old_id_is_fenced(self) -> None:
        harness = self.stable()
        old, group = harness.member("s"), harness.group
        harness.join("s", instance="i-1")
        harness.store()
        fenced = ErrorCode.FENCED_INSTANCE_ID
        assert group.heartbeat(old, "i-1", 1, harness.now) is fenced
        assert group.validate_commit(old, "i-1", 1, harness.now) is fenced
        harness.sync("x", old, instance="i-1")
        harness.join("y", old, instance="i-1")
        assert harness.synced["x"][0].error is fenced
        assert harness.joined["y"] == [JoinResult(fenced, old)]
        assert group.heartbeat(old, None, 1, harness.now) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_parked_join_of_the_old_id_is_fenced(self) -> None:
        harness = self.stable()
        harness.join("t", harness.member("t"), "i-2", protocols=[("range", b"other")])
        assert harness.group.state is GroupState.PREPARING_REBALANCE
        old = harness.member("t")
        harness.join("u", instance="i-2")
        assert harness.joined["t"][-1].error is ErrorCode.FENCED_INSTANCE_ID
        assert harness.joined["t"][-1].member_id == old

    def test_a_failed_write_gives_the_old_id_back(self) -> None:
        harness = self.stable()
        old = harness.member("s")
        harness.join("s", instance="i-1", session_timeout_ms=7000)
        harness.store(ErrorCode.NOT_COORDINATOR)
        assert harness.joined["s"][-1] == JoinResult(ErrorCode.NOT_COORDINATOR, "")
        assert harness.group.members.static["i-1"] == old
        assert harness.group.members[old].session_timeout_ms == 10_000
        assert harness.group.members.leader == old

    def test_a_new_protocol_or_an_unfinished_generation_rebalances(self) -> None:
        harness = Harness()
        harness.join("s", instance="i-1", protocols=["range", "sticky"])
        harness.wait(0)
        harness.sync_all("s")
        harness.join("s", instance="i-1", protocols=["sticky", "range"])
        assert harness.group.generation == 2
        assert harness.group.protocol_name == "sticky"
        harness.join("s", instance="i-1", protocols=["sticky", "range"])  # before it synced
        assert harness.group.generation == 3

    def test_one_that_is_away_holds_its_place_through_a_rebalance(self) -> None:
        harness = self.stable()
        harness.join("t", harness.member("t"), "i-2", protocols=[("range", b"x")])
        harness.wait(9000)
        harness.group.heartbeat(harness.member("s"), "i-1", 1, harness.now)
        for _ in range(6):
            harness.wait(9000)
            harness.group.heartbeat(harness.member("s"), "i-1", 1, harness.now)
        assert harness.group.generation == 2  # the rebalance time-out ended the join phase
        assert len(harness.group.members) == 2
        assert harness.group.members.leader == harness.member("t")
