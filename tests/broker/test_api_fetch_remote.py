"""Fetches across the border of the tiers, and how they wait for the remote one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import ManualClock, bytes_of, data_of
from support.tiered_path import teller
from tidelog.metrics.meters import BROKER_TOPIC_METRICS, Name
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import iter_batches
from tidelog_storage.remote.api import RemoteStorageError, RetriableRemoteStorageError

if TYPE_CHECKING:
    from collections.abc import Callable

EXPIRES = Name("kafka.server", "DelayedRemoteFetchMetrics", "ExpiresPerSec")


@pytest.fixture
def tiered(tmp_path):
    return teller(tmp_path)


def offsets(data):
    """(first, last) offset of each batch."""
    return [(header.base_offset, header.last_offset) for _, header in iter_batches(bytes_of(data))]


def local_start(path, index=0):
    return path.partition("foo", index).log.local_log_start_offset


def test_a_consumer_reads_across_the_border_and_sees_each_record_once(
    tiered: Callable[..., None],
) -> None:
    async def story(path):
        for isolation in (0, 1):
            seen = []
            offset = 0
            while offset < 20:
                answer = await path.fetched(("foo", 0, offset), isolation_level=isolation)
                data = data_of(answer)
                assert data.error_code == 0
                assert (data.high_watermark, data.log_start_offset) == (20, 0)
                assert data.aborted_transactions == ([] if isolation else None)
                seen += offsets(data)
                offset = seen[-1][1] + 1
            assert seen == [(base, base + 1) for base in range(0, 20, 2)]

    tiered(story)


def test_every_offset_can_be_the_first(tiered: Callable[..., None]) -> None:
    async def story(path):
        for offset in range(20):
            data = data_of(await path.fetched(("foo", 0, offset)))
            assert offsets(data)[0] == (offset - offset % 2, offset - offset % 2 + 1)

    tiered(story)


def test_remote_partitions_are_read_at_once_and_local_ones_with_them(
    tiered: Callable[..., None],
) -> None:
    async def story(path):
        border = local_start(path)
        path.executor.delay_s = 0.1
        answer = await path.fetched(("foo", 0, 0), ("foo", 1, border), ("foo", 2, 4))
        sizes = [len(bytes_of(data_of(answer, n))) for n in range(3)]
        assert all(sizes)
        assert [offsets(data_of(answer, n))[0][0] for n in range(3)] == [0, border, 4]
        assert path.executor.most_running == 2
        assert asyncio.get_running_loop().time() < 0.5

    tiered(story)


def test_local_partitions_are_read_when_the_remote_ones_are_done(
    tiered: Callable[..., None],
) -> None:
    async def story(path):
        path.executor.delay_s = 0.1
        assert path.fetch(("foo", 0, 0), ("foo", 1, 20)) is None
        context = path.context
        path.fill("foo", 1, batches=1)
        answer = await path.answered(context)
        assert offsets(data_of(answer, 1)) == [(20, 21)]

    tiered(story)


def test_the_bytes_of_a_request_are_shared_in_its_order(tiered: Callable[..., None]) -> None:
    async def story(path):
        whole = len(bytes_of(data_of(await path.fetched(("foo", 0, 0)))))
        batch = whole // 2
        limits = [
            (1, (1, 0, 0)),  # the first batch comes whole
            (batch + 10, (1, 0, 0)),
            (2 * whole, (2, 0, 0)),  # partition_max_bytes takes all there is first
            (1 << 20, (2, 2, 2)),
        ]
        for max_bytes, expected in limits:
            answer = await path.fetched(
                *[("foo", n, 0, {"partition_max_bytes": 2 * whole}) for n in range(3)],
                max_bytes=max_bytes,
            )
            got = [len(offsets(data_of(answer, n))) for n in range(3)]
            assert got == list(expected)
        answer = await path.fetched(
            *[("foo", n, 0, {"partition_max_bytes": batch}) for n in range(3)],
            max_bytes=2 * batch,
        )
        assert [len(offsets(data_of(answer, n))) for n in range(3)] == [1, 1, 0]

    tiered(story)


def test_local_records_that_come_first_have_their_share_first(tiered: Callable[..., None]) -> None:
    async def story(path):
        border = local_start(path)
        two = len(bytes_of(data_of(await path.fetched(("foo", 0, 0)))))
        local, remote = ("foo", 0, border), ("foo", 1, 0)
        limits = [(1, (1, 0)), (two // 2, (1, 0)), (two // 2 * 3, (1, 2)), (1 << 20, (1, 2))]
        for max_bytes, expected in limits:
            narrow = [(*local, {"partition_max_bytes": two // 2}), remote]
            answer = await path.fetched(*narrow, max_bytes=max_bytes)
            got = [len(offsets(data_of(answer, n))) for n in range(2)]
            assert got == list(expected)
        answer = await path.fetched(local, remote, max_bytes=two)
        assert [len(offsets(data_of(answer, n))) for n in range(2)] == [2, 0]

    tiered(story)


def test_whoever_waits_for_nothing_still_waits_for_the_remote_tier(
    tiered: Callable[..., None],
) -> None:
    """remote.fetch.max.wait.ms counts, whatever the request's own wait is."""

    async def story(path):
        path.executor.delay_s = 0.2
        started = asyncio.get_running_loop().time()
        answer = await path.fetched(("foo", 0, 0), max_wait_ms=0)
        assert offsets(data_of(answer))
        assert asyncio.get_running_loop().time() - started >= 0.2

    tiered(story)


def test_what_is_too_slow_answers_empty_and_comes_with_a_later_try(
    tiered: Callable[..., None],
) -> None:
    async def story(path):
        path.executor.delay_s = 0.6
        border = local_start(path, 1)
        started = asyncio.get_running_loop().time()
        answer = await path.fetched(("foo", 0, 0), ("foo", 1, border))
        waited = asyncio.get_running_loop().time() - started
        assert 0.49 < waited < 0.55
        slow, local = data_of(answer, 0), data_of(answer, 1)
        assert (slow.error_code, bytes_of(slow)) == (0, b"")
        assert (slow.high_watermark, slow.log_start_offset) == (20, 0)
        assert offsets(local)
        assert path.meters.count(EXPIRES) == 1
        for _ in range(3):
            answer = await path.fetched(("foo", 0, 0))
        assert offsets(data_of(answer))

    tiered(story)


def test_the_wait_is_dynamic(tiered: Callable[..., None]) -> None:
    async def story(path):
        path.executor.delay_s = 5
        path.reads.fetch_wait_ms = 50
        started = asyncio.get_running_loop().time()
        await path.fetched(("foo", 0, 0))
        assert asyncio.get_running_loop().time() - started < 0.1

    tiered(story)


def test_a_failure_is_reported_and_the_next_fetch_succeeds(tiered: Callable[..., None]) -> None:
    async def story(path):
        path.store.error = RemoteStorageError("broken")
        border = local_start(path, 1)
        answer = await path.fetched(("foo", 0, 0), ("foo", 1, border), version=12)
        failed, local = data_of(answer, 0), data_of(answer, 1)
        assert failed.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (failed.high_watermark, bytes_of(failed)) == (-1, b"")
        assert local.error_code == 0
        assert offsets(local)
        path.store.error = None
        assert offsets(data_of(await path.fetched(("foo", 0, 0))))

    tiered(story)


def test_what_may_heal_is_tried_until_the_wait_is_over(tiered: Callable[..., None]) -> None:
    async def story(path):
        path.store.error = RetriableRemoteStorageError("away")
        started = asyncio.get_running_loop().time()
        answer = await path.fetched(("foo", 0, 0))
        assert asyncio.get_running_loop().time() - started > 0.49
        assert data_of(answer).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        errors = Name(*BROKER_TOPIC_METRICS, "RemoteFetchErrorsPerSec")
        assert path.meters.count(errors, topic="foo") == 1
        assert path.fetch(("foo", 0, 0)) is None
        context = path.context
        await asyncio.sleep(0.2)
        path.store.error = None
        assert offsets(data_of(await path.answered(context)))

    tiered(story)


def test_corrupt_bytes_never_reach_a_consumer(tiered: Callable[..., None]) -> None:
    async def story(path):
        path.store.change = lambda data: data[:-7] + bytes(7)
        answer = await path.fetched(("foo", 1, 0))
        assert data_of(answer).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        path.store.change = lambda data: data
        assert offsets(data_of(await path.fetched(("foo", 1, 0))))

    tiered(story)


def test_an_expired_offset_is_out_of_range(tiered: Callable[..., None]) -> None:
    async def story(path):
        segments = next(iter(path.metadata.of.values())).segments()
        path.expire(segments[0])
        data = data_of(await path.fetched(("foo", 0, 0)))
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        data = data_of(await path.fetched(("foo", 0, segments[1].start_offset)))
        assert data.error_code == 0
        assert offsets(data)
        path.metadata.of.clear()  # nothing is known of what the log says is there
        data = data_of(await path.fetched(("foo", 1, 0)))
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    tiered(story)


def test_a_full_queue_is_an_error_of_its_partition(tiered: Callable[..., None]) -> None:
    async def story(path):
        path.executor.is_hung = True
        path.pool.threads_max = 1
        answer = await path.fetched(*[("foo", n, 0) for n in range(3)])
        errors = [data_of(answer, n).error_code for n in range(3)]
        assert errors == [0, 0, ErrorCode.UNKNOWN_SERVER_ERROR]
        path.executor.release()
        await asyncio.sleep(1)

    tiered(story, pending_max=1)


def test_the_quota_answers_empty_after_the_requests_own_wait(tiered: Callable[..., None]) -> None:
    async def story(path):
        await path.fetched(("foo", 0, 0))
        assert path.reads.is_throttled()
        calls = path.executor.calls
        answer = await path.fetched(("foo", 1, 0), max_wait_ms=0)
        data = data_of(answer)
        assert (data.error_code, bytes_of(data), data.high_watermark) == (0, b"", 20)
        for min_bytes in (1, 1000):  # parked as any that is empty
            assert path.fetch(("foo", 1, 0), max_wait_ms=700, min_bytes=min_bytes) is None
            path.timers.advance_ms(700)
            assert bytes_of(data_of(await path.answered())) == b""
        border = local_start(path, 1)
        assert offsets(data_of(await path.fetched(("foo", 1, border))))
        assert path.executor.calls == calls

    tiered(story, quota=50)


def test_a_client_that_leaves_cancels_its_reads(tiered: Callable[..., None]) -> None:
    async def story(path):
        path.executor.is_hung = True
        for number in range(200):
            assert path.fetch(*[("foo", n, number % 4 * 2) for n in range(3)]) is None
            path.context.deferred.cancel()
        await asyncio.sleep(0.1)
        assert len(path.remote_fetches.purgatory) == len(path.reads) == path.pool.pending == 0
        path.executor.release()
        await asyncio.sleep(1)
        assert path.reads.flights == path.pool.running == 0

    tiered(story)


@pytest.mark.parametrize("epoch", [-1, 0])
@pytest.mark.parametrize(
    "change",
    [
        {"leader": 2, "leader_epoch": 1, "replicas": (1, 2), "isr": (1, 2)},
        {"leader_epoch": 1},
        {"leader": 2, "leader_epoch": 1, "replicas": (2,), "isr": (2,)},
    ],
)
def test_a_partition_that_is_lost_ends_the_wait(
    tiered: Callable[..., None],
    change: dict[str, Any],
    epoch: int,
) -> None:
    async def story(path):
        path.executor.is_hung = True
        asked = ("foo", 0, 0, {"current_leader_epoch": epoch})
        assert path.fetch(asked, ("foo", 1, 0), version=9) is None  # old consumers ask leaders
        context = path.context
        path.change("foo", 0, **change)
        is_lost = "leader" in change or epoch >= 0
        if is_lost:
            answer = await path.answered(context, within_s=0.1)
            assert data_of(answer, 0).error_code in {
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.FENCED_LEADER_EPOCH,
            }
            other = data_of(answer, 1)
            assert (other.error_code, bytes_of(other), other.high_watermark) == (0, b"", 20)
        else:
            await asyncio.sleep(0.1)
            assert path.answer_of(context) is None
        path.executor.release()
        await asyncio.sleep(1)

    tiered(story)


def test_a_topic_that_is_deleted_ends_the_wait_and_its_successor_shows_nothing_of_it(
    tiered: Callable[..., None],
) -> None:
    async def story(path):
        for again in (False, True):
            path.create("bar")
            path.fill("bar")
            path.offload("bar")
            path.executor.is_hung = True
            assert path.fetch(("bar", 0, 0)) is None
            context = path.context
            path.delete("bar")
            if again:
                path.create("bar", incarnation=1)
            data = data_of(await path.answered(context, within_s=0.1))
            assert data.error_code in {
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            }
            assert bytes_of(data) == b""
            path.executor.release()
            await asyncio.sleep(1)

    tiered(story)


def test_a_session_continues_through_both_tiers(tiered: Callable[..., None]) -> None:
    async def story(path):
        answer = await path.fetched(("foo", 0, 0), session_epoch=0)
        session, epoch, seen = answer.session_id, 1, offsets(data_of(answer))
        assert session
        while seen[-1][1] < 19:
            answer = await path.fetched(
                ("foo", 0, seen[-1][1] + 1), session_id=session, session_epoch=epoch
            )
            assert answer.error_code == 0
            seen += offsets(data_of(answer))
            epoch += 1
        assert seen == [(base, base + 1) for base in range(0, 20, 2)]

    tiered(story)


def test_what_local_retention_takes_between_two_fetches_is_read_remotely(
    tiered: Callable[..., None],
) -> None:
    async def story(path):
        path.fill("foo", 0, batches=9)
        path.copy("foo")
        before = local_start(path)
        assert offsets(data_of(await path.fetched(("foo", 0, before))))
        path.partition("foo").log.delete_old_segments(ManualClock().now_ms)
        assert local_start(path) > before
        assert offsets(data_of(await path.fetched(("foo", 0, before))))[0][0] == before

    tiered(story)
