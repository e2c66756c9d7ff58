"""ListOffsets by time over both tiers, and how it waits for the remote one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.data_path import NOW_MS, batch
from support.handler_calls import make_context
from support.remote_reads import run
from support.tiered_path import TieredPath, teller
from support.vectors import load_yaml
from tidelog.metrics.meters import BROKER_TOPIC_METRICS, Name, Sample
from tidelog.network.wide_requests import PART_MAX
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import ListOffsetsRequest
from tidelog_storage.remote.api import (
    RemoteStorageError,
    RemoteStorageNotReady,
    RetriableRemoteStorageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

EXPIRES = Name("kafka.server", "DelayedRemoteListOffsetsMetrics", "ExpiresPerSec")
FETCH_ERRORS = Name(*BROKER_TOPIC_METRICS, "RemoteFetchErrorsPerSec")


@pytest.fixture
def tiered(tmp_path):
    return teller(tmp_path)


def time_of(offset):
    """Of a record of `TieredPath.fill`: batches of two, their first records by offset in seconds
    behind each other."""
    return NOW_MS + 1000 * (offset // 2) + offset % 2


def asked(path, *partitions, version=11, timeout_ms=30_000, name="foo", **options):
    """(index, timestamp, further fields) of a topic's partitions; the answer, None so far."""
    topic = ListOffsetsRequest.ListOffsetsTopic
    request = ListOffsetsRequest(
        replica_id=options.pop("replica_id", -1),
        isolation_level=options.pop("isolation_level", 0),
        timeout_ms=timeout_ms,
        topics=[
            topic(
                name=name,
                partitions=[
                    topic.ListOffsetsPartition(
                        partition_index=index, timestamp=timestamp, **(more[0] if more else {})
                    )
                    for index, timestamp, *more in partitions
                ],
            )
        ],
    )
    return path.call(ApiKey.LIST_OFFSETS, version, request)


async def found(path, *partitions, **options):
    """The partitions' answers."""
    answer = asked(path, *partitions, **options)
    if answer is None:
        answer = await path.answered()
    return [entry for topic in answer.topics for entry in topic.partitions]


def test_times_in_both_tiers(tiered: Callable[..., None]) -> None:
    async def story(path):
        border = path.partition("foo").log.local_log_start_offset
        assert 0 < border < 20
        for isolation in (0, 1):
            for offset in range(20):
                (entry,) = await found(path, (0, time_of(offset)), isolation_level=isolation)
                assert (entry.error_code, entry.offset) == (0, offset)
                assert (entry.timestamp, entry.leader_epoch) == (time_of(offset), 0)
                (entry,) = await found(path, (0, time_of(offset) - 1))
                assert entry.offset == (offset - 1 if offset % 2 else offset)
        (entry,) = await found(path, (0, time_of(20)))
        assert (entry.error_code, entry.offset, entry.timestamp) == (0, -1, -1)

    tiered(story)


def test_a_wide_request_searches_all_its_parts_at_once(tiered: Callable[..., None]) -> None:
    async def story(path):
        topic = ListOffsetsRequest.ListOffsetsTopic
        request = ListOffsetsRequest(
            replica_id=-1,
            timeout_ms=30_000,
            topics=[
                topic(
                    name="foo",
                    partitions=[
                        topic.ListOffsetsPartition(partition_index=index, timestamp=time_of(1))
                        for index in (*range(2 * PART_MAX), *range(1, PART_MAX))
                    ],
                )
            ],
        )
        context = make_context(ApiKey.LIST_OFFSETS, 11)
        response = await path.handlers[ApiKey.LIST_OFFSETS](context, request)
        (answers,) = [each.partitions for each in response.topics]
        assert len(answers) == 2 * PART_MAX
        assert (answers[0].error_code, answers[0].offset) == (0, 1)

    tiered(story)


def test_the_log_start_counts(tiered: Callable[..., None]) -> None:
    async def story(path):
        path.partition("foo").delete_records(5)
        (entry,) = await found(path, (0, 0))
        assert (entry.offset, entry.timestamp) == (5, time_of(5))

    tiered(story)


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_a_log_start_that_passes_the_border_meanwhile(
    tiered: Callable[..., None], beyond: int
) -> None:
    """What is left of the look-up is local."""

    async def story(path):
        path.create("bar")
        newest = NOW_MS + 10**6
        for timestamp in (newest, *[NOW_MS] * 10, newest):
            path.produce("bar", 0, batch(1, timestamp=timestamp), acks=1)
        path.offload("bar")
        partition = path.partition("bar")
        partition.delete_records(1)  # within the first segment, which is searched for nothing
        border = partition.log.local_log_start_offset
        assert border == 10
        path.executor.is_hung = True
        assert asked(path, (0, newest), name="bar") is None
        context = path.context
        await asyncio.sleep(0.1)
        partition.delete_records(border + beyond)
        path.executor.release()
        entry = (await path.answered(context)).topics[0].partitions[0]
        assert (entry.error_code, entry.offset, entry.timestamp) == (0, 11, newest)

    tiered(story)


def test_several_partitions_and_specials_in_one_request(tiered: Callable[..., None]) -> None:
    async def story(path):
        entries = await found(path, (0, time_of(3)), (1, -1), (2, time_of(19)), (9, 0))
        assert [(e.error_code, e.offset) for e in entries] == [(0, 3), (0, 20), (0, 19), (3, -1)]
        assert path.executor.most_running >= 1
        (entry,) = await found(path, (0, -4))
        assert entry.offset == path.partition("foo").log.local_log_start_offset

    tiered(story)


def test_what_is_local_alone_waits_for_nothing(tiered: Callable[..., None]) -> None:
    async def story(path):
        path.create("plain", configs={"remote.storage.enable": "false"})
        calls = path.executor.calls
        assert asked(path, (0, -2), (0, -2)) is not None
        assert path.executor.calls == calls

    tiered(story)


def test_a_slow_tier_times_out_what_is_open(tiered: Callable[..., None]) -> None:
    async def story(path):
        await found(path, (1, 0))  # in memory from now on
        path.executor.is_hung = True
        started = asyncio.get_running_loop().time()
        entries = await found(path, (0, time_of(0)), (1, time_of(0)), timeout_ms=700)
        assert 0.69 < asyncio.get_running_loop().time() - started < 0.75
        assert [(e.error_code, e.offset) for e in entries] == [
            (ErrorCode.REQUEST_TIMED_OUT, -1),
            (0, 0),
        ]
        partition = (("partition", "0"), ("topic", "foo"))
        counted = dict(path.meters.counts())[EXPIRES]
        assert counted == [Sample((), 1), Sample(partition, 1)], "as Kafka has it"
        path.executor.release()
        await asyncio.sleep(1)

    tiered(story)


@pytest.mark.parametrize(("version", "timeout_ms"), [(9, 0), (10, 0), (11, 0), (11, -1)])
def test_without_a_time_out_of_its_own_the_brokers_holds(
    tiered: Callable[..., None], version: int, timeout_ms: int
) -> None:
    async def story(path):
        path.reads.list_offsets_timeout_ms = 200
        path.executor.is_hung = True
        started = asyncio.get_running_loop().time()
        (entry,) = await found(path, (0, time_of(0)), version=version, timeout_ms=timeout_ms)
        assert 0.19 < asyncio.get_running_loop().time() - started < 0.25
        assert entry.error_code == ErrorCode.REQUEST_TIMED_OUT
        path.executor.release()
        await asyncio.sleep(1)

    tiered(story)


def test_failures(tiered: Callable[..., None]) -> None:
    async def story(path):
        path.store.error = RemoteStorageError("broken")
        (entry,) = await found(path, (0, 0))
        assert (entry.error_code, entry.offset) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
        assert path.meters.count(FETCH_ERRORS, topic="foo") == 0, "it is not a fetch"
        path.store.error = RetriableRemoteStorageError("away")
        assert asked(path, (0, 0)) is None
        context = path.context
        await asyncio.sleep(0.3)
        path.store.error = None
        answer = await path.answered(context)
        assert answer.topics[0].partitions[0].offset == 0

    tiered(story)


def test_metadata_that_is_still_being_read_is_waited_for(tiered: Callable[..., None]) -> None:
    async def story(path):
        path.metadata.error = RemoteStorageNotReady("not yet")
        assert asked(path, (0, 0)) is None
        context = path.context
        await asyncio.sleep(3)
        path.metadata.error = None
        answer = await path.answered(context)
        assert answer.topics[0].partitions[0].offset == 0
        path.metadata.error = RemoteStorageNotReady("not yet")
        assert asked(path, (0, 0), timeout_ms=300) is None
        answer = await path.answered(within_s=0.4)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT

    tiered(story)


def test_a_tier_that_stays_away_is_an_error_soon_not_at_the_deadline(
    tiered: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(path):
        await found(path, (1, 0))  # in memory from now on
        path.store.error = RetriableRemoteStorageError("away")
        started = asyncio.get_running_loop().time()
        entries = await found(path, (0, 0), (1, 0), (2, -1))
        passed_s = asyncio.get_running_loop().time() - started
        assert 0.49 < passed_s < 0.55, "remote.fetch.max.wait.ms"
        assert [(e.error_code, e.offset) for e in entries] == [
            (ErrorCode.UNKNOWN_SERVER_ERROR, -1),
            (0, 0),
            (0, 20),
        ]
        assert [record.getMessage() for record in caplog.records] == [
            "read of foo in the remote tier failed: away"
        ]
        path.store.error = None
        (entry,) = await found(path, (0, 0))
        assert (entry.error_code, entry.offset) == (0, 0)

    tiered(story)


@pytest.mark.parametrize("hangs", [False, True])
def test_what_is_in_trouble_at_the_deadline_is_not_merely_slow(
    tiered: Callable[..., None], caplog: pytest.LogCaptureFixture, hangs: bool
) -> None:
    async def story(path):
        path.store.error = RetriableRemoteStorageError("away")
        assert asked(path, (0, 0), timeout_ms=300) is None
        await asyncio.sleep(0.05)
        path.executor.is_hung = hangs
        answer = await path.answered(within_s=0.3)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert [record.getMessage() for record in caplog.records] == [
            "read of foo in the remote tier failed: away"
        ]
        assert dict(path.meters.counts())[EXPIRES][0] == Sample((), 1)
        assert path.meters.count(FETCH_ERRORS, topic="foo") == 0, "it is not a fetch"
        path.executor.release()
        await asyncio.sleep(1)

    tiered(story)


def test_a_full_queue_is_an_error(tiered: Callable[..., None]) -> None:
    async def story(path):
        path.executor.is_hung = True
        path.pool.threads_max = 1
        entries_context = asked(path, (0, 0), (1, 0), (2, 0))
        assert entries_context is None
        context = path.context
        await asyncio.sleep(0.1)
        path.executor.release()
        answer = await path.answered(context)
        errors = [entry.error_code for entry in answer.topics[0].partitions]
        assert errors == [0, 0, ErrorCode.UNKNOWN_SERVER_ERROR]

    tiered(story, pending_max=1)


def test_a_partition_that_is_lost_answers_so_and_the_others_go_on(
    tiered: Callable[..., None],
) -> None:
    async def story(path):
        path.executor.is_hung = True
        assert asked(path, (0, 0), (1, 0)) is None
        context = path.context
        path.change("foo", 0, leader=2, leader_epoch=1, replicas=(1, 2), isr=(1, 2))
        await asyncio.sleep(0.1)
        assert path.answer_of(context) is None
        path.executor.release()
        answer = await path.answered(context)
        entries = answer.topics[0].partitions
        assert entries[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (entries[1].error_code, entries[1].offset) == (0, 0)

    tiered(story)


def test_when_the_last_one_is_lost_the_answer_goes_out(tiered: Callable[..., None]) -> None:
    async def story(path):
        path.executor.is_hung = True
        assert asked(path, (0, 0)) is None
        context = path.context
        path.delete("foo")
        answer = await path.answered(context, within_s=0.1)
        error = answer.topics[0].partitions[0].error_code
        assert error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        path.executor.release()
        await asyncio.sleep(1)

    tiered(story)


def test_a_client_that_leaves_cancels_its_look_ups(tiered: Callable[..., None]) -> None:
    async def story(path):
        path.executor.is_hung = True
        for _ in range(50):
            assert asked(path, (0, 0), (1, 0)) is None
            path.context.deferred.cancel()
        await asyncio.sleep(0.1)
        assert len(path.remote_offsets.purgatory) == len(path.reads) == path.pool.pending == 0
        path.executor.release()
        await asyncio.sleep(1)
        assert path.reads.flights == 0

    tiered(story)


# ---- the vectors: six records in segments of two, the first four remote only ---------------------

VECTORS = load_yaml(Path(__file__).parent / "vectors" / "list-offsets-both-tiers.yaml")
BY_TIME = [
    case for case in VECTORS["cases"] if case["in"]["timestamp"] >= 0 and "state" not in case["in"]
]


def test_there_are_vectors() -> None:
    assert len(BY_TIME) == 7


def test_times_of_the_vectors(tmp_path: Path) -> None:
    given = VECTORS["given"]

    async def story():
        path = TieredPath(tmp_path)
        path.create("foo")
        for offset, timestamp in given["timestamps"]:
            epoch = max(e for e, start in given["epochs"] if start <= offset)
            if epoch != path.partition("foo").leader_epoch:
                path.change("foo", leader_epoch=epoch)
            path.produce("foo", 0, batch(1, timestamp=timestamp), acks=1)
        path.offload("foo")
        log = path.partition("foo").log
        assert [list(entry) for entry in log.epochs.entries] == given["epochs"]
        assert (log.log_start_offset, log.local_log_start_offset) == (0, given["local_start"])
        for case in BY_TIME:
            (entry,) = await found(path, (0, case["in"]["timestamp"]))
            assert entry.error_code == 0
            assert entry.offset == case["out"]["offset"], case["name"]
            assert entry.leader_epoch == case["out"]["leader_epoch"], case["name"]
        await path.reads.close()
        path.logs.abandon()

    run(story)
