"""ShareFetch and ShareAcknowledge as a share consumer sees them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from support.data_path import NODE_ID, NOW_MS, DataPath, batch
from support.share_path import SharePath, acquired
from tidelog.api import share_fetch
from tidelog.coordinators.share.values import StateBatch
from tidelog.network.dispatch import RequestContext
from tidelog.replication.reads import TRANSACTION_COMMITTED
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.shares import sessions, share_partitions
from tidelog.shares.partition_state import ShareLimits
from tidelog.shares.records import RecordState
from tidelog.shares.settings import ShareSettings
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.share_consumers import ShareFetchRequest
from tidelog_protocol.records import ControlType, build_end_transaction_marker, iter_batches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    Story = Callable[["SharePath", bytes], Awaitable[None]]
    Tell = Callable[..., None]

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    """`tell(story, **options)` plays a story on a topic foo of 2 partitions."""

    def tell_it(story: Story, **options: Any) -> None:
        async def test() -> None:
            path = DataPath(tmp_path)
            topic_id = path.create("foo", 2)
            shares = SharePath(path, **options)
            try:
                await story(shares, topic_id)
            finally:
                await shares.partitions.close()
                path.logs.abandon()

        asyncio.run(test())

    return tell_it


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def records_of(response: Any) -> list[tuple[int, int]]:
    data = response.responses[0].partitions[0]
    return [(h.base_offset, h.last_offset) for _, h in iter_batches(data.records)]


class TestFetch:
    def test_records_come_with_their_batches(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            shares.path.produce("foo", 0, batch(2))
            response = await shares.fetched((foo, 0))
            assert acquired(response) == [(0, 4, 1)]
            assert records_of(response) == [(0, 2), (3, 4)]
            assert response.acquisition_lock_timeout_ms == 30_000

        tell(story)

    def test_it_waits_for_records(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            context = shares.fetch((foo, 0))
            assert isinstance(context, RequestContext)
            shares.path.produce("foo", 0, batch(3))
            assert acquired(await shares.answer(context)) == [(0, 2, 1)]

        tell(story)

    def test_its_wait_ends(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            await shares.fetched((foo, 0))
            context = shares.fetch(min_bytes=1 << 19)
            shares.path.timers.advance_ms(499)
            shares.path.produce("foo", 0, batch(3))
            assert not context.peer.responses
            shares.path.timers.advance_ms(1)
            assert acquired(await shares.answer(context)) == [(3, 5, 1)]

        tell(story)

    def test_of_two_that_wait_one_gets_the_records(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            first = shares.fetch((foo, 0), member="a")
            second = shares.fetch((foo, 0), member="b")
            shares.path.produce("foo", 0, batch(3))
            assert acquired(await shares.answer(first)) == [(0, 2, 1)]
            await settled()
            assert not second.peer.responses
            shares.path.produce("foo", 0, batch(1))
            assert acquired(await shares.answer(second)) == [(3, 3, 1)]

        tell(story)

    def test_it_reads_about_what_it_gives(self, tell: Tell) -> None:
        sizes: list[int] = []
        read = ReplicaManager.read

        def noted(*args: Any, **options: Any) -> Any:
            results = read(*args, **options)
            sizes.append(sum(each.size for each in results))
            return results

        async def story(shares: SharePath, foo: bytes) -> None:
            for _ in range(60):
                shares.path.produce("foo", 0, batch(10, b"x" * 5000))
            for number in range(10):
                response = await shares.fetched((foo, 0), max_records=10)
                assert acquired(response) == [(10 * number, 10 * number + 9, 1)]
            assert sizes[0] > 900_000
            assert max(sizes[5:]) <= 128 << 10
            given = [acquired(await shares.fetched()) for _ in range(3)]
            ends = [(each[0][0], each[-1][1]) for each in given]
            assert ends == [(100, 119), (120, 169), (170, 269)], "as much as it takes"

        with mock.patch.object(ReplicaManager, "read", noted):
            tell(story)

    def test_groups_do_not_share(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            for group in ("g", "h"):
                response = await shares.fetched((foo, 0), member=group, group_id=group)
                assert acquired(response) == [(0, 2, 1)]

        tell(story)

    def test_the_first_fetch_of_a_group_brings_the_first_partition_with_enough(
        self, tell: Tell
    ) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            for index in range(2):
                shares.path.produce("foo", index, batch(3))
            first = await shares.fetched((foo, 0), (foo, 1))
            assert [each.partition_index for each in first.responses[0].partitions] == [0]
            assert acquired(first) == [(0, 2, 1)]
            second = await shares.fetched()
            assert [each.partition_index for each in second.responses[0].partitions] == [1]
            assert acquired(second) == [(0, 2, 1)]

        tell(story)

    def test_partitions_that_load_together_answer_with_one_of_them(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            for index in range(2):
                shares.path.produce("foo", index, batch(3))
            shares.state.hold()
            context = shares.fetch((foo, 0), (foo, 1))
            await settled()
            assert not context.peer.responses
            shares.state.let_go()
            response = await shares.answer(context)
            assert [each.partition_index for each in response.responses[0].partitions] == [0]

        tell(story)

    def test_the_first_fetch_waits_for_min_bytes_of_all_partitions(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            for index in range(2):
                shares.path.produce("foo", index, batch(3, b"x" * 100))
            response = await shares.fetched((foo, 0), (foo, 1), min_bytes=500)
            assert [each.partition_index for each in response.responses[0].partitions] == [0, 1]

        tell(story)

    def test_the_record_limit_holds_for_all_partitions(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            await shares.fetched((foo, 0), (foo, 1), max_wait_ms=0)
            for index in range(2):
                shares.path.produce("foo", index, batch(3))
            response = await shares.fetched(max_records=4, share_acquire_mode=1)
            assert acquired(response) == [(0, 2, 1)]
            assert acquired(response, 1) == [(0, 0, 1)]

        tell(story)

    def test_the_second_request_begins_with_another_partition(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            for index in range(2):
                shares.path.produce("foo", index, batch(9))
            options = {"max_records": 4, "share_acquire_mode": 1}
            responses = [
                await shares.fetched((foo, 0), (foo, 1), **options),
                await shares.fetched(**options),
            ]
            turns = [
                [each.partition_index for each in data.responses[0].partitions if each.records]
                for data in responses
            ]
            assert turns == [[0], [1]]

        tell(story)

    def test_another_request_on_the_connection_hurries_it(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            await shares.fetched((foo, 0), max_wait_ms=0)
            context = shares.fetch()
            context.deferred.hurry()
            assert acquired(await shares.answer(context)) == []

        tell(story)

    def test_a_closed_connection_acquires_nothing(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            context = shares.fetch((foo, 0))
            context.deferred.cancel()
            shares.path.produce("foo", 0, batch(3))
            await settled()
            assert acquired(await shares.fetched((foo, 0), member="n")) == [(0, 2, 1)]

        tell(story)

    def test_a_read_moves_with_the_start_of_the_log(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            for _ in range(3):
                shares.path.produce("foo", 0, batch(2))
            assert acquired(await shares.fetched((foo, 0), max_records=1)) == [(0, 1, 1)]
            shares.path.partition("foo").log.maybe_increment_log_start(4, "test")
            assert acquired(await shares.fetched(max_wait_ms=0)) == []
            assert acquired(await shares.fetched()) == [(4, 5, 1)]

        tell(story)

    def test_latest_begins_at_the_end(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            context = shares.fetch((foo, 0))
            await settled()
            shares.path.produce("foo", 0, batch(1))
            assert acquired(await shares.answer(context)) == [(3, 3, 1)]

        tell(story, settings=ShareSettings())

    def test_a_duration_begins_at_its_time(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            now = shares.path.clock.now_ms
            shares.path.produce("foo", 0, batch(1, timestamp=now - 7_200_000))
            shares.path.produce("foo", 0, batch(1, timestamp=now - 1000))
            assert acquired(await shares.fetched((foo, 0))) == [(1, 1, 1)]
            assert acquired(await shares.fetched((foo, 1), max_wait_ms=0)) == []

        tell(story, settings=ShareSettings(offset_reset="by_duration:PT1H"))

    def test_aborted_records_are_left_out(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            log = shares.path.partition("foo")
            options = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
            shares.path.produce("foo", 0, batch(2))
            log.append(batch(2, base_sequence=0, **options), acks=1, now_ms=NOW_MS)
            marker = build_end_transaction_marker(
                ControlType.ABORT,
                producer_id=7,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=0,
            )
            log.append(memoryview(bytearray(marker)), acks=1, now_ms=NOW_MS, from_client=False)
            shares.path.produce("foo", 0, batch(1))
            response = await shares.fetched((foo, 0))
            assert acquired(response) == [(0, 1, 1), (4, 5, 1)]
            await shares.acknowledged((foo, 0, (0, 1, [ACCEPT]), (4, 5, [0, ACCEPT])))
            state = shares.partitions.lead("g", (foo, 0)).state
            assert state is not None
            assert state.start_offset == 6

        tell(story, settings=ShareSettings(ShareLimits(), TRANSACTION_COMMITTED, "earliest"))


class TestAcknowledge:
    def test_accepted_records_do_not_come_again(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            await shares.fetched((foo, 0))
            response = await shares.acknowledged((foo, 0, (0, 2, [ACCEPT])))
            [data] = response.responses[0].partitions
            assert (data.error_code, response.acquisition_lock_timeout_ms) == (0, 30_000)
            assert shares.state.writes[0].batches == (StateBatch(0, 2, 2, 1),)
            assert acquired(await shares.fetched(max_wait_ms=0)) == []

        tell(story)

    def test_released_ones_wake_another_member(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            await shares.fetched((foo, 0), member="a")
            waiting = shares.fetch((foo, 0), member="b")
            await shares.acknowledged((foo, 0, (1, 2, [RELEASE])), member="a")
            assert acquired(await shares.answer(waiting)) == [(1, 2, 2)]

        tell(story)

    def test_with_a_fetch(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            await shares.fetched((foo, 0))
            shares.path.produce("foo", 0, batch(1))
            response = await shares.fetched((foo, 0, (0, 2, [ACCEPT])))
            assert acquired(response) == [(3, 3, 1)]
            assert response.responses[0].partitions[0].acknowledge_error_code == 0
            response = await shares.fetched((foo, 0, (0, 2, [9])), max_wait_ms=0)
            [data] = response.responses[0].partitions
            assert data.acknowledge_error_code == ErrorCode.INVALID_REQUEST

        tell(story)

    def test_a_lock_ends(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            await shares.fetched((foo, 0), member="a")
            waiting = shares.fetch((foo, 0), member="b", max_wait_ms=60_000)
            shares.path.timers.advance_ms(30_000)
            assert acquired(await shares.answer(waiting)) == [(0, 2, 2)]
            await settled()
            stored = StateBatch(0, 2, RecordState.AVAILABLE, 1)
            assert shares.state.writes[-1].batches == (stored,), "the next leader counts it"
            response = await shares.acknowledged((foo, 0, (0, 2, [ACCEPT])), member="a")
            [data] = response.responses[0].partitions
            assert data.error_code == ErrorCode.INVALID_RECORD_STATE

        tell(story)

    def test_a_renewal_keeps_it(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            await shares.fetched((foo, 0))
            shares.path.timers.advance_ms(20_000)
            request = (foo, 0, (0, 2, [RENEW]))
            response = await shares.acknowledged(request, is_renew_ack=True)
            assert response.responses[0].partitions[0].error_code == 0
            shares.path.timers.advance_ms(20_000)
            response = await shares.acknowledged((foo, 0, (0, 2, [ACCEPT])))
            assert response.responses[0].partitions[0].error_code == 0

        tell(story)

    def test_renewals_are_checked(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            await shares.fetched((foo, 0))
            response = await shares.fetched((foo, 0, (0, 2, [RENEW])), is_renew_ack=True)
            assert response.error_code == ErrorCode.INVALID_REQUEST
            none = dict.fromkeys(("max_bytes", "min_bytes", "max_records", "max_wait_ms"), 0)
            shares.epochs["m"] = 1
            response = await shares.fetched((foo, 0, (0, 2, [RENEW])), is_renew_ack=True, **none)
            [data] = response.responses[0].partitions
            assert (data.acknowledge_error_code, data.acquired_records) == (0, [])
            response = await shares.acknowledged((foo, 0, (0, 2, [RENEW])))
            assert response.responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST

        tell(story)

    def test_what_cannot_be_stored_is_held_still(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            await shares.fetched((foo, 0))
            shares.state.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            response = await shares.acknowledged((foo, 0, (0, 2, [ACCEPT])))
            error = response.responses[0].partitions[0].error_code
            assert error == ErrorCode.COORDINATOR_NOT_AVAILABLE
            shares.state.error = ErrorCode.NONE
            response = await shares.acknowledged((foo, 0, (0, 2, [ACCEPT])))
            assert response.responses[0].partitions[0].error_code == 0
            stored = StateBatch(0, 2, RecordState.ACKNOWLEDGED, 1)
            assert [each.batches for each in shares.state.writes] == [(stored,)]

        tell(story)

    def test_changes_are_written_one_after_the_other(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            await shares.fetched((foo, 0))
            shares.state.hold()
            asking = [
                asyncio.ensure_future(
                    shares.acknowledged((foo, 0, (each, each, [ACCEPT])), epoch=each + 1)
                )
                for each in range(3)
            ]
            await settled()
            shares.state.let_go()
            for response in await asyncio.gather(*asking):
                assert response.responses[0].partitions[0].error_code == 0
            assert [len(each.batches) for each in shares.state.writes] == [1, 2]
            assert [each.start_offset for each in shares.state.writes] == [0, 1]

        tell(story)

    @pytest.mark.parametrize(
        "acks",
        [
            [(2, 1, [1])],
            [(1, 2, [1]), (0, 0, [1])],
            [(0, 1, [])],
            [(0, 2, [1, 1])],
            [(0, 0, [-1])],
        ],
        ids=str,
    )
    def test_malformed_batches(self, tell: Tell, acks: list[Any]) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            await shares.fetched((foo, 0))
            response = await shares.acknowledged((foo, 0, *acks))
            assert response.responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
            assert not shares.state.writes

        tell(story)

    def test_unknown_places(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            await shares.fetched((foo, 0), max_wait_ms=0)
            response = await shares.acknowledged(
                (bytes(15) + b"\7", 0, (0, 0, [1])), (foo, 9, (0, 0, [1]))
            )
            errors = [topic.partitions[0].error_code for topic in response.responses]
            assert errors == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            response = await shares.acknowledged((foo, 0), (foo, 9))
            [data] = response.responses[0].partitions
            assert (data.partition_index, data.error_code) == (
                9,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ), "also without batches"

        tell(story)

    def test_partitions_without_batches_are_answered_beside_others(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            await shares.fetched((foo, 0))
            response = await shares.acknowledged((foo, 0, (0, 0, [1])), (foo, 1))
            found = [
                (data.partition_index, data.error_code)
                for topic in response.responses
                for data in topic.partitions
            ]
            assert sorted(found) == [(0, 0), (1, 0)]

        tell(story)

    def test_a_fetch_of_no_records_tells_of_unknown_partitions(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            response = await shares.fetched((foo, 9), max_records=0, max_wait_ms=0)
            [data] = response.responses[0].partitions
            assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        tell(story)


class TestSessions:
    def test_an_answer_names_what_is_new(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            response = await shares.fetched((foo, 0), max_wait_ms=0)
            assert len(response.responses[0].partitions) == 1
            response = await shares.fetched((foo, 1), max_wait_ms=0)
            assert [each.partition_index for each in response.responses[0].partitions] == [1]
            assert (await shares.fetched(max_wait_ms=0)).responses == []

        tell(story)

    def test_forgotten_partitions_are_not_read(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            await shares.fetched((foo, 0), (foo, 1), max_wait_ms=0)
            shares.path.produce("foo", 0, batch(1))
            forgotten = [_forgotten(foo, 0)]
            response = await shares.fetched(max_wait_ms=0, forgotten_topics_data=forgotten)
            assert response.responses == []

        tell(story)

    def test_its_epochs(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            for epoch, error in (
                (3, ErrorCode.SHARE_SESSION_NOT_FOUND),
                (-1, ErrorCode.SHARE_SESSION_NOT_FOUND),
                (0, ErrorCode.NONE),
                (2, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
                (1, ErrorCode.NONE),
            ):
                response = await shares.fetched((foo, 0), epoch=epoch, max_wait_ms=0)
                assert response.error_code == error
            for epoch, error in (
                (0, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
                (5, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
                (2, ErrorCode.NONE),
            ):
                assert (await shares.acknowledged(epoch=epoch)).error_code == error

        tell(story)

    def test_the_first_request_acknowledges_nothing(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            response = await shares.fetched((foo, 0, (0, 0, [1])))
            assert response.error_code == ErrorCode.INVALID_REQUEST

        tell(story)

    @pytest.mark.parametrize(
        "options", [{"group_id": None}, {"member": ""}, {"member": "x" * 37}], ids=str
    )
    def test_ids_are_checked(self, tell: Tell, options: dict[str, Any]) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            response = await shares.fetched((foo, 0), **options)
            assert response.error_code == ErrorCode.INVALID_REQUEST
            response = await shares.acknowledged(epoch=1, **options)
            assert response.error_code == ErrorCode.INVALID_REQUEST

        tell(story)

    def test_closing_releases_what_is_held(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            await shares.fetched((foo, 0), member="a")
            waiting = shares.fetch((foo, 0), member="b")
            await shares.acknowledged((foo, 0, (0, 0, [ACCEPT])), member="a", epoch=-1)
            assert acquired(await shares.answer(waiting)) == [(1, 2, 2)]
            response = await shares.fetched(member="a", epoch=2)
            assert response.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND

        tell(story)

    def test_it_ends_with_its_connection(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            await shares.fetched((foo, 0), member="a")
            waiting = shares.fetch((foo, 0), member="b")
            shares.disconnect("a")
            assert acquired(await shares.answer(waiting)) == [(0, 2, 2)]
            shares.disconnect("b")
            await settled()
            assert (len(shares.partitions), len(shares.partitions.sessions)) == (0, 0)
            assert acquired(await shares.fetched((foo, 0), member="c")) == [(0, 2, 3)]

        tell(story)

    def test_a_request_reads_the_first_of_thousands_of_partitions(
        self, tell: Tell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(share_fetch, "LED_AT_ONCE", 1)

        async def story(shares: SharePath, foo: bytes) -> None:
            for index in range(2):
                shares.path.produce("foo", index, batch(3))
            first = await shares.fetched((foo, 0), (foo, 1))
            assert [each.partition_index for each in first.responses[0].partitions] == [0]
            second = await shares.fetched()
            assert [each.partition_index for each in second.responses[0].partitions] == [1]

        tell(story)

    def test_a_large_session_ends_in_parts(
        self, tell: Tell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(share_partitions, "RELEASED_AT_ONCE", 1)

        async def story(shares: SharePath, foo: bytes) -> None:
            for index in range(2):
                shares.path.produce("foo", index, batch(3))
            await shares.fetched((foo, 0), (foo, 1), member="a")
            await shares.fetched(member="a")
            first = shares.fetch((foo, 0), member="b")
            second = shares.fetch((foo, 1), member="c")
            shares.disconnect("a")
            assert acquired(await shares.answer(first)) == [(0, 2, 2)]
            assert acquired(await shares.answer(second)) == [(0, 2, 2)]
            shares.disconnect("b")
            shares.disconnect("c")
            await settled()
            assert (len(shares.partitions), len(shares.partitions.sessions)) == (0, 0)

        tell(story)

    def test_a_member_that_comes_while_a_group_ends_is_served(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            await shares.fetched((foo, 0), member="a")
            shares.state.hold()
            shares.disconnect("a")
            waiting = shares.fetch((foo, 0), member="b")
            await settled()
            shares.state.let_go()
            assert acquired(await shares.answer(waiting)) == [(0, 2, 2)]
            assert len(shares.partitions) == 1

        tell(story)

    def test_their_number_is_limited(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            await shares.fetched((foo, 0), member="a", max_wait_ms=0)
            context = shares.fetch((foo, 0), member="b")
            assert isinstance(context, RequestContext)
            shares.path.timers.advance_ms(500)
            response = await shares.answer(context)
            assert response.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
            assert (
                await shares.fetched((foo, 0), member="a", epoch=0, max_wait_ms=0)
            ).error_code == 0

        tell(story, sessions_max=1)


def test_the_largest_session_is_closed_for_the_limit_of_all_partitions(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "PARTITIONS_MAX", 3)

    async def story(shares: SharePath, foo: bytes) -> None:
        shares.path.produce("foo", 0, batch(3))
        assert acquired(await shares.fetched((foo, 0), (foo, 1), member="a")) == [(0, 2, 1)]
        await shares.fetched((foo, 0), member="b", max_wait_ms=0)
        assert shares.partitions.sessions.partition_count == 3
        opened = await shares.fetched((foo, 1), member="c", max_wait_ms=0)
        assert opened.error_code == ErrorCode.NONE
        assert acquired(await shares.fetched(member="b", epoch=1)) == [(0, 2, 2)], "released"
        late = await shares.fetched(member="a", epoch=1, max_wait_ms=0)
        assert late.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        grown = await shares.fetched((foo, 0), (foo, 2), member="c", epoch=1, max_wait_ms=0)
        assert grown.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED

    tell(story)


def test_without_the_feature_both_apis_are_refused(tell: Tell) -> None:
    async def story(shares: SharePath, foo: bytes) -> None:
        shares.path.apply(features={})
        for response in (await shares.fetched((foo, 0)), await shares.acknowledged(epoch=1)):
            assert response.error_code == ErrorCode.UNSUPPORTED_VERSION

    tell(story)


class TestLeaders:
    def test_another_leader_is_named(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            waiting = shares.fetch((foo, 0))
            await settled()
            shares.path.change("foo", leader=NODE_ID + 1, leader_epoch=1, replicas=(1, 2), isr=(2,))
            response = await shares.answer(waiting)
            [data] = response.responses[0].partitions
            assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            leader = data.current_leader
            assert (leader.leader_id, leader.leader_epoch) == (NODE_ID + 1, 1)
            assert len(shares.partitions) == 0

        tell(story)

    def test_unknown_topics(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            response = await shares.fetched((bytes(15) + b"\7", 0), (foo, 9))
            errors = [topic.partitions[0].error_code for topic in response.responses]
            assert errors == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

        tell(story)

    def test_a_state_that_cannot_be_read(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.state.error = ErrorCode.FENCED_LEADER_EPOCH
            response = await shares.fetched((foo, 0))
            [data] = response.responses[0].partitions
            assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            shares.state.error = ErrorCode.NONE
            shares.path.produce("foo", 0, batch(1))
            assert acquired(await shares.fetched()) == [(0, 0, 1)]

        tell(story)

    def test_a_new_leader_goes_on_from_the_stored_state(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            await shares.fetched((foo, 0))
            await shares.acknowledged((foo, 0, (0, 1, [ACCEPT])))
            again = SharePath(shares.path)
            again.state.states = shares.state.states
            assert acquired(await again.fetched((foo, 0))) == [(2, 2, 1)]
            await again.partitions.close()

        tell(story)

    def test_a_fenced_leader_gives_up(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            shares.path.produce("foo", 0, batch(3))
            await shares.fetched((foo, 0))
            shares.state.error = ErrorCode.FENCED_STATE_EPOCH
            response = await shares.acknowledged((foo, 0, (0, 2, [ACCEPT])))
            error = response.responses[0].partitions[0].error_code
            assert error == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert len(shares.partitions) == 0

        tell(story)

    def test_a_deleted_topic(self, tell: Tell) -> None:
        async def story(shares: SharePath, foo: bytes) -> None:
            waiting = shares.fetch((foo, 0))
            await settled()
            shares.path.delete("foo")
            response = await shares.answer(waiting)
            assert response.responses[0].partitions[0].error_code != 0
            assert len(shares.partitions) == 0

        tell(story)


def _forgotten(topic_id: bytes, *partitions: int) -> Any:
    return ShareFetchRequest.ForgottenTopic(topic_id=topic_id, partitions=list(partitions))
