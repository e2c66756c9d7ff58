"""A follower whose offset the leader has in the remote tier alone: `follower-start-offset` too."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import NOW_MS, CountingRng, DataPath, batch, topic_id
from support.leader_channel import LeaderChannel, ScriptedLeader
from support.vectors import load_yaml
from tidelog.cluster.metadata.image import BrokerImage, PartitionImage, TopicImage
from tidelog.replication.aux_state import AuxState, tiered_start
from tidelog.replication.fetch_state import State
from tidelog.replication.leader_end_point import RemoteLeader
from tidelog.replication.replica_fetcher import FetcherContext, ReplicaFetcher
from tidelog.simulation.loop import simulate
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import (
    FetchResponse,
    ListOffsetsResponse,
    OffsetForLeaderEpochResponse,
)
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.producer_snapshot import format_snapshot
from tidelog_storage.producer_state import ProducerEntry
from tidelog_storage.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from tidelog.replication.partition import Partition

ME, LEADER = 1, 2
EPOCH = 4
TIERED = {"remote.storage.enable": "true"}
SNAPSHOT = format_snapshot([ProducerEntry(5, producer_epoch=2, last_timestamp=NOW_MS)])
TABLE = load_yaml(Path(__file__).parent / "vectors" / "follower-start-offset.yaml")


class TieredLeader(ScriptedLeader):
    """A leader with these starts and ends, all under `epochs`; it answers fetches by them."""

    def __init__(
        self, log_start: int, local_start: int, log_end: int, pending: int | None = None
    ) -> None:
        super().__init__()
        self.log_start = log_start
        self.local_start = local_start
        self.log_end = log_end
        self.pending = pending
        self.epochs = [(0, 0), (EPOCH, log_start + 1)]
        self.listed: list[int] = []
        self.error = 0  # of all answers but fetches
        self.handlers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = self.end_of_epoch

    def epoch_of(self, offset: int) -> int:
        return max(epoch for epoch, start in self.epochs if start <= max(offset, 0))

    def fetch(self, context: Any, request: Any) -> Any:
        for topic in request.topics:
            (asked,) = topic.partitions
            offset = asked.fetch_offset
            error = 0
            if not self.log_start <= offset <= self.log_end:
                error = ErrorCode.OFFSET_OUT_OF_RANGE
            elif offset < self.local_start:
                error = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
            if error:
                data = FetchResponse.FetchableTopicResponse.PartitionData(
                    error_code=error, high_watermark=self.log_end, log_start_offset=self.log_start
                )
                return self.response({(topic.topic_id, 0): data})
        return super().fetch(context, request)

    def list_offsets(self, context: Any, request: Any) -> Any:
        del context
        answer = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = []
        for topic in request.topics:
            (asked,) = topic.partitions
            self.listed.append(asked.timestamp)
            offset = {
                -1: self.log_end, -2: self.log_start, -4: self.local_start, -6: self.pending
            }[asked.timestamp]  # fmt: skip
            assert offset is not None, "not asked"
            data = answer.ListOffsetsPartitionResponse(
                partition_index=asked.partition_index,
                offset=offset,
                leader_epoch=-1 if offset < 0 else self.epoch_of(offset),
                error_code=self.error,
            )
            topics.append(answer(name=topic.name, partitions=[data]))
        return ListOffsetsResponse(topics=topics)

    def end_of_epoch(self, context: Any, request: Any) -> Any:
        del context
        (topic,) = request.topics
        (asked,) = topic.partitions
        epochs = [epoch for epoch, _ in self.epochs if epoch <= asked.leader_epoch]
        ends = [start for epoch, start in self.epochs if epoch > asked.leader_epoch]
        result = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        end = result.EpochEndOffset(
            partition=0,
            leader_epoch=max(epochs, default=asked.leader_epoch),
            end_offset=min(ends, default=self.log_end),
            error_code=self.error,
        )
        return OffsetForLeaderEpochResponse(topics=[result(topic=topic.topic, partitions=[end])])


class Tier:
    """The remote tier: segments that end just where they are asked for, or a failure."""

    def __init__(self, leader: TieredLeader) -> None:
        self.leader = leader
        self.asked: list[tuple[str, int, int]] = []
        self.failures: list[BaseException] = []
        self.beyond = 1  # the segment's end is so far behind the offset
        self.hangs: asyncio.Event | None = None

    async def aux_state_of(self, partition: Partition, epoch: int, offset: int) -> AuxState:
        self.asked.append((partition.topic_partition.topic, epoch, offset))
        if self.hangs is not None:
            await self.hangs.wait()
        if self.failures:
            raise self.failures.pop(0)
        assert epoch == self.leader.epoch_of(offset), "of another lineage"
        return AuxState(offset + self.beyond, self.leader.epochs, SNAPSHOT)


class Follower:
    """One fetcher over real logs that are tiered, its leader and the remote tier."""

    def __init__(self, folder: Path, leader: Any, *, last_tiered: bool, tier: Tier | None) -> None:
        self.path = DataPath(
            folder, replica_fetch_backoff_ms="3200", remote_log_storage_system_enable="true"
        )
        self.path.apply(brokers={n: BrokerImage(n, "h", 1) for n in (ME, LEADER)})
        self.leader = leader
        self.channel: Any = LeaderChannel(leader.handlers)
        self.tier = tier
        self.fetcher = ReplicaFetcher(
            "test",
            RemoteLeader(self.channel, ME),
            FetcherContext(
                config=self.path.config,
                clock=self.path.clock,
                rng=CountingRng(),
                broker_epoch=lambda: 33,
                on_advanced=lambda _: None,
                aux_state_of=None if tier is None else tier.aux_state_of,
                from_last_tiered=lambda: last_tiered,
            ),
        )

    def follow(self, *, end: int = 0, name: str = "a", epoch: int = EPOCH) -> Partition:
        """A partition that has all below `end`, in epoch 0."""
        state = PartitionImage(0, LEADER, epoch, 0, (ME, LEADER), (LEADER,))
        topics = {**self.path.image.topics, name: TopicImage(name, topic_id(name), (state,))}
        self.path.apply(topics=topics, topic_configs=dict.fromkeys(topics, TIERED))
        partition = self.path.partition(name)
        for offset in range(end):
            record = Record(offset, NOW_MS, None, b"v")
            data = build_batch([record], base_offset=offset, leader_epoch=0)
            partition.append_as_follower(memoryview(data), leader_epoch=epoch, now_ms=0)
        self.fetcher.add(partition, epoch)
        return partition

    def state(self, name: str = "a") -> State:
        state = self.fetcher.state(topic_id(name), 0)
        assert state is not None
        return state.state

    @property
    def fetched(self) -> list[tuple[int, int]]:
        """Offset and last epoch of each fetch that named a partition."""
        return [
            (partition.fetch_offset, partition.last_fetched_epoch)
            for request in self.channel.fetches
            for topic in request.topics
            for partition in topic.partitions
        ]


@asynccontextmanager
async def follower(
    folder: Path, leader: Any, *, last_tiered: bool = False, tier: Tier | None = None
) -> AsyncIterator[Follower]:
    one = Follower(folder, leader, last_tiered=last_tiered, tier=tier)
    try:
        yield one
    finally:
        one.fetcher.stop()
        await one.fetcher.stopped()
        one.path.logs.abandon()


async def settle() -> None:
    for _ in range(120):
        await asyncio.sleep(0)


def played(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        simulate(1, lambda _: test(tmp_path))

    run.__name__ = test.__name__
    return run


def view(partition: Partition) -> tuple[int, int, int, int]:
    log = partition.log
    starts = (log.log_start_offset, log.local_log_start_offset)
    return (*starts, log.high_watermark, log.log_end_offset)


# -- the table -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_the_specifications_table(tmp_path: Path, case: dict[str, Any]) -> None:
    given, out = case["in"], case["out"]
    about = given["leader"]
    log_start = about["log_start"]

    async def test() -> None:
        leader = TieredLeader(
            log_start, about["local_start"], about["log_end"], about["earliest_pending_upload"]
        )
        tier = Tier(leader)
        if "remote_error" in given:
            tier.failures.append(ConnectionError("away for a while"))
        async with follower(
            tmp_path, leader, last_tiered=given["last_tiered_offset"], tier=tier
        ) as one:
            partition = one.follow(end=given["replica_log_end"])
            await settle()
            if "delayed" in out:
                assert one.state() is State.DELAYED
                assert view(partition) == (0, 0, 0, 0), "untouched"
                leader.pending = about["log_end"]
                await asyncio.sleep(1)
                assert partition.log.log_end_offset == about["log_end"], "tried again"
                return
            check(one, partition, given, out)

    simulate(1, lambda _: test())


def check(one: Follower, partition: Partition, given: dict[str, Any], out: dict[str, Any]) -> None:
    about = given["leader"]
    offsets = [offset for offset, _ in one.fetched]
    assert one.tier is not None
    if given.get("event") == "OFFSET_OUT_OF_RANGE" and not given["replica_log_end"]:
        assert offsets[:2] == [0, out["start"]], "the first answer"
        return
    if given["replica_log_end"] == 50 and not out.get("truncate_to"):
        assert offsets == [50], "it has it after all"
        return
    log_start, _, _, log_end = view(partition)
    assert log_end == out["start"] == offsets[-1]
    assert one.state() is State.FETCHING
    has_remote_part = about["log_start"] < out["start"] and not (
        out.get("truncate_to") or out.get("truncate_fully")
    )
    if has_remote_part:
        assert log_start == out.get("log_start", about["log_start"])
        assert [offset for *_, offset in one.tier.asked] == [out["start"] - 1]
        assert view(partition)[1:] == (out["start"],) * 3
        assert partition.log.producers.producers[5].producer_epoch == 2
    else:
        assert not one.tier.asked
        assert not out.get("aux_state")


# -- one at a time ---------------------------------------------------------------------------------


@played
async def test_kafkas_fetcher_test(tmp_path: Path) -> None:
    """Follower 0-2; leader from 0, locally from 5."""
    leader = TieredLeader(0, 5, 9)
    tier = Tier(leader)
    async with follower(tmp_path, leader, tier=tier) as one:
        partition = one.follow(end=3)
        await settle()
        assert view(partition) == (0, 5, 5, 5)
        assert one.state() is State.FETCHING
        assert tier.asked == [("a", EPOCH, 4)]
        assert one.fetched == [(3, 0), (5, EPOCH)]
        assert partition.log.epochs.entries == [(0, 0), (EPOCH, 1)]
        assert partition.log.highest_remote_offset == 4


@played
async def test_out_of_range_and_then_in_the_tier(tmp_path: Path) -> None:
    """Leader from 5, locally from 7; the follower is empty."""
    leader = TieredLeader(5, 7, 9)
    async with follower(tmp_path, leader, tier=Tier(leader)) as one:
        partition = one.follow()
        await settle()
        assert one.fetched == [(0, -1), (5, -1), (7, EPOCH)]
        assert view(partition) == (5, 7, 7, 7)


@played
async def test_a_segment_may_end_above_the_local_start(tmp_path: Path) -> None:
    leader = TieredLeader(0, 5, 20)
    tier = Tier(leader)
    tier.beyond = 9
    async with follower(tmp_path, leader, tier=tier) as one:
        partition = one.follow()
        await settle()
        assert view(partition) == (0, 13, 13, 13)


@pytest.mark.parametrize(
    ("epochs", "asked"),
    [
        ([(0, 0)], 0),
        ([(3, 0)], 3),
        ([(1, 0), (3, 5)], 1),  # the local part begins with an epoch
        ([(1, 0), (3, 4)], 3),
        ([(1, 0), (2, 2), (6, 5)], 2),
    ],
)
def test_the_epoch_of_the_last_remote_offset(
    tmp_path: Path, epochs: list[tuple[int, int]], asked: int
) -> None:
    async def test() -> None:
        leader = TieredLeader(0, 5, 9)
        leader.epochs = epochs
        tier = Tier(leader)
        async with follower(tmp_path, leader, tier=tier) as one:
            one.follow()
            await settle()
            assert tier.asked == [("a", asked, 4)]
            assert one.state() is State.FETCHING

    simulate(1, lambda _: test())


@played
async def test_the_log_is_left_alone_until_all_is_there(tmp_path: Path) -> None:
    """While the tier hangs, or fails, nothing local goes; others are followed all the time."""
    leader = TieredLeader(0, 5, 9)
    tier = Tier(leader)
    tier.hangs = asyncio.Event()
    tier.failures += [ConnectionError("away"), KeyError("odd plug-in")]
    async with follower(tmp_path, leader, tier=tier) as one:
        partition = one.follow(end=3)
        await settle()
        assert one.state() is State.BUILDING_REMOTE_LOG_AUX
        assert partition.log.log_end_offset == 3
        other = one.follow(end=7, name="other")
        await settle()
        assert one.state("other") is State.FETCHING
        assert one.fetched[-1] == (7, 0)
        assert other.log.log_end_offset == 7
        tier.hangs.set()
        await settle()
        assert one.state() is State.DELAYED
        assert partition.log.log_end_offset == 3
        await asyncio.sleep(0.5)
        assert view(partition) == (0, 5, 5, 5)
        assert len(tier.asked) == 3
        assert one.fetched.count((3, 0)) == 3, "the leader is asked anew each time"


@played
async def test_a_damaged_snapshot_is_a_failure_like_others(tmp_path: Path) -> None:
    leader = TieredLeader(0, 5, 9)

    async def damaged(partition: Partition, epoch: int, offset: int) -> AuxState:
        del partition, epoch
        return AuxState(offset + 1, [(0, 0)], SNAPSHOT[:-3])

    tier = Tier(leader)
    tier.aux_state_of = damaged  # type: ignore[method-assign]
    async with follower(tmp_path, leader, tier=tier) as one:
        partition = one.follow(end=3)
        await settle()
        assert one.state() is State.DELAYED
        assert view(partition) == (0, 0, 0, 3)


@played
async def test_a_newer_epoch_ends_what_is_being_built(tmp_path: Path) -> None:
    leader = TieredLeader(0, 5, 9)
    tier = Tier(leader)
    tier.hangs = asyncio.Event()
    async with follower(tmp_path, leader, tier=tier) as one:
        partition = one.follow(end=3)
        await settle()
        one.path.change("a", leader_epoch=EPOCH + 1)
        one.fetcher.add(partition, EPOCH + 1)
        leader.local_start = 2
        tier.hangs.set()
        await settle()
        assert partition.log.log_end_offset == 3, "the new leader has it locally"
        assert one.state() is State.FETCHING
        one.fetcher.remove(topic_id("a"), 0)
        await settle()
        assert not one.fetcher._building


@pytest.mark.parametrize(("tier", "error"), [(False, 0), (True, ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_without_a_tier_or_an_answer_it_waits(tmp_path: Path, tier: bool, error: int) -> None:
    async def test() -> None:
        leader = TieredLeader(0, 5, 9)
        leader.error = error
        async with follower(tmp_path, leader, tier=Tier(leader) if tier else None) as one:
            partition = one.follow(end=3)
            await settle()
            assert one.state() is State.DELAYED
            leader.error = 0
            await asyncio.sleep(5)
            assert (partition.log.log_end_offset, tier) in ((5, True), (3, False))

    simulate(1, lambda _: test())


@played
async def test_all_that_was_remote_is_gone_by_now(tmp_path: Path) -> None:
    leader = TieredLeader(0, 5, 9)
    tier = Tier(leader)
    async with follower(tmp_path, leader, tier=tier) as one:
        fetch = leader.fetch

        def late(context: Any, request: Any) -> Any:
            answer = fetch(context, request)
            leader.log_start = 5
            return answer

        leader.handlers[ApiKey.FETCH] = late
        partition = one.follow(end=3)
        await settle()
        assert not tier.asked
        assert view(partition) == (5, 5, 5, 5)


# -- the decision ----------------------------------------------------------------------------------


def test_where_to_begin() -> None:
    local = OffsetAndEpoch(10, 3)
    assert tiered_start(local, 0, None) == local
    assert tiered_start(local, 0, OffsetAndEpoch(-1, -1)) is None
    assert tiered_start(local, 10, OffsetAndEpoch(-1, -1)) == local
    assert tiered_start(local, 0, OffsetAndEpoch(5, 2)) == local
    assert tiered_start(local, 0, OffsetAndEpoch(12, 4)) == (12, 4)


# -- a real leader ---------------------------------------------------------------------------------


@played
async def test_a_real_leader(tmp_path: Path) -> None:
    """Both ends are ours; afterwards the follower has what the leader has locally."""
    path = DataPath(tmp_path / "leader", node_id=LEADER, remote_log_storage_system_enable="true")
    path.apply(brokers={n: BrokerImage(n, "h", 1) for n in (ME, LEADER)})
    path.create("a", replicas=(LEADER, ME), isr=(LEADER,), configs=TIERED)
    path.change("a", leader=LEADER, leader_epoch=EPOCH)
    source = path.partition("a")
    epochs = [(0, 0), (2, 3)]
    source.log.restart_from_remote(6, log_start=1, epochs=epochs, snapshot=SNAPSHOT)
    source.log.assign_epoch(EPOCH)
    for _ in range(4):
        source.append(batch(2), acks=1, now_ms=NOW_MS)
    asked: list[tuple[int, int]] = []

    async def aux_state_of(partition: Partition, epoch: int, offset: int) -> AuxState:
        del partition
        asked.append((epoch, offset))
        return AuxState(6, epochs, SNAPSHOT)

    leader = ScriptedLeader()
    leader.handlers = path.handlers  # type: ignore[assignment]
    tier = Tier(TieredLeader(0, 0, 0))
    tier.aux_state_of = aux_state_of  # type: ignore[method-assign]
    async with follower(tmp_path / "me", leader, tier=tier) as one:
        partition = one.follow()
        await settle()
        path.timers.advance_ms(1000)
        await settle()
        assert asked == [(2, 5)]
        log = partition.log
        assert view(partition) == (1, 6, 14, 14)
        assert log.epochs.entries == source.log.epochs.entries == [(0, 1), (2, 3), (EPOCH, 6)]
        theirs = source.log.read(6, 1 << 20, upper_bound=14)
        assert b"".join(log.read(6, 1 << 20, upper_bound=14).parts) == b"".join(theirs.parts)
    path.logs.abandon()
