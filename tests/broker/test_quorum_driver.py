"""The replicated metadata log on real parts over simulated machines."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from typing import TYPE_CHECKING, Any

import pytest

from support.quorum_nodes import setting, settings_in, simulate
from tidelog.cluster.metadata import log_replay
from tidelog.cluster.metadata.features import initial_levels
from tidelog.cluster.metadata.log import NotControllerError
from tidelog.cluster.quorum.core import Timeouts
from tidelog_protocol.messages import metadata_records as tables
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from support.quorum_nodes import QuorumNode, QuorumWorld


@pytest.mark.parametrize("voters", [2, 3, 5])
def test_an_election_and_a_commit(voters: int) -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected(1.0)
        await leader.commit("a")
        assert leader.settings == {"a": "1"}
        await world.until(world.is_settled, 1.0)
        for node in world.nodes.values():
            image = node.metadata.image
            assert node.settings == {"a": "1"}
            assert image.features == initial_levels()
            assert image.controller_id == leader.node_id == node.metadata.leader_id
            assert image.leader_epoch == node.metadata.leader_epoch

    simulate(story, voters=voters)


def test_followers_do_not_commit() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        follower = next(node for node in world.live if node is not leader)
        with pytest.raises(NotControllerError):
            await follower.commit("a")
        with pytest.raises(NotControllerError):
            await follower.run(follower.metadata.commit())

    simulate(story)


def test_listeners_hear_nothing_before_publishing_starts() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await leader.commit("a")
        await world.until(world.is_settled)
        node = next(node for node in world.live if node is not leader)
        assert node.seen == []
        node.metadata.start_publishing()
        ((old, new),) = node.seen
        assert old is None
        assert new is node.metadata.image
        await leader.commit("b")
        await world.until(world.is_settled)
        assert node.seen[-1] == (new, node.metadata.image)

    simulate(story)


def registered(epoch: int) -> tables.RegisterBrokerRecord:
    return tables.RegisterBrokerRecord(broker_id=1, broker_epoch=epoch, log_dirs=[b"d" * 16])


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            registered(9),
            "another process has registered as broker 1, with epoch 9: .* 1, ends",
        ),
        (tables.UnregisterBrokerRecord(broker_id=1, broker_epoch=1), "broker 1 was unregistered"),
    ],
)
def test_an_image_without_this_life_of_the_broker_ends_it(record: Any, said: str) -> None:
    """It must not lead partitions in the name of another process with its id."""

    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await leader.run(leader.metadata.commit([registered(1)]))
        await world.until(world.is_settled)
        node = world.nodes[1]
        node.metadata.start_publishing(1)
        await leader.commit("a")
        await world.until(world.is_settled)
        before = list(node.seen)
        with contextlib.suppress(StorageError):  # the broker may be the leader itself
            await leader.run(leader.metadata.commit([record]))
        await world.until(lambda: bool(node.failures))
        assert re.search(said, str(node.failures[0]))
        assert node.seen == before
        assert node.metadata.has_failed
        node.failures.clear()

    simulate(story)


def test_a_node_of_another_cluster_ends_and_names_the_difference() -> None:
    async def story(world: QuorumWorld) -> None:
        stranger = world.nodes[3]
        stranger.cluster_id = "BBBBBBBBBBBBBBBBBBBBBA"
        await world.start()
        await world.until(lambda: bool(stranger.failures))
        assert re.search("cluster id BBBBBBBBBBBBBBBBBBBBBA, .* another", str(stranger.failures[0]))
        assert stranger.metadata.has_failed
        leader = await world.elected()
        await leader.commit("a")
        assert leader.node_id != 3
        stranger.failures.clear()

    simulate(story)


@pytest.mark.parametrize(
    "timeouts",
    [Timeouts(request_s=0.2), Timeouts(request_s=0.5), Timeouts(fetch_s=0.3)],
    ids=["request timeout 200 ms", "request timeout 500 ms", "fetch timeout 300 ms"],
)
def test_a_quorum_without_news_keeps_its_leader_however_short_its_timeouts(
    timeouts: Timeouts,
) -> None:
    """A fetch that waits for news must be answered before its timeouts are over."""

    async def story(world: QuorumWorld) -> None:
        for node in world.nodes.values():
            node.timeouts = timeouts
        await world.start()
        leader = await world.elected()
        await world.until(world.is_settled)
        epoch = leader.metadata.leader_epoch
        await asyncio.sleep(20)
        assert {node.metadata.leader_epoch for node in world.live} == {epoch}
        assert leader.metadata.is_leader

    simulate(story)


def test_a_killed_leader_is_replaced() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        first = await world.elected()
        await first.commit("a")
        first.kill()
        killed_at = world.loop.time()
        second = await world.elected()
        assert world.loop.time() - killed_at < 1.5
        await second.commit("b")
        assert second.settings == {"a": "1", "b": "1"}
        await first.start()
        await world.until(world.is_settled)
        assert first.settings == {"a": "1", "b": "1"}
        assert [node.node_id for node in world.live if node.metadata.is_leader] == [second.node_id]

    simulate(story)


def test_a_leader_that_stops_hands_over() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        first = await world.elected()
        await first.commit("a")
        await world.until(world.is_settled)
        at = world.loop.time()
        await first.stop()
        assert first.leadership[-1][0] is False
        second = await world.elected()
        assert world.loop.time() - at < 0.5
        await second.commit("b")
        await first.start()
        await world.until(world.is_settled)

    simulate(story)


def test_without_a_majority_nothing_is_committed() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        for node in world.live:
            if node is not leader:
                node.kill()
        with pytest.raises(NotControllerError):
            await leader.commit("lost")
        assert not leader.metadata.is_leader
        assert leader.leadership[-1][0] is False
        assert leader.settings == {}
        assert leader.metadata.latest is leader.metadata.image

    simulate(story)


def test_a_cut_off_leaders_records_are_cut_off() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        first = await world.elected()
        await first.commit("a")
        await world.until(world.is_settled)
        others = [node for node in world.live if node is not first]
        # Appended and written here, never sent.
        first.quorum.on_progress.clear()
        first.metadata.on_append = None
        first.metadata.append([setting("never")])
        first.kill()
        second = await world.elected()
        assert second in others
        await second.commit("b")
        await first.start()
        await world.until(world.is_settled)
        assert first.settings == {"a": "1", "b": "1"}
        data = [
            node.disk.files().read_bytes("data/__cluster_metadata-0/00000000000000000000.log")
            for node in world.live
        ]
        assert data[0] == data[1] == data[2]

    simulate(story)


def test_an_observer_follows() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await leader.commit("a")
        await world.until(world.is_settled)
        observer = world.nodes[4]
        assert observer.settings == {"a": "1"}
        leader.kill()
        second = await world.elected()
        await second.commit("b")
        await world.until(lambda: observer.settings == {"a": "1", "b": "1"})

    simulate(story, observers=1)


def test_waiting_and_catching_up() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await world.until(world.is_settled)
        follower = next(node for node in world.live if node is not leader)
        before = follower.metadata.image.offset
        waiting = follower.spawn(follower.metadata.wait_for(before + 1))
        await asyncio.sleep(1)
        assert not waiting.done()
        await leader.commit("a")
        await follower.run(follower.quorum.catch_up())
        assert follower.settings == {"a": "1"}
        await waiting
        await leader.run(leader.quorum.catch_up())

    simulate(story)


def test_a_follower_that_is_behind_applies_some_operations_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_replay, "RECORDS_AT_ONCE", 6)

    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        follower = next(node for node in world.live if node is not leader)
        follower.metadata.start_publishing()
        follower.kill()
        for number in range(8):
            await leader.run(
                leader.metadata.commit([setting(f"{number}.{part}") for part in range(4)])
            )
        large = [setting(f"large.{part}") for part in range(50)]
        await leader.run(leader.metadata.commit(large))
        await follower.start()
        follower.seen.clear()
        follower.metadata.start_publishing()
        await world.until(world.is_settled)
        shown = [len(settings_in(image)) for _, image in follower.seen]
        assert shown == sorted(shown)
        assert all(count % 4 == 0 for count in shown[:-1]), "an operation is whole"
        assert shown[-1] == 82
        assert len(shown) >= 5
        assert follower.metadata.has_applied_all

    simulate(story)


@pytest.mark.parametrize("seed", range(25))
def test_kills_and_power_failures_lose_no_committed_operation(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    if seed % 2:  # each record is applied in a turn of its own
        monkeypatch.setattr(log_replay, "RECORDS_AT_ONCE", 1)

    async def story(world: QuorumWorld) -> None:
        acknowledged: list[str] = []
        count = 0
        tasks: list[asyncio.Task[None]] = []

        async def write(node: QuorumNode, name: str) -> None:
            try:
                await node.metadata.commit([setting(f"{name}.{part}") for part in range(3)])
            except NotControllerError:
                return
            acknowledged.append(name)

        await world.start()
        for _ in range(12):
            for _ in range(chance.randint(1, 6)):
                leader = world.leader()
                if leader is not None:
                    count += 1
                    tasks.append(leader.spawn(write(leader, f"op{count}")))
                await asyncio.sleep(chance.choice((0.001, 0.01, 0.3, 1.0)))
                if chance.random() < 0.2:
                    world.network.reset(chance.randrange(100))
            victim = chance.choice(list(world.nodes.values()))
            if victim.alive:
                if chance.random() < 0.2:
                    await victim.stop()
                else:
                    victim.kill(power=chance.random() < 0.5)
            elif chance.random() < 0.7:
                await victim.start()
        for node in world.nodes.values():
            if not node.alive:
                await node.start()
        await world.until(world.is_settled)
        for node in world.live:
            for name in acknowledged:
                assert all(f"{name}.{part}" in node.settings for part in range(3)), name
            assert len(node.settings) % 3 == 0, "an operation is whole"
        assert len({str(node.settings) for node in world.live}) == 1

    simulate(story, seed)


def test_a_seed_is_replayed() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await leader.commit("a")
        leader.kill(power=True)
        await world.elected()

    assert simulate(story, 5) == simulate(story, 5)


def test_a_full_disk_is_waited_out() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await world.until(world.is_settled)
        follower = next(node for node in world.live if node is not leader)
        follower.disk.capacity_bytes = follower.disk.used_bytes()
        await leader.commit("a")
        await asyncio.sleep(5)
        assert follower.settings == {}
        follower.disk.capacity_bytes = None
        await world.until(world.is_settled)
        assert follower.settings == {"a": "1"}

    simulate(story)


def test_a_node_that_cannot_write_lets_another_lead() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        first = await world.elected()
        await world.until(world.is_settled)
        second, third = [node for node in world.live if node is not first]
        third.kill()
        second.disk.capacity_bytes = second.disk.used_bytes() + 400  # for votes, not for records
        first.kill()
        await third.start()
        await world.until(lambda: world.leader() is third)
        await first.start()
        await third.commit("a")
        second.disk.capacity_bytes = None
        await world.until(world.is_settled)

    simulate(story)


@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_cannot_note_its_epoch_lets_another_lead(seed: int) -> None:
    """It stayed leader, without the first record of its epoch: nothing was committed any more."""

    async def story(world: QuorumWorld) -> None:
        await world.start()
        first = await world.elected()
        await world.until(world.is_settled)
        second, third = [node for node in world.live if node is not first]
        third.kill()
        await first.commit("a")
        await world.until(lambda: second.settings == {"a": "1"})
        epochs = second.metadata.log.epochs
        epochs.move_to("nowhere")  # its checkpoint cannot be written
        first.kill()
        await third.start()  # which has less and can only vote
        await world.until(lambda: epochs.latest_epoch > first.metadata.leader_epoch)
        await first.start()
        await world.until(lambda: world.leader() is first)
        assert second.failures  # a broker ends when its metadata log's disk fails
        second.failures.clear()
        second.kill()
        await second.start()
        await first.commit("b")
        await world.until(world.is_settled)

    simulate(story, seed)


def test_records_that_rot_before_they_count_are_not_believed() -> None:
    """They were read again from the disk when they were committed, and nobody looked."""

    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await world.until(world.is_settled)
        follower = next(node for node in world.live if node is not leader)
        take = follower.metadata.append_fetched

        def take_and_rot(records: memoryview, epoch: int) -> None:
            take(records, epoch)
            path = max(path for path in follower.disk.names if path.endswith(".log"))
            size = len(follower.disk.names[path].data)
            follower.disk.flip(path, size - 3, 0)  # in the value: it still reads well

        follower.metadata.append_fetched = take_and_rot  # type: ignore[method-assign]
        await leader.commit("a")
        await world.until(lambda: follower.failures)
        assert "damaged at" in str(follower.failures.pop())
        assert follower.settings == {}
        await leader.commit("b")

    simulate(story)


def test_a_vote_that_lacks_a_descriptor_is_not_given_and_no_failure_of_the_disk() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await leader.commit("a")
        await world.until(world.is_settled)
        poor = next(node for node in world.live if node is not leader)
        poor.disk.descriptors.limit = 0
        epoch = leader.metadata.leader_epoch
        leader.kill()
        await asyncio.sleep(5.0)
        assert world.leader() is None
        assert not poor.failures
        poor.disk.descriptors.calm()
        successor = await world.elected()
        assert successor.metadata.leader_epoch > epoch
        await successor.commit("b")
        await world.until(world.is_settled)

    simulate(story)
