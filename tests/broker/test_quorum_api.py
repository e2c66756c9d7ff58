"""The quorum's requests over the wire: refusals, long polls, snapshots, DescribeQuorum."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.quorum_nodes import CLUSTER_ID, PORT, QuorumNode, simulate
from tidelog.cluster.metadata.quorum_state import QuorumStateError
from tidelog.cluster.metadata.settings import METADATA_TOPIC_ID
from tidelog.network.peers import PeerChannel, PeerError
from tidelog_protocol.batch import iter_batches
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchRequest
from tidelog_protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    VoteRequest,
)

if TYPE_CHECKING:
    from support.quorum_nodes import QuorumWorld

TOPIC = "__cluster_metadata"


class Outsider:
    """Asks one node what it likes."""

    def __init__(self, world: QuorumWorld, node: QuorumNode) -> None:
        self.channel = PeerChannel(
            world.network.door("outside"), node.clock, (node.host, PORT), client_id="o"
        )

    async def ask(self, request: Any, version: int | None = None) -> Any:
        return await self.channel.ask(request, version, timeout_s=5)

    async def fetch(self, version: int | None = None, **fields: Any) -> Any:
        """The one partition of a fetch's answer."""
        wait_ms = fields.pop("max_wait_ms", 0)
        replica_id = fields.pop("replica_id", -1)
        fields.setdefault("fetch_offset", 0)
        fields.setdefault("last_fetched_epoch", 0)
        fields.setdefault("partition_max_bytes", 1 << 20)
        partition = FetchRequest.FetchPartition(partition=0, **fields)
        topic = FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])
        request = FetchRequest(
            cluster_id=CLUSTER_ID,
            replica_state=FetchRequest.ReplicaState(replica_id=replica_id),
            max_wait_ms=wait_ms,
            topics=[topic],
        )
        response = await self.ask(request, version)
        assert response.error_code == 0
        return response.responses[0].partitions[0]

    async def describe(self, version: int = 2) -> Any:
        topic = DescribeQuorumRequest.TopicData(
            topic_name=TOPIC,
            partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)],
        )
        response = await self.ask(DescribeQuorumRequest(topics=[topic]), version)
        assert response.error_code == 0
        return response.topics[0].partitions[0]


def vote(
    cluster_id: str | None = CLUSTER_ID,
    voter_id: int = -1,
    topic: str = TOPIC,
    *,
    epoch: int = 1,
    pre_vote: bool = False,
) -> VoteRequest:
    partition = VoteRequest.PartitionData(
        partition_index=0, replica_epoch=epoch, replica_id=2, pre_vote=pre_vote
    )
    topics = [VoteRequest.TopicData(topic_name=topic, partitions=[partition])]
    return VoteRequest(cluster_id=cluster_id, voter_id=voter_id, topics=topics)


def test_requests_of_another_cluster_or_malformed_get_kafkas_error() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        outsider = Outsider(world, leader)
        other = "B" * 22
        topics = vote().topics
        for request in (
            vote(other),
            BeginQuorumEpochRequest(cluster_id=other),
            EndQuorumEpochRequest(cluster_id=other),
            FetchRequest(cluster_id=other),
            FetchSnapshotRequest(cluster_id=other),
        ):
            response = await outsider.ask(request)
            assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        for request in (
            VoteRequest(topics=[*topics, *topics]),
            vote(topic="x"),
            BeginQuorumEpochRequest(),
            EndQuorumEpochRequest(),
            FetchRequest(),
            FetchSnapshotRequest(),
        ):
            response = await outsider.ask(request)
            assert response.error_code == ErrorCode.INVALID_REQUEST
        refused = (await outsider.ask(vote(voter_id=77))).topics[0].partitions[0]
        assert refused.error_code == ErrorCode.INVALID_VOTER_KEY
        # A candidate's epoch is above that of its log, so 0 is one of pre-votes alone.
        refused = (await outsider.ask(vote(epoch=0), 0)).topics[0].partitions[0]
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        refused = (await outsider.ask(vote(epoch=0, pre_vote=True))).topics[0].partitions[0]
        assert refused.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (refused.leader_id, refused.leader_epoch) == (leader.node_id, 1)
        assert not refused.vote_granted

    simulate(story)


def test_failed_node_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        node = await world.elected()
        topic = BeginQuorumEpochRequest.TopicData(
            topic_name=TOPIC,
            partitions=[BeginQuorumEpochRequest.PartitionData(leader_id=2, leader_epoch=9)],
        )
        ended = EndQuorumEpochRequest.TopicData(
            topic_name=TOPIC,
            partitions=[EndQuorumEpochRequest.PartitionData(leader_id=2, leader_epoch=9)],
        )
        node.metadata.fail(OSError(5, "the disk is broken"))
        for request in (
            vote(),
            BeginQuorumEpochRequest(cluster_id=CLUSTER_ID, topics=[topic]),
            EndQuorumEpochRequest(cluster_id=CLUSTER_ID, topics=[ended]),
        ):
            with pytest.raises(PeerError):
                await Outsider(world, node).ask(request)
        node.failures.clear()

    simulate(story)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("version", [17, 18])
def test_fetches_are_fenced_and_name_the_leader(version: int) -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await world.until(world.is_settled)
        follower = next(node for node in world.live if node is not leader)
        for node, epoch, error in (
            (leader, 0, ErrorCode.FENCED_LEADER_EPOCH),
            (leader, 2, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (follower, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ):
            answer = await Outsider(world, node).fetch(version, current_leader_epoch=epoch)
            assert answer.error_code == error
            told = answer.current_leader
            assert (told.leader_id, told.leader_epoch) == (leader.node_id, 1)
        answer = await Outsider(world, leader).fetch(version, current_leader_epoch=1)
        assert next(header.base_offset for _, header in iter_batches(answer.records)) == 0
        assert answer.high_watermark == leader.metadata.high_watermark

    simulate(story)


def test_a_fetch_waits_for_records_or_for_the_high_watermark() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await leader.commit("a")
        end = leader.metadata.next_offset
        outsider = Outsider(world, leader)
        place = {
            "fetch_offset": end,
            "last_fetched_epoch": 1,
            "current_leader_epoch": 1,
            "max_wait_ms": 700,
        }
        began = world.loop.time()
        answer = await outsider.fetch(high_watermark=end, **place)
        assert not answer.records
        assert 0.7 <= world.loop.time() - began < 0.8
        began = world.loop.time()
        answer = await outsider.fetch(high_watermark=end - 1, **place)
        assert answer.high_watermark == end, "known at once"
        assert world.loop.time() - began < 0.1
        waiting = asyncio.ensure_future(outsider.fetch(high_watermark=end, **place))
        await asyncio.sleep(0.1)
        await leader.commit("b")
        assert (await waiting).records
        place["fetch_offset"] = end + 1
        waiting = asyncio.ensure_future(outsider.fetch(high_watermark=end + 1, **place))
        await asyncio.sleep(0.1)
        await leader.run(leader.quorum.stop())
        assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    simulate(story)


def test_diverging_fetch_gets_the_end_of_the_common_epoch() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        end = leader.metadata.next_offset
        outsider = Outsider(world, leader)
        answer = await outsider.fetch(
            current_leader_epoch=1, fetch_offset=end + 5, last_fetched_epoch=1
        )
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (1, end)
        answer = await outsider.fetch(current_leader_epoch=1, fetch_offset=3, last_fetched_epoch=9)
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    simulate(story)


def test_snapshots_are_read_in_pieces() -> None:
    async def story(world: QuorumWorld) -> None:
        for node in world.nodes.values():
            node.options["snapshot_bytes"] = 500
        await world.start()
        leader = await world.elected()
        for number in range(60):
            await leader.commit(f"s{number}")
        outsider = Outsider(world, leader)
        answer = await outsider.fetch(current_leader_epoch=1)
        named = answer.snapshot_id
        assert named.end_offset > 10

        async def piece(position: int, epoch: int = named.epoch) -> Any:
            partition = FetchSnapshotRequest.PartitionSnapshot(
                partition=0,
                current_leader_epoch=1,
                snapshot_id=FetchSnapshotRequest.SnapshotId(
                    end_offset=named.end_offset, epoch=epoch
                ),
                position=position,
            )
            topic = FetchSnapshotRequest.TopicSnapshot(name=TOPIC, partitions=[partition])
            response = await outsider.ask(FetchSnapshotRequest(max_bytes=100, topics=[topic]))
            return response.topics[0].partitions[0]

        data = b""
        while True:
            part = await piece(len(data))
            assert part.error_code == 0
            assert part.position == len(data)
            data += bytes(part.unaligned_records)
            if len(data) == part.size:
                break
        name = f"{named.end_offset:020d}-{named.epoch:010d}.checkpoint"
        stored = leader.disk.files().read_bytes(f"data/__cluster_metadata-0/{name}")
        assert data == stored
        assert (await piece(0, epoch=55)).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
        assert (await piece(len(data))).error_code == ErrorCode.POSITION_OUT_OF_RANGE
        assert (await piece(-1)).error_code == ErrorCode.POSITION_OUT_OF_RANGE

    simulate(story)


def test_follower_at_the_log_start_with_an_older_epoch_gets_the_snapshot() -> None:
    """A simulated cluster found it (3 brokers, seed 3116 of its day): a leader came back with
    records that it had not committed, up to the very offset where the new leader's log starts by
    now. Its epoch is older than all in that log, which seemed to go on from it."""

    async def story(world: QuorumWorld) -> None:
        for node in world.nodes.values():
            node.options["snapshot_bytes"] = 500
        await world.start()
        first = await world.elected()
        for number in range(5):
            await first.commit(f"a{number}")
        first.kill()
        leader = await world.elected()
        epoch = leader.quorum.core.epoch
        for number in range(60):
            await leader.commit(f"b{number}")
        start = leader.metadata.log.log_start_offset
        oldest = leader.metadata.snapshotter.oldest()
        assert oldest == (start, epoch)
        outsider = Outsider(world, leader)

        async def fetch(offset: int, last_epoch: int) -> Any:
            return await outsider.fetch(
                current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=last_epoch
            )

        answer = await fetch(start, epoch)
        assert answer.snapshot_id is None or answer.snapshot_id.end_offset < 0
        assert next(iter_batches(bytes(answer.records)))[1].base_offset == start
        for offset in (start, start + 3):
            answer = await fetch(offset, epoch - 1)
            assert answer.snapshot_id.end_offset >= start
            assert not answer.records

    simulate(story)


def test_describe_quorum_shows_voters_observers_and_their_last_fetch() -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await leader.commit("a")
        await world.until(world.is_settled)
        await asyncio.sleep(1.5)
        described = await Outsider(world, leader).describe()
        assert (described.leader_id, described.leader_epoch) == (leader.node_id, 1)
        assert described.high_watermark == leader.metadata.next_offset
        assert [voter.replica_id for voter in described.current_voters] == [1, 2, 3]
        assert [observer.replica_id for observer in described.observers] == [4]
        assert {voter.replica_directory_id for voter in described.current_voters} == {bytes(16)}
        (observer,) = described.observers
        assert observer.replica_directory_id == world.nodes[4].own.directory_id != bytes(16)
        now_ms = leader.clock.wall_ms()
        for replica in [*described.current_voters, *described.observers]:
            assert replica.log_end_offset == described.high_watermark
            assert now_ms - 1000 <= replica.last_fetch_timestamp <= now_ms
            assert now_ms - 1000 <= replica.last_caught_up_timestamp <= now_ms
        follower = next(node for node in world.live if node is not leader)
        refused = await Outsider(world, follower).describe(0)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused.leader_id == leader.node_id

    simulate(story, observers=1)


def test_requests_out_of_range_write_nothing() -> None:
    last = (1 << 31) - 1

    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await world.until(world.is_settled)
        follower = next(node for node in world.live if node is not leader)
        state = follower.disk.files().read_bytes("data/__cluster_metadata-0/quorum-state")
        outsider = Outsider(world, follower)

        def begin(epoch: int, voter_id: int = -1) -> BeginQuorumEpochRequest:
            partition = BeginQuorumEpochRequest.PartitionData(
                partition_index=0, leader_id=leader.node_id, leader_epoch=epoch
            )
            topic = BeginQuorumEpochRequest.TopicData(topic_name=TOPIC, partitions=[partition])
            return BeginQuorumEpochRequest(cluster_id=CLUSTER_ID, voter_id=voter_id, topics=[topic])

        for request, error in (
            (begin(last), ErrorCode.INVALID_REQUEST),
            (begin(-1), ErrorCode.FENCED_LEADER_EPOCH),
            (begin(1, voter_id=77), ErrorCode.INVALID_VOTER_KEY),
        ):
            answer = (await outsider.ask(request)).topics[0].partitions[0]
            assert (answer.error_code, answer.leader_epoch) == (error, 1)
        good = {"current_leader_epoch": 1, "fetch_offset": 0, "last_fetched_epoch": 0}
        for name in good:
            answer = await Outsider(world, leader).fetch(**(good | {name: -1}))
            assert answer.error_code == ErrorCode.INVALID_REQUEST, name
        assert follower.disk.files().read_bytes("data/__cluster_metadata-0/quorum-state") == state

    simulate(story)


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_voter_that_cannot_know_its_vote_does_not_start(damage: str) -> None:
    async def story(world: QuorumWorld) -> None:
        await world.start()
        leader = await world.elected()
        await world.until(world.is_settled)
        follower = next(node for node in world.live if node is not leader)
        follower.kill()
        files, path = follower.disk.files(), "data/__cluster_metadata-0/quorum-state"
        if damage == "missing":
            files.remove(path)
        else:
            files.write_atomic(path, files.read_bytes(path).replace(b"leaderEpoch", b"leaderEpocj"))
        with pytest.raises(QuorumStateError, match=f"quorum-state is {damage}"):
            await follower.start()

    simulate(story)
