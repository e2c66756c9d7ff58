"""Voters that the metadata log names: added, removed and updated, beside faults (KIP-853)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from support.quorum_nodes import simulate
from tidelog.api.quorum import view_of
from tidelog.cluster.metadata.voters import Voter
from tidelog.cluster.quorum.joining import keep_entry
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from support.quorum_nodes import QuorumNode, QuorumWorld
    from tidelog.cluster.quorum.voter_changes import Outcome


async def add(leader: QuorumNode, node: QuorumNode, *, waits: bool = True) -> Outcome:
    outcome: Outcome = await leader.run(leader.changes.add(node.own, waits=waits))
    return outcome


async def remove(leader: QuorumNode, node: QuorumNode) -> Outcome:
    outcome: Outcome = await leader.run(leader.changes.remove(node.node_id, node.directory_id))
    return outcome


def voters_of(node: QuorumNode) -> list[int]:
    return list(node.metadata.voters)


def test_a_standalone_voter_gets_others_and_loses_a_majority_of_them() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        first = await world.elected()
        await first.commit("a")
        for node_id in (2, 3):
            await world.until(world.is_settled)
            assert (await add(first, world.nodes[node_id])).error is ErrorCode.NONE
        await world.until(world.is_settled)
        assert [voters_of(node) for node in world.live] == [[1, 2, 3]] * 3
        world.nodes[3].kill()
        await first.commit("b")
        world.nodes[2].kill()
        late = asyncio.ensure_future(first.commit("c"))
        await asyncio.sleep(1)
        assert not late.done(), "two of three are needed"
        late.cancel()
        await world.nodes[3].start()
        leader = await world.elected()
        await world.until(world.is_settled)
        assert {"a", "b"} <= leader.settings.keys()

    simulate(story, voters=1, observers=2, is_named=True)


def test_a_leader_that_removes_itself_resigns_when_that_is_committed() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        first = await world.elected()
        await world.until(world.is_settled)
        epoch = first.metadata.leader_epoch
        assert (await remove(first, first)).error is ErrorCode.NONE
        second = await world.until(lambda: _other_leader(world, first))
        assert second.metadata.leader_epoch > epoch
        await second.commit("b")
        await world.until(lambda: first.settings == {"b": "1"})
        others = sorted({1, 2, 3} - {first.node_id})
        assert [voters_of(node) for node in world.live] == [others] * 3
        assert not first.quorum.core.stands

    simulate(story, is_named=True)


def test_a_removed_voter_that_has_not_fetched_in_this_epoch_is_no_observer() -> None:
    """The id of its directory is unknown. Kafka: LeaderState.cleanupInactiveObservers."""

    async def story(world: QuorumWorld) -> None:
        await world.start()
        first = await world.elected()
        await world.until(world.is_settled)
        gone = next(node for node in world.live if node is not first)
        gone.kill()
        first.kill()
        await first.start()
        leader = await world.elected()
        await leader.commit("a")
        assert (await remove(leader, gone)).error is ErrorCode.NONE
        assert view_of(leader.quorum).observers == []

    simulate(story, is_named=True)


def _other_leader(world: QuorumWorld, node: QuorumNode) -> QuorumNode | None:
    leader = world.leader()
    return None if leader is node else leader


def test_a_removed_leader_whose_record_is_not_committed_is_elected_again() -> None:
    """Raft dissertation, 4.2.2: of 1 and 2 only 2 has the record that removes it, and 1 alone is
    the majority that must have it."""

    async def story(world: QuorumWorld) -> None:
        await world.start()
        first = await world.elected()
        await world.until(world.is_settled)
        other = next(node for node in world.live if node is not first)
        links = [(first.host, other.host), (other.host, first.host)]
        world.network.cut(links)
        removing = first.spawn(first.changes.remove(first.node_id, first.directory_id))
        await asyncio.sleep(0.1)
        first.kill()
        removing.cancel()
        world.network.heal(links)
        await first.start()
        assert voters_of(first) == [other.node_id]
        assert voters_of(other) == [1, 2]
        await world.until(lambda: _other_leader(world, first))
        await world.until(world.is_settled)
        assert [voters_of(node) for node in world.live] == [[other.node_id]] * 2

    simulate(story, voters=2, is_named=True)


def test_one_change_at_a_time() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await world.until(world.is_settled)
        for node in world.live:
            if node not in (leader, world.nodes[4], world.nodes[5]):
                node.kill()
        early = await add(leader, world.nodes[4], waits=False)
        assert early.error is ErrorCode.NONE
        assert leader.metadata.voter_set[-1].node_id == 4
        for outcome in (await add(leader, world.nodes[5]), await remove(leader, world.nodes[2])):
            assert outcome.error is ErrorCode.REQUEST_TIMED_OUT
            assert "commit the latest voter change" in outcome.message

    simulate(story, observers=2, is_named=True)


@pytest.mark.parametrize(
    ("node_id", "directory_id", "error"),
    [
        (2, b"\2", ErrorCode.DUPLICATE_VOTER),
        (4, b"\2" * 16, ErrorCode.REQUEST_TIMED_OUT),  # fetches from another directory
        (7, b"\7" * 16, ErrorCode.REQUEST_TIMED_OUT),  # does not answer
    ],
)
def test_a_voter_is_not_added(node_id: int, directory_id: bytes, error: ErrorCode) -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await world.until(world.is_settled)
        voter = Voter(node_id, directory_id, (("CONTROLLER", f"node{node_id}", 9093),))
        outcome = await leader.run(leader.changes.add(voter, waits=True))
        assert outcome.error is error
        assert voters_of(leader) == [1, 2, 3]

    simulate(story, observers=1, is_named=True)


def test_a_voter_that_is_none_is_not_removed() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await world.until(world.is_settled)
        for node_id, directory_id in ((4, world.nodes[4].directory_id), (2, b"\7" * 16)):
            outcome = await leader.run(leader.changes.remove(node_id, directory_id))
            assert outcome.error is ErrorCode.VOTER_NOT_FOUND

    simulate(story, observers=1, is_named=True)


def test_a_voter_reports_its_new_address() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await world.until(world.is_settled)
        node = world.nodes[1 if leader.node_id != 1 else 2]
        moved = node.own._replace(endpoints=(("CONTROLLER", "elsewhere", 9093),))
        assert leader.changes.update(moved._replace(levels=(0, 0))) is ErrorCode.INVALID_REQUEST
        unknown = moved._replace(directory_id=b"\7" * 16)
        assert leader.changes.update(unknown) is ErrorCode.VOTER_NOT_FOUND
        assert leader.changes.update(moved) is ErrorCode.NONE
        await world.until(lambda: moved in node.metadata.image.voters)

    simulate(story, is_named=True)


def test_a_voter_that_lost_its_disk_votes_as_none() -> None:
    """It has the id of a voter and another directory."""

    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await leader.commit("a")
        await world.until(world.is_settled)
        victim = next(node for node in world.live if node is not leader)
        victim.kill()
        victim.disk.change("remove_tree", "data")
        victim.directory_id = b"\7" * 16
        victim.format(())
        await victim.start()
        await world.until(lambda: victim.settings == {"a": "1"})
        assert not victim.quorum.core.is_voter
        assert victim.node_id not in leader.quorum.core.progress or (
            leader.quorum.core.progress[victim.node_id].directory_id != victim.directory_id
        )
        old = await leader.run(
            leader.changes.remove(victim.node_id, bytes(15) + bytes([victim.node_id]))
        )
        assert old.error is ErrorCode.NONE
        await world.until(lambda: victim.node_id in leader.quorum.core.progress)
        await world.until(world.is_settled)
        await asyncio.sleep(1)
        assert (await add(leader, victim)).error is ErrorCode.NONE
        await world.until(lambda: victim.quorum.core.is_voter)

    simulate(story, is_named=True)


def test_voters_are_in_snapshots_and_found_again() -> None:
    async def story(world: QuorumWorld) -> None:
        for node in world.nodes.values():
            node.options = {"snapshot_bytes": 300}
        await world.start()
        world.nodes[3].kill()
        leader = await world.elected()
        await world.until(world.is_settled)
        assert (await add(leader, world.nodes[2])).error is ErrorCode.NONE
        for number in range(30):
            await leader.commit(f"op{number}")
            await asyncio.sleep(0.05)
        await world.until(lambda: leader.metadata.log.log_start_offset > 10)
        await world.nodes[3].start()
        await world.until(world.is_settled)
        assert voters_of(world.nodes[3]) == [1, 2]
        for node in world.live:
            node.kill()
        for node in world.nodes.values():
            await node.start()
        leader = await world.elected()
        await world.until(world.is_settled)
        assert [voters_of(node) for node in world.live] == [[1, 2]] * 3
        assert leader.metadata.image.features.get("kraft.version") is None

    simulate(story, voters=1, observers=2, is_named=True)


def test_a_voter_that_starts_with_other_addresses_reports_them_by_itself() -> None:
    """A follower to the leader, a leader in the first records of its epoch."""

    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await world.until(world.is_settled)
        moved = next(node for node in world.live if node is not leader)
        for node in (moved, leader):
            node.kill()
            node.more_endpoints = (("NEW", node.host, 1),)
            await node.start()
            entry = node.spawn(keep_entry(node.quorum, 0.3, joins=False))
            await world.until(lambda node=node: node.own in node.metadata.image.voters)
            entry.cancel()
        await world.until(world.is_settled)
        for node in world.live:
            assert {world.nodes[1].own, world.nodes[2].own} == set(node.metadata.image.voters)

    simulate(story, voters=2, is_named=True)


async def upgrade(leader: QuorumNode, *, validate_only: bool = False) -> str | None:
    changes, addresses = leader.changes, leader.world.addresses
    problem: str | None = await leader.run(
        changes.name_static(addresses, validate_only=validate_only)
    )
    return problem


def test_static_voters_get_into_the_log_and_change_then() -> None:
    """`kraft.version` 0 to 1; the settings still name the voters, as those of Kafka may."""

    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await leader.commit("a")
        await world.until(world.is_settled)
        world.nodes[4].kill()
        assert (await add(leader, world.nodes[4])).error is ErrorCode.UNSUPPORTED_VERSION
        assert await upgrade(leader, validate_only=True) is None
        assert not leader.metadata.names_voters
        assert await upgrade(leader) is None
        assert await upgrade(leader) is None, "again: nothing to do"
        await leader.commit("b")
        await world.nodes[4].start()
        await world.until(world.is_settled)
        for node in world.live:
            assert set(node.metadata.image.voters) == {world.nodes[n].own for n in (1, 2, 3)}
            text = node.disk.files().read_bytes("data/__cluster_metadata-0/quorum-state")
            assert b'"data_version":1' in text
        assert (await add(leader, world.nodes[4])).error is ErrorCode.NONE
        gone = next(node for node in world.nodes.values() if node not in (leader, world.nodes[4]))
        assert (await remove(leader, gone)).error is ErrorCode.NONE
        await world.until(world.is_settled)
        for node in world.live:
            node.kill(power=True)
        for node in world.nodes.values():
            await node.start()
        await world.elected()
        await world.until(world.is_settled)
        left = sorted({1, 2, 3, 4} - {gone.node_id})
        assert [voters_of(node) for node in world.live] == [left] * 4

    simulate(story, voters=3, observers=1)


def test_a_voter_that_is_down_refuses_the_upgrade() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await world.until(world.is_settled)
        down = next(node for node in world.live if node is not leader)
        down.kill()
        assert await upgrade(leader) == (
            "Invalid upgrade of kraft.version to KRAFT_VERSION_1 because not all of the voters"
            " support it"
        )
        assert not leader.metadata.names_voters

    simulate(story)


def test_the_only_voter_of_the_settings_gets_others() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        assert await upgrade(leader) is None
        await leader.commit("a")
        await world.until(world.is_settled)
        assert (await add(leader, world.nodes[2])).error is ErrorCode.NONE
        await world.until(world.is_settled)
        assert (await remove(leader, leader)).error is ErrorCode.NONE
        await world.until(lambda: world.nodes[2].metadata.is_leader)
        await world.nodes[2].commit("b")
        await world.until(world.is_settled)
        assert [voters_of(node) for node in world.live] == [[2], [2]]

    simulate(story, voters=1, observers=1)


@pytest.mark.parametrize("seed", range(4))
def test_an_upgrade_that_is_lost_leaves_the_voters_of_the_settings(seed: int) -> None:
    """Its leader dies with its records on no other disk: later leaders cut them."""

    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await world.until(world.is_settled)

        async def append() -> None:
            leader.metadata.append_voters(tuple(world.nodes[n].own for n in (1, 2, 3)))

        await leader.run(append())
        assert leader.metadata.names_voters
        await asyncio.sleep(0.001 * seed)
        leader.kill()
        await world.elected()
        await leader.start()
        await world.until(world.is_settled)
        named = {node.metadata.names_voters for node in world.live}
        assert len(named) == 1
        assert {node.quorum.core.is_dynamic for node in world.live} == named
        new = await world.elected()
        await new.commit("later")
        await world.until(world.is_settled)

    simulate(story, seed)
