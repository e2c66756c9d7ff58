"""Share consumers of records in the remote tier."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.share_path import SharePath, acquired
from support.tiered_path import teller
from tidelog.network.dispatch import RequestContext
from tidelog.shares.settings import ShareSettings
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.remote.api import RemoteStorageError, RetriableRemoteStorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from support.tiered_path import TieredPath

    Story = Callable[[SharePath, bytes], Awaitable[None]]
    Tell = Callable[..., None]


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    """`tell(story)` plays a story on a topic foo whose 20 records are mostly remote."""
    play = teller(tmp_path)

    def tell_it(story: Story, **options: Any) -> None:
        async def test(path: TieredPath) -> None:
            shares = SharePath(path, remote=path.reads, **options)
            try:
                await story(shares, path.image.topics["foo"].topic_id)
                assert not len(shares.partitions.remote_purgatory)
            finally:
                await shares.partitions.close()

        play(test)

    return tell_it


def test_a_group_reads_across_the_border_of_the_tiers(tell: Tell) -> None:
    async def story(shares: SharePath, foo: bytes) -> None:
        seen: list[int] = []
        response = await shares.fetched((foo, 0), max_records=3)
        while True:
            new = acquired(response)
            assert new == sorted(new)
            seen += [each for first, last, _ in new for each in range(first, last + 1)]
            if len(seen) >= 20:
                break
            acks = [(first, last, [1]) for first, last, _ in new]
            response = await shares.fetched((foo, 0, *acks), max_records=3)
        assert seen == list(range(20))

    tell(story)


def test_while_one_member_reads_there_no_other_does(tell: Tell) -> None:
    async def story(shares: SharePath, foo: bytes) -> None:
        first = shares.fetch((foo, 0), member="a", max_records=2)
        second = shares.fetch((foo, 0), member="b", max_records=2)
        assert isinstance(second, RequestContext)
        assert acquired(await shares.answer(first)) == [(0, 1, 1)]
        assert acquired(await shares.answer(second)) == [(2, 3, 1)]

    tell(story)


def test_a_closed_connection_lets_others_read(tell: Tell) -> None:
    async def story(shares: SharePath, foo: bytes) -> None:
        first = shares.fetch((foo, 0), member="a")
        second = shares.fetch((foo, 0), member="b", max_records=2)
        first.deferred.cancel()
        assert acquired(await shares.answer(second)) == [(0, 1, 1)]

    tell(story)


@pytest.mark.parametrize("error", [RemoteStorageError, RetriableRemoteStorageError])
def test_a_failure_is_answered_and_the_next_fetch_succeeds(
    tell: Tell, error: type[Exception]
) -> None:
    async def story(shares: SharePath, foo: bytes) -> None:
        store = shares.path.store  # type: ignore[attr-defined]
        store.error = error("broken")
        response = await shares.fetched((foo, 0))
        assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        store.error = None
        assert acquired(await shares.fetched(max_records=1)) == [(0, 1, 1)]

    tell(story)


def test_the_wait_for_a_slow_store_ends(tell: Tell) -> None:
    async def story(shares: SharePath, foo: bytes) -> None:
        shares.path.executor.delay_s = 0.6  # type: ignore[attr-defined]
        began = asyncio.get_running_loop().time()
        assert acquired(await shares.fetched((foo, 0), max_wait_ms=0)) == []
        assert 0.49 < asyncio.get_running_loop().time() - began < 0.55
        while not acquired(response := await shares.fetched(max_records=1)):
            pass
        assert acquired(response) == [(0, 1, 1)]

    tell(story)


def test_a_duration_may_begin_in_the_remote_tier(tell: Tell) -> None:
    async def story(shares: SharePath, foo: bytes) -> None:
        shares.path.clock.now_ms += 2000
        assert acquired(await shares.fetched((foo, 0), max_records=1)) == [(4, 5, 1)]

    tell(story, settings=ShareSettings(offset_reset="by_duration:PT0S"))
