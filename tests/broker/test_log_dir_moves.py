"""Moves between log directories, as a broker makes them: AlterReplicaLogDirs and what follows."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.data_path import NOW_MS, DataPath, batch, data_of, topic_id
from support.mover import OTHER, LoopClock, Mover, everything, played, until
from tidelog.cluster.metadata.image import PartitionImage, TopicImage
from tidelog.replication.local_leader import MovePace
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import AlterReplicaLogDirsRequest
from tidelog_protocol.records import ControlType, build_end_transaction_marker
from tidelog_storage.checkpoints import write_partition_metadata
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.types import StorageError, TopicPartition

# -- what is asked -------------------------------------------------------------------------------


@played
async def test_a_replica_moves(mover: Mover) -> None:
    partition = mover.create(batches=5)
    before = everything(partition.log)
    assert mover.alter(mover.dirs[1], version=1) == [0]
    assert mover.describe() == {(mover.dirs[0], False): 0, (mover.dirs[1], True): 10}
    log = await mover.moved(1)
    assert mover.describe() == {(mover.dirs[1], False): 0}
    assert everything(log) == before
    assert (log.high_watermark, log.log_end_offset) == (10, 10)
    assert log.recovery_point == 10
    mover.produce()
    assert log.log_end_offset == 12
    assert mover.path.partition("a") is partition
    assert mover.alter(mover.dirs[1]) == [0], "it is there"
    assert not mover.moves._moves
    assert not mover.moves._fetchers
    assert mover.alter(mover.dirs[0]) == [0]
    assert everything(await mover.moved(0))[: len(before)] == before


@played
async def test_an_empty_replica_moves(mover: Mover) -> None:
    mover.create()
    assert mover.alter(mover.dirs[2]) == [0]
    log = await mover.moved(2)
    mover.produce()
    assert log.epochs.entries == [(0, 0)]
    await mover.restart()
    assert mover.path.partition("a").log.log_end_offset == 2


@played
async def test_many_replicas_move_and_those_of_one_fetcher_one_by_one(mover: Mover) -> None:
    names = [f"t{number}" for number in range(7)]
    for name in names:
        mover.create(name, batches=3)
    assert mover.alter(mover.dirs[1], *names) == [0] * 7
    assert len(mover.moves._fetchers) <= 3
    for name in names:
        assert (await mover.moved(1, name)).log_end_offset == 6


@played
async def test_errors(mover: Mover) -> None:
    mover.create()
    assert mover.alter("nowhere") == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert mover.alter(mover.dirs[1], "none") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    long_name = "l" * 215  # with partition, id and suffix 256 characters
    assert mover.alter(mover.dirs[1], long_name) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert mover.alter("nowhere", long_name) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    state = PartitionImage(0, OTHER, 0, 0, (OTHER,), (OTHER,))
    there = TopicImage("there", topic_id("there"), (state,))
    mover.path.apply(topics={**mover.path.image.topics, "there": there})
    assert mover.alter(mover.dirs[1], "there") == [ErrorCode.REPLICA_NOT_AVAILABLE]
    mover.replicas._offline["off", 0] = bytes(16)
    assert mover.alter(mover.dirs[1], "off") == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_relative_directories_have_absolute_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def play() -> None:
        mover = Mover(Path("here"))
        mover.create()
        assert mover.describe() == {(f"{tmp_path}/here/one", False): 0}
        assert mover.alter("here/two") == [ErrorCode.LOG_DIR_NOT_FOUND]
        assert mover.alter(f"{tmp_path}/here/two") == [0]
        await mover.moved(1)
        await mover.stop()

    asyncio.run(play())


@played
async def test_what_is_not_here_yet_is_created_where_it_was_asked_to_be(mover: Mover) -> None:
    for where in (2, 1):
        asked = mover.alter(mover.dirs[where], "new")
        assert asked == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    mover.path.create("new")
    assert mover.logs.log_dir(TopicPartition("new", 0)) == mover.dirs[1]


@played
async def test_of_a_replica_named_twice_the_last_place_counts(mover: Mover) -> None:
    mover.create(batches=1)
    one = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topic = one.AlterReplicaLogDirTopic(name="a", partitions=[0, 9])
    request = AlterReplicaLogDirsRequest(
        dirs=[one(path=mover.dirs[where], topics=[topic]) for where in (1, 2)]
    )
    response = mover.path.call(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, request)
    (result,) = response.results
    assert [(one.partition_index, one.error_code) for one in result.partitions] == [
        (0, 0),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    await mover.moved(2)


@played
async def test_a_move_is_given_up_or_goes_elsewhere(mover: Mover) -> None:
    partition = mover.create(batches=60)
    half = await mover.half()
    assert mover.describe()[mover.dirs[1], True] == 120 - half.log_end_offset > 0
    assert mover.alter(mover.dirs[1]) == [0]
    assert partition.future is not None
    assert partition.future.log is half, "it goes on"
    assert mover.alter(mover.dirs[2]) == [0]
    assert partition.future.log is not half
    assert mover.alter(mover.dirs[0]) == [0]
    assert partition.future is None
    assert mover.describe() == {(mover.dirs[0], False): 0}
    assert mover.alter(mover.dirs[2]) == [0]
    await mover.moved(2)


# -- while it moves ------------------------------------------------------------------------------


@played
async def test_it_is_written_to_all_the_time(mover: Mover) -> None:
    partition = mover.create(batches=50)
    expected = 100

    async def write() -> None:
        nonlocal expected
        while True:
            mover.produce(value=b"v" * 500)
            expected += 2
            await asyncio.sleep(0.001)

    writer = asyncio.ensure_future(write())
    assert mover.alter(mover.dirs[1]) == [0]
    log = await mover.moved(1)
    writer.cancel()
    assert partition.log is log
    assert log.log_end_offset == log.high_watermark == expected
    assert mover.threads.runs <= 3, "it is not flushed again and again"


@played
async def test_a_parked_fetch_gets_what_comes_after_the_move(mover: Mover) -> None:
    mover.create(batches=1)
    assert mover.path.fetch(("a", 0, 2), max_wait_ms=60_000) is None
    context = mover.path.context
    assert mover.alter(mover.dirs[1]) == [0]
    await mover.moved(1)
    mover.produce()
    mover.replicas.appended([("a", 0)])
    answer = DataPath.answer_of(context)
    assert data_of(answer).records


@played
async def test_deleted_records_are_gone_when_they_are_in_both(mover: Mover) -> None:
    partition = mover.create(batches=60)
    await mover.half()
    assert partition.delete_records(101) == 101
    assert partition.low_watermark == 0
    mover.hold(held=False)
    log = await mover.moved(1)
    assert partition.low_watermark == log.log_start_offset == 101


@played
async def test_a_log_that_begins_late(mover: Mover) -> None:
    partition = mover.create(batches=6)
    partition.delete_records(7)
    assert mover.alter(mover.dirs[1]) == [0]
    log = await mover.moved(1)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (7, 12, 12)
    await mover.restart()
    log = mover.path.partition("a").log
    assert (log.log_start_offset, log.log_end_offset) == (7, 12)


@played
async def test_transactions_and_sequences_continue(mover: Mover) -> None:
    partition = mover.create(batches=1)
    producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    partition.log.append_as_leader(
        batch(2, base_sequence=0, **producer), leader_epoch=0, now_ms=NOW_MS
    )
    assert partition.log.last_stable_offset == 2
    assert mover.alter(mover.dirs[1]) == [0]
    log = await mover.moved(1)
    assert log.last_stable_offset == 2
    again = log.append_as_leader(
        batch(2, base_sequence=0, **producer), leader_epoch=0, now_ms=NOW_MS
    )
    assert again.duplicate
    with pytest.raises(StorageError):
        log.append_as_leader(batch(2, base_sequence=5, **producer), leader_epoch=0, now_ms=NOW_MS)
    log.append_as_leader(batch(1, base_sequence=2, **producer), leader_epoch=0, now_ms=NOW_MS)
    marker = build_end_transaction_marker(
        ControlType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1
    )
    log.append_as_leader(
        memoryview(bytearray(marker)), leader_epoch=0, now_ms=NOW_MS, from_client=False
    )
    partition.advance_high_watermark()
    log.set_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 6
    assert [one.first_offset for one in log.aborted_transactions(0, 6)] == [2]


@played
async def test_a_leader_epoch_without_records_is_not_forgotten(mover: Mover) -> None:
    mover.create(batches=1)
    mover.path.change("a", leader_epoch=4)
    assert mover.alter(mover.dirs[1]) == [0]
    log = await mover.moved(1)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (4, 2)]


@played
async def test_a_new_leader_epoch_in_the_middle(mover: Mover) -> None:
    partition = mover.create(batches=60)
    await mover.half()
    mover.path.change("a", leader_epoch=4)
    mover.produce()
    assert partition.future is not None
    assert partition.future.leader_epoch == 4
    log = await mover.moved(1)
    assert log.log_end_offset == 122
    assert log.epochs.latest_epoch == 4


@played
async def test_a_follower_is_cut_while_it_moves(mover: Mover) -> None:
    partition = mover.follow([0, 0, 1, 1])
    mover.hold()
    mover.moves._pace.record(1)
    assert mover.alter(mover.dirs[1]) == [0]
    future = partition.future
    assert future is not None
    mover.hold(held=False)
    mover.moves._pace.record(0)
    await until(lambda: future.log.log_end_offset == 4)
    mover.hold()
    # Another leader was elected, whose log parts from ours after the second record.
    mover.path.change("a", leader_epoch=2)
    partition.followed_log(2).truncate_to(2, 0)
    mover.replicate(partition, 2, 2, 2)
    log = await mover.moved(1)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (2, 2)]
    assert log.log_end_offset == 5
    assert everything(log).count(b"1", 0) == everything(partition.log).count(b"1", 0)


@played
async def test_equal_ends_are_not_enough(mover: Mover) -> None:
    """The current log was cut and has grown again to the same length, with other records."""
    partition = mover.follow([0, 0, 1, 1])
    assert mover.alter(mover.dirs[1]) == [0]
    future = partition.future
    assert future is not None
    log = future.log
    # As a crash leaves it that came before the move's last step.
    for position in range(4):
        outcome: Any = partition.log.read(position, 1, upper_bound=4)
        log.append_as_follower(memoryview(b"".join(outcome.parts)), leader_epoch=9, now_ms=0)
    mover.path.change("a", leader_epoch=2)
    partition.followed_log(2).truncate_to(2, 0)
    mover.replicate(partition, 2, 2)
    assert log.log_end_offset == partition.log.log_end_offset == 4
    expected = everything(partition.log)
    assert everything(await mover.moved(1)) == expected
    assert [tuple(entry) for entry in partition.log.epochs.entries] == [(0, 0), (2, 2)]


@played
async def test_a_deleted_topic_ends_its_move(mover: Mover) -> None:
    mover.create(batches=60)
    await mover.half()
    mover.path.delete("a")
    assert not mover.logs.is_moving(TopicPartition("a", 0))
    assert mover.describe() == {}
    mover.hold(held=False)
    await asyncio.sleep(10)
    assert not mover.moves._fetchers


@played
async def test_a_move_is_taken_up_after_a_stop(mover: Mover) -> None:
    mover.create(batches=60)
    half = (await mover.half()).log_end_offset
    await mover.restart()
    future = mover.path.partition("a").future
    assert future is not None
    assert future.log.log_end_offset == half
    log = await mover.moved(1)
    assert log.log_end_offset == 120


@played
async def test_a_move_of_a_topic_that_is_deleted_meanwhile_is_set_aside(mover: Mover) -> None:
    """The future log stayed until the next start (seed 7 with log directories)."""
    mover.create(batches=60)
    await mover.half()
    await mover.stop()
    mover.start(mover.path.image._replace(topics={}, topic_names={}))
    assert mover.logs.future_partitions() == []
    assert mover.describe() == {}
    strays = [path.parent.name for path in mover.folder.rglob("*-stray")]
    assert sorted(strays) == ["one", "two"]


@played
async def test_a_broker_that_stops_takes_no_move_up(mover: Mover) -> None:
    mover.create(batches=60)
    await mover.half()
    await mover.moves.close()
    mover.path.change("a", leader_epoch=4)
    await asyncio.sleep(1)
    assert mover.path.partition("a").future is None
    assert mover.logs.is_moving(TopicPartition("a", 0))


@played
async def test_a_future_folder_left_by_a_failed_disk_is_replaced(mover: Mover) -> None:
    mover.create(batches=60)
    half = await mover.half()
    mover.moves._end(("a", 0))  # as after a disk's failure, which left the folder there
    assert mover.alter(mover.dirs[1]) == [0]
    future = mover.path.partition("a").future
    assert future is not None
    assert future.log is not half
    await mover.moved(1)


@played
async def test_a_move_for_a_topic_that_is_gone_is_not_taken_up(mover: Mover) -> None:
    mover.create(batches=60)
    half = await mover.half()
    folder = half.folder
    await mover.stop()
    write_partition_metadata(OsFileSystem(syncs=False), folder, bytes(15) + b"\1")
    mover.start(mover.path.image)
    assert mover.path.partition("a").future is None
    assert mover.describe() == {(mover.dirs[0], False): 0}


@played
async def test_a_directory_that_fails_ends_the_move(mover: Mover) -> None:
    mover.create(batches=3)
    assert mover.alter(mover.dirs[1]) == [0]
    future = mover.path.partition("a").future
    assert future is not None

    def fail(*_: Any) -> int:
        raise OSError(errno.EIO, "disk")

    future.log.segments.active._records = SimpleNamespace(
        append=fail, close=lambda: None, size=lambda: 0
    )
    await until(lambda: bool(mover.failed))
    assert mover.failed == [mover.dirs[1]]
    assert mover.describe() == {(mover.dirs[0], False): 0}
    mover.produce()


@played
async def test_a_directory_that_fails_at_something_else_ends_the_moves_to_it(mover: Mover) -> None:
    mover.create(batches=30)
    await mover.half()
    error = OSError(errno.EIO, "disk")
    mover.moves.directory_failed(mover.dirs[1], error)
    mover.replicas.directory_failed(mover.dirs[1], error)
    mover.hold(held=False)
    await asyncio.sleep(10)
    assert mover.path.partition("a").future is None
    assert not mover.logs.is_moving(TopicPartition("a", 0))
    assert mover.describe() == {(mover.dirs[0], False): 0}
    assert mover.alter(mover.dirs[1]) == [ErrorCode.KAFKA_STORAGE_ERROR]
    mover.produce()
    assert mover.alter(mover.dirs[2]) == [0]
    await mover.moved(2)
    await mover.stop()
    mover.start(mover.path.image)
    assert mover.describe() == {(mover.dirs[2], False): 0}


@pytest.mark.parametrize("failing", [0, 1])
def test_a_directory_that_fails_at_the_last_step(tmp_path: Path, failing: int) -> None:
    played(lambda mover: _fails_at_the_last_step(mover, failing))(tmp_path)


async def _fails_at_the_last_step(mover: Mover, failing: int) -> None:
    mover.create(batches=3)
    rename = mover.logs._files.rename
    end = ("-delete", "/a-0")[failing]

    def fail(source: str, target: str) -> None:
        if source.startswith(mover.dirs[failing]) and target.endswith(end):
            raise OSError(errno.EIO, "disk", source)
        rename(source, target)

    files: Any = SimpleNamespace(
        **{
            name: getattr(mover.logs._files, name)
            for name in dir(mover.logs._files)
            if not name.startswith("_")
        }
    )
    files.rename = fail
    mover.logs._files = files
    assert mover.alter(mover.dirs[1]) == [0]
    await until(lambda: bool(mover.failed))
    assert mover.failed == [mover.dirs[failing]]
    assert mover.describe() == {(mover.dirs[0], False): 0}
    mover.produce()
    assert mover.path.partition("a").log.log_end_offset == 8


@played
async def test_a_directory_in_which_nothing_can_be_made(mover: Mover) -> None:
    mover.create(batches=3)

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "disk")

    mover.logs._make = fail  # type: ignore[assignment]
    assert mover.alter(mover.dirs[1]) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert mover.failed == [mover.dirs[1]]
    assert mover.describe() == {(mover.dirs[0], False): 0}


@played
async def test_configurations_reach_both(mover: Mover) -> None:
    mover.create(batches=60)
    half = await mover.half()
    mover.path.apply(topic_configs={"a": {"segment.bytes": "2000000"}})
    assert half.config.segment_size == 2_000_000


# -- how fast ------------------------------------------------------------------------------------


@played
async def test_the_quota(mover: Mover) -> None:
    loop = asyncio.get_running_loop()
    rate = [1000]
    pace = MovePace(LoopClock(), lambda: rate[0])
    began = loop.time()
    await pace.wait()
    assert loop.time() == began
    pace.record(5000)
    await pace.wait()
    assert loop.time() - began == pytest.approx(5)
    pace.record(5000)
    rate[0] = 0
    waiting = asyncio.ensure_future(pace.wait())
    await asyncio.sleep(60)
    assert not waiting.done()
    rate[0] = 1000
    await waiting
    assert loop.time() - began == pytest.approx(70, abs=2)
    rate[0] = 2**63 - 1  # none
    at = loop.time()
    for _ in range(100):
        pace.record(1 << 20)
        await pace.wait()
    assert loop.time() == at
