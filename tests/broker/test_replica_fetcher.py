"""A follower against a leader that says what the test wants, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import topic_id
from support.scripted_follower import ME, data, diverging, follower, played, records, settle
from tidelog.replication.fetch_state import State
from tidelog.simulation.loop import simulate
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from pathlib import Path


@played
async def test_bytes_come_as_they_are(tmp_path: Path) -> None:
    async with follower(tmp_path) as one:
        partition = one.follow("a", epoch=3)
        await settle()
        request = one.channel.fetches[0]
        assert one.last == {"a": (0, -1, 3)}
        assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (ME, 33)
        assert (request.max_wait_ms, request.min_bytes) == (500, 1)
        assert (request.session_id, request.session_epoch) == (0, 0)
        batches = records(0, 3, epoch=2) + records(5, 2, epoch=3)
        one.say(a=data(batches, end=4))
        await settle()
        log = partition.log
        assert b"".join(log.read(0, 9999, upper_bound=7).parts) == batches
        assert (log.log_end_offset, log.high_watermark) == (7, 4)
        assert one.last == {"a": (7, 3, 3)}
        one.say(a=data(end=99, start=4))
        await settle()
        assert (log.log_start_offset, log.high_watermark) == (4, 7)
        one.say(a=data(end=5, start=4))
        await settle()
        assert log.high_watermark == 5, "a new leader may know less"
        assert one.advanced == ["a", "a", "a"]
        assert one.channel.fetches[-1].session_epoch == 3


@played
async def test_one_that_fails_does_not_hold_up_others(tmp_path: Path) -> None:
    async with follower(tmp_path) as one:
        good, bad = one.follow("good"), one.follow("bad")
        await settle()
        one.say(bad=data(error=ErrorCode.UNKNOWN_LEADER_EPOCH), good=data(records(0), end=0))
        await settle()
        assert one.state("bad") is State.DELAYED
        (forgotten,) = one.channel.fetches[-1].forgotten_topics_data
        assert forgotten.topic_id == topic_id("bad")
        assert one.last == {"good": (1, 0, 0)}
        one.say(good=data(records(1), end=1))
        await settle()
        assert good.log.log_end_offset == 2
        await asyncio.sleep(0.11)  # the parked fetch does not have to run out first
        assert one.last == {"bad": (0, -1, 0)}
        one.say(bad=data(records(0), end=0))
        await settle()
        assert bad.log.log_end_offset == 1


@played
async def test_a_new_partition_does_not_wait_for_a_parked_fetch(tmp_path: Path) -> None:
    async with follower(tmp_path) as one:
        one.follow("a")
        await settle()
        one.follow("b")
        await settle()
        assert one.last == {"b": (0, -1, 0)}
        assert len(one.channel.fetches) == 2


@played
async def test_a_log_start_that_rose_here_is_reported_without_new_records(tmp_path: Path) -> None:
    """As that of a topic that was tiered does, whose local part is all that is left (KIP-950)."""
    async with follower(tmp_path) as one:
        partition = one.follow("a")
        one.follow("b")
        await settle()
        one.say(a=data(records(0) + records(1), end=2), b=data())
        await settle()
        partition.log.maybe_increment_log_start(1, "by itself")
        await asyncio.sleep(1)
        one.say()  # the leader has no news
        await settle()
        (topic,) = one.last_fetch.topics
        assert topic.topic_id == topic_id("a")
        assert [each.log_start_offset for each in topic.partitions] == [1]


@played
async def test_an_answer_to_an_older_epoch_is_dropped(tmp_path: Path) -> None:
    async with follower(tmp_path) as one:
        partition = one.follow("a", epoch=1)
        one.follow("b")
        await settle()

        def late(request: Any) -> Any:
            del request
            one.follow("a", epoch=2)
            return {
                (topic_id("a"), 0): data(records(0, epoch=1), end=1),
                (topic_id("b"), 0): data(records(0), end=1),
            }

        one.leader.answers.append(late)
        one.say(a=data(), b=data())
        one.leader.parked[-1][1].hurry()
        await settle()
        assert partition.log.log_end_offset == 0
        assert one.path.partition("b").log.log_end_offset == 1
        request = one.last_fetch
        assert (request.session_id, request.session_epoch) == (7, 0), "told anew from the start"
        assert one.last == {"a": (0, -1, 2), "b": (1, 0, 0)}


@played
async def test_an_answer_for_another_offset_is_dropped(tmp_path: Path) -> None:
    async with follower(tmp_path) as one:
        partition = one.fill("a", 0, 0, 0)
        await settle()
        assert one.last == {"a": (3, 0, 0)}
        partition.followed_log(0).truncate_to(1, 0)
        one.say(a=data(records(3), end=4))
        await settle()
        assert partition.log.log_end_offset == 1, "a hole otherwise"
        assert one.last == {"a": (1, 0, 0)}


@played
async def test_a_fenced_epoch_waits_for_metadata(tmp_path: Path) -> None:
    async with follower(tmp_path) as one:
        one.follow("a", epoch=1)
        await settle()
        one.say(a=data(error=ErrorCode.FENCED_LEADER_EPOCH))
        await asyncio.sleep(100)
        assert one.state("a") is State.FAILED
        assert len(one.channel.fetches) == 1
        one.fetcher.add(one.path.partition("a"), 1)
        assert one.state("a") is State.FAILED, "the same epoch again is no news"
        one.follow("a", epoch=2)
        await settle()
        assert one.last == {"a": (0, -1, 2)}


@played
async def test_batches_of_an_epoch_we_have_not_heard_of(tmp_path: Path) -> None:
    """KAFKA-18723."""
    async with follower(tmp_path) as one:
        partition = one.follow("a", epoch=1)
        await settle()
        one.say(a=data(records(0, epoch=1) + records(1, epoch=2), end=2))
        await settle()
        assert partition.log.log_end_offset == 1
        assert one.last == {"a": (1, 1, 1)}
        one.say(a=data(records(1, epoch=2), end=2))
        await settle()
        assert (partition.log.log_end_offset, one.state("a")) == (1, State.DELAYED)


@played
async def test_two_elections_take_several_rounds(tmp_path: Path) -> None:
    """KIP-279: epochs that the leader never had go one after the other."""
    async with follower(tmp_path) as one:
        partition = one.fill("a", 0, 0, 2, 2, 4, 4)
        log = partition.log
        log.set_high_watermark(3)
        await settle()
        assert one.last == {"a": (6, 4, 4)}
        one.say(a=diverging(3, 9, high_watermark=9))
        await settle()
        assert one.last == {"a": (4, 2, 4)}
        assert log.high_watermark == 3, "not the leader's, while the logs may differ"
        one.say(a=diverging(1, 3, high_watermark=9))
        await settle()
        assert one.last == {"a": (2, 0, 4)}
        one.say(a=diverging(0, 1, high_watermark=0))
        await settle()
        assert one.last == {"a": (1, 0, 4)}
        assert (log.high_watermark, log.log_end_offset) == (0, 1)
        assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0)]


@played
async def test_the_loop_runs_between_two_cuts_of_one_answer(tmp_path: Path) -> None:
    """Each cut waits for the disk: a failover may ask for thousands."""
    async with follower(tmp_path) as one:
        logs = [one.fill(name, 0, 0, 1, 1).log for name in "abc"]
        await settle()
        assert len(one.last) == 3
        ends: list[list[int]] = []
        one.say(a=diverging(0, 2), b=diverging(0, 2), c=diverging(0, 2))
        for _ in range(60):
            await asyncio.sleep(0)
            ends.append([log.log_end_offset for log in logs])
        cuts = sorted({end.count(2) for end in ends})
        assert cuts == [1, 2, 3]


@played
async def test_a_divergence_without_end_is_slowed_down(tmp_path: Path) -> None:
    async with follower(tmp_path) as one:
        one.fill("a", 0, 0)
        await settle()
        one.say(a=diverging(0, 5))
        await settle()
        assert one.state("a") is State.DELAYED


@pytest.mark.parametrize(
    ("leader_start", "leader_end", "expected"),
    [(0, 2, (0, 2)), (10, 20, (10, 10)), (1, 9, (0, 4))],
    ids=["leader is shorter", "leader starts above", "it has it after all"],
)
def test_out_of_range(
    tmp_path: Path, leader_start: int, leader_end: int, expected: tuple[int, int]
) -> None:
    async def test() -> None:
        async with follower(tmp_path) as one:
            log = one.fill("a", 0, 0, 1, 1).log
            other = one.follow("other")
            one.leader.ends["a"], one.leader.starts["a"] = leader_end, leader_start
            await settle()
            one.say(
                a=data(error=ErrorCode.OFFSET_OUT_OF_RANGE, end=-1),
                other=data(records(0), end=1),
            )
            await settle()
            assert other.log.log_end_offset == 1
            await asyncio.sleep(0.3)
            assert one.state("a") is State.FETCHING
            assert (log.log_start_offset, log.log_end_offset) == expected
            assert one.last["a"][0] == expected[1]

    simulate(1, lambda _: test())


@played
async def test_a_replica_that_looks_for_its_start_does_not_hold_up_others(tmp_path: Path) -> None:
    async with follower(tmp_path) as one:
        one.fill("a", 0)
        other = one.follow("other")
        one.leader.lists_offsets = False
        await settle()
        one.say(a=data(error=ErrorCode.OFFSET_OUT_OF_RANGE))
        await settle()
        one.say(other=data(records(0), end=1))
        await settle()
        assert one.state("a") is State.TRUNCATING
        assert other.log.log_end_offset == 1


@played
async def test_a_start_that_the_leader_does_not_know_yet(tmp_path: Path) -> None:
    async with follower(tmp_path) as one:
        one.fill("a", 0, 0)
        one.leader.ends["a"] = -int(ErrorCode.UNKNOWN_LEADER_EPOCH)
        await settle()
        one.say(a=data(error=ErrorCode.OFFSET_OUT_OF_RANGE))
        await settle()
        assert one.state("a") is State.DELAYED
        one.leader.ends["a"] = 1
        await asyncio.sleep(1)
        assert one.state("a") is State.FETCHING
        assert one.path.partition("a").log.log_end_offset == 1


@played
async def test_the_leaders_log_starts_inside_a_batch(tmp_path: Path) -> None:
    async with follower(tmp_path) as one:
        log = one.follow("a").log
        one.leader.ends["a"], one.leader.starts["a"] = 10, 5
        await settle()
        one.say(a=data(error=ErrorCode.OFFSET_OUT_OF_RANGE))
        await settle()
        assert (log.log_start_offset, log.log_end_offset) == (5, 5)
        one.say(a=data(records(3, 7), end=10, start=5))
        await settle()
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5, 10, 10)
        assert log.segments.first.base_offset == 3


@played
async def test_a_corrupt_batch_is_fetched_again(tmp_path: Path) -> None:
    async with follower(tmp_path) as one:
        log = one.follow("a").log
        await settle()
        broken = bytearray(records(0))
        broken[-1] ^= 1
        one.say(a=data(bytes(broken), end=1))
        await settle()
        assert (one.state("a"), log.log_end_offset) == (State.DELAYED, 0)
        await asyncio.sleep(1)
        one.say(a=data(records(0), end=1))
        await settle()
        assert log.log_end_offset == 1


@played
async def test_a_disk_that_fails_ends_following(tmp_path: Path) -> None:
    async with follower(tmp_path) as one:
        partition, other = one.follow("a"), one.follow("other")
        await settle()

        class Broken:
            def __getattr__(self, name: str) -> Any:
                if name == "append_as_follower":
                    raise StorageError(ErrorCode.KAFKA_STORAGE_ERROR, "no space")
                return getattr(log, name)

        log, broken = partition.log, Broken()
        partition.log = broken  # type: ignore[assignment]
        one.say(a=data(records(0), end=1), other=data(records(0), end=1))
        await asyncio.sleep(10)
        assert one.state("a") is State.FAILED
        assert other.log.log_end_offset == 1


@played
async def test_a_leader_without_the_session_gets_a_full_fetch_at_once(tmp_path: Path) -> None:
    async with follower(tmp_path) as one:
        one.follow("a")
        one.follow("b")
        await settle()
        one.say(a=data(records(0), end=1))
        await settle()
        assert one.last == {"a": (1, 0, 0)}
        one.leader.say(int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        await settle()
        assert one.last == {"a": (1, 0, 0), "b": (0, -1, 0)}
        assert one.channel.fetches[-1].session_epoch == 0
        one.leader.say(int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        before = len(one.channel.fetches)
        await settle()
        assert len(one.channel.fetches) == before, "not again and again without a pause"
        await asyncio.sleep(1)
        assert len(one.channel.fetches) > before


@played
async def test_a_leader_that_is_away_is_asked_ever_less_often(tmp_path: Path) -> None:
    async with follower(tmp_path) as one:
        one.channel.is_down = True
        attempts = 0
        ask = one.channel.ask

        async def counted(request: Any, version: int | None = None) -> Any:
            nonlocal attempts
            attempts += 1
            return await ask(request, version)

        one.channel.ask = counted  # type: ignore[method-assign]
        one.follow("a")
        await asyncio.sleep(60)
        assert 15 < attempts < 30
        one.channel.is_down = False
        await asyncio.sleep(4)
        one.say(a=data(records(0), end=1))
        await settle()
        assert one.path.partition("a").log.log_end_offset == 1


@played
async def test_a_partition_that_left_is_not_written(tmp_path: Path) -> None:
    async with follower(tmp_path) as one:
        partition = one.follow("a")
        one.follow("b")
        await settle()
        one.fetcher.remove(topic_id("a"), 0)
        one.fetcher.remove(topic_id("a"), 0)
        one.say(a=data(records(0), end=1))
        await settle()
        assert partition.log.log_end_offset == 0
        one.fetcher.remove(topic_id("b"), 0)
        assert one.fetcher.is_idle
        one.say(b=data(records(0), end=1))
        await settle()
        before = len(one.channel.fetches)
        await asyncio.sleep(10)
        assert len(one.channel.fetches) == before, "nothing to ask for"
