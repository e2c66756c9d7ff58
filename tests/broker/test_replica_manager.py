"""From images to logs: create, delete, lead, reconfigure, and wake who waits."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import NOW_MS, DataPath, batch, topic_id
from support.metadata import names_by_id
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.image import BrokerImage, ClusterImage
from tidelog.replication.backlog import AT_ONCE_MAX, SLICE
from tidelog.replication.partition import Partition
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.types import StorageError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    yield path
    path.logs.abandon()


def test_partitions_come_with_their_topic_and_go_with_it(path: DataPath) -> None:
    identity = path.create("foo", 3)
    assert len(list(path.replicas.partitions())) == 3
    assert path.replicas.partition_by_id(identity, 2) is path.partition("foo", 2)
    assert path.logs.get(TopicPartition("foo", 2)) is path.partition("foo", 2).log
    gone = path.partition("foo", 0)
    path.delete("foo")
    assert path.replicas.partition("foo", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert path.replicas.partition_by_id(identity, 0) is ErrorCode.UNKNOWN_TOPIC_ID
    assert path.logs.get(TopicPartition("foo", 0)) is None
    assert not gone.is_leader


def test_what_is_missing_says_why(path: DataPath) -> None:
    path.create("foo")
    path.create("elsewhere", replicas=(2,), isr=(2,))
    replicas = path.replicas
    assert replicas.partition("foo", 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replicas.partition("foo", -1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replicas.partition("bar", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replicas.partition("elsewhere", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert replicas.partition_by_id(topic_id("foo"), 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replicas.partition_by_id(bytes(16), 0) is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_created_again_has_an_empty_log_with_its_own_id(path: DataPath) -> None:
    path.create("foo")
    path.produce("foo", 0, batch(3))
    old = path.partition("foo")
    # deletion and creation in one image, as a replay of the metadata log gives them
    path.create("foo", incarnation=1)
    new = path.partition("foo")
    assert new is not old
    assert new.topic_id == topic_id("foo", 1)
    assert (new.log.log_end_offset, new.log.topic_id) == (0, topic_id("foo", 1))


def test_a_restart_keeps_logs_and_renames_strays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = DataPath(tmp_path)
    for name in ("kept", "gone", "anew"):
        before.create(name)
        before.produce(name, 0, batch(3))
    image = before.image
    before.logs.shutdown()
    after = DataPath(tmp_path, apply_first=False)
    topics = {
        "kept": image.topics["kept"],
        "anew": image.topics["anew"]._replace(topic_id=topic_id("anew", 1)),
    }
    image = ClusterImage(
        cluster_id="test",
        brokers={1: BrokerImage(1, "h", 1)},
        topics=topics,
        topic_names=names_by_id(topics),
    )
    after.replicas.apply(MetadataDelta(None, image), image)
    assert after.partition("kept").log.log_end_offset == 3
    assert after.partition("kept").log.high_watermark == 3
    assert after.partition("anew").log.log_end_offset == 0
    assert after.logs.get(TopicPartition("gone", 0)) is None
    (line,) = caplog.messages
    for name in ("gone", "anew"):
        stray = f"{name}-0.{topic_id(name).hex()}-stray"
        assert f"/{stray}" in line
        (folder,) = tmp_path.rglob(stray)
        assert (folder / f"{0:020d}.log").stat().st_size > 0
    assert line.startswith("2 stray logs are kept, ")
    for remove in filter(None, after.logs.upkeep.prepare_removals(NOW_MS + 10**9)):
        remove()
    assert len(list(tmp_path.rglob("*-stray"))) == 2
    after.logs.abandon()


@pytest.mark.parametrize(("isr", "end"), [((1,), 13), ((1, 2), 3), ((2,), 3)])
def test_a_last_batch_behind_a_gap_is_cut_off_only_if_another_replica_has_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, isr: tuple[int, ...], end: int
) -> None:
    """A leader that was compacted once may have left the gap, and this replica may be all there
    is."""
    before = DataPath(tmp_path)
    before.create("foo", replicas=(1, 2), isr=isr)
    before.produce("foo", 0, batch(3))
    log = before.partition("foo").log
    records = [Record(offset, NOW_MS, None, b"x") for offset in (10, 11, 12)]
    behind = memoryview(bytearray(build_batch(records, base_offset=10)))
    log.append_as_follower(behind, leader_epoch=0, now_ms=NOW_MS)
    assert log.log_end_offset == 13
    image = before.image
    before.logs.abandon()
    after = DataPath(tmp_path, apply_first=False)
    after.replicas.apply(MetadataDelta(None, image), image)
    assert after.partition("foo").log.log_end_offset == end
    (line,) = [line for line in caplog.messages if "before the last batch" in line]
    assert line.startswith("foo-0: offsets from 3 on are missing")
    after.logs.abandon()


def test_an_empty_image_deletes_nothing(tmp_path: Path) -> None:
    before = DataPath(tmp_path)
    before.create("foo", 2)
    before.produce("foo", 1, batch(3))
    before.logs.shutdown()
    files = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    after = DataPath(tmp_path, apply_first=False)
    image = ClusterImage(cluster_id="test", brokers={1: BrokerImage(1, "h", 1)})
    after.replicas.apply(MetadataDelta(None, image), image)
    for remove in filter(None, after.logs.upkeep.prepare_removals(NOW_MS + 10**9)):
        remove()
    after.logs.shutdown()
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == files


def test_a_topic_whose_name_a_foreign_folder_has_is_offline(path: DataPath) -> None:
    folder = Path(path.logs.log_dirs[0]) / "myapp-1"
    folder.mkdir()
    (folder / "main.py").write_text("mine")
    path.create("myapp", 2)
    assert path.replicas.partition("myapp", 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert path.partition("myapp", 0).is_leader
    path.delete("myapp")
    assert (folder / "main.py").read_text() == "mine"


def test_configurations_reach_the_logs(path: DataPath) -> None:
    path.create("foo", configs={"segment.bytes": "1048576"})
    log = path.partition("foo").log
    assert log.config.segment_bytes == 1048576
    assert log.config.retention_ms == 604800000
    path.apply(topic_configs={"foo": {"retention.ms": "1000"}})
    assert log.config.retention_ms == 1000
    assert log.config.segment_bytes == 1 << 30
    path.apply(topic_configs={}, broker_configs={"": {"log.retention.ms": "5000"}})
    assert log.config.retention_ms == 5000
    path.apply(broker_configs={"": {"log.retention.ms": "5000"}, "1": {"log.retention.ms": "7"}})
    assert log.config.retention_ms == 7


def test_partitions_are_added_to_a_topic(path: DataPath) -> None:
    path.create("foo", 1)
    path.produce("foo", 0, batch())
    first = path.partition("foo")
    topic = path.image.topics["foo"]
    grown = topic._replace(
        partitions=(*topic.partitions, topic.partitions[0]._replace(partition=1))
    )
    path.apply(topics={"foo": grown})
    assert path.partition("foo") is first
    assert path.partition("foo", 1).is_leader


def test_a_directory_that_fails_takes_its_partition_offline_alone(
    path: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.create("fine")

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(path.logs, "create", fail)
    path.create("bad")
    assert path.replicas.partition("bad", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert isinstance(path.replicas.partition("fine", 0), Partition)
    path.delete("bad")
    assert path.replicas.partition("bad", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_offline_partition_is_opened_again_when_its_own_record_changes(path: DataPath) -> None:
    """Kafka's stays offline until a restart (ReplicaManager.getOrCreatePartition)."""
    folder = Path(path.logs.log_dirs[0]) / "foo-0"
    folder.mkdir()
    (folder / "main.py").write_text("mine")
    path.create("foo")
    (folder / "main.py").rename(folder.parent / "main.py")
    folder.rmdir()
    path.create("bar")
    assert path.replicas.partition("foo", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    path.change("foo", leader_epoch=1)
    assert path.partition("foo").is_leader


def test_a_partition_of_a_failed_directory_does_not_begin_anew_in_another_one(
    tmp_path: Path,
) -> None:
    path = DataPath(tmp_path, log_dirs=[f"{tmp_path}/a", f"{tmp_path}/b"])
    path.create("foo")
    path.produce("foo", 0, batch(3))
    log_dir = path.logs.log_dir(path.partition("foo").topic_partition)
    path.replicas.directory_failed(log_dir, OSError(errno.EIO, "bad disk", log_dir))
    path.change("foo", leader_epoch=1)
    assert path.replicas.partition("foo", 0) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_new_leader_epoch_waits_for_no_disk(tmp_path: Path) -> None:
    """Else a failover of thousands of partitions keeps the loop for a minute of fsync."""
    path = DataPath(tmp_path)
    path.create("foo")
    path.produce("foo", 0, batch(3))

    def fail(*_: Any) -> None:
        raise AssertionError("the loop waits for the disk")

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr("os.fsync", fail)
        path.change("foo", leader_epoch=1)
        path.produce("foo", 0, batch(2))
        path.change("foo", leader_epoch=2, leader=2, replicas=(1, 2), isr=(1, 2))
        follower = path.partition("foo")
        at = {"base_offset": 5, "leader_epoch": 2}
        records = memoryview(bytearray(build_batch([Record(5, NOW_MS, None, b"x")], **at)))
        follower.append_as_follower(records, leader_epoch=2, now_ms=NOW_MS)
        path.change("foo", leader_epoch=3, leader=1, replicas=(1, 2), isr=(1, 2))
    assert path.partition("foo").is_leader
    path.logs.abandon()  # as by a crash
    after = DataPath(tmp_path, apply_first=False)
    log = after.logs.get(TopicPartition("foo", 0))
    assert log is not None
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (1, 3), (2, 5)]
    after.logs.abandon()


def test_a_leader_that_cannot_write_stops_leading(
    path: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.create("foo")
    path.create("fine")
    failed: list[str] = []
    path.replicas._on_disk_failure = lambda directory, _error: failed.append(directory)

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("tidelog_storage.segment.Segment.append", fail)
        with pytest.raises(StorageError) as caught:
            path.partition("foo").append(memoryview(batch()), acks=1, now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert failed == [path.logs.directories[0].path]
    assert path.replicas.partition("foo", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert path.partition("fine").is_leader
    with pytest.raises(StorageError):  # the client's fault, not the disk's
        path.partition("fine").append(memoryview(b"?"), acks=1, now_ms=NOW_MS)
    assert path.partition("fine").is_leader
    assert len(failed) == 1


class TestAwaitAcks:
    def waiting(self, path: DataPath) -> tuple[Partition, list[list[ErrorCode]]]:
        """A partition whose follower has not fetched yet, and where its answers go."""
        path.create("two", replicas=(1, 2), isr=(1, 2))
        return path.partition("two"), []

    def test_decided_at_once(self, path: DataPath) -> None:
        path.create("foo")
        partition = path.partition("foo")
        partition.append(batch(2), acks=-1, now_ms=NOW_MS)
        answers: list[list[ErrorCode]] = []
        operation = path.replicas.await_acks([(partition, 2)], 100, answers.append)
        assert (operation.decided, operation.errors, answers) == (True, [ErrorCode.NONE], [])
        assert len(path.replicas.produce_purgatory) == 0

    def test_done_when_the_high_watermark_comes(self, path: DataPath) -> None:
        partition, answers = self.waiting(path)
        partition.append(batch(2), acks=-1, now_ms=NOW_MS)
        operation = path.replicas.await_acks([(partition, 2), (partition, 1)], 100, answers.append)
        assert not operation.decided
        path.change("two", isr=(1,))  # the follower leaves the in-sync replicas
        assert answers == [[ErrorCode.NONE, ErrorCode.NONE]]
        path.timers.advance_ms(1000)
        assert len(answers) == 1

    def test_the_timeout_leaves_the_records(self, path: DataPath) -> None:
        partition, answers = self.waiting(path)
        path.create("foo")
        done = path.partition("foo")
        for each in (done, partition):
            each.append(batch(2), acks=-1, now_ms=NOW_MS)
        path.replicas.await_acks([(done, 2), (partition, 2)], 100, answers.append)
        path.timers.advance_ms(100)
        assert answers == [[ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]]
        assert partition.log.log_end_offset == 2

    def test_losing_the_lead_or_the_topic_decides(self, path: DataPath) -> None:
        partition, answers = self.waiting(path)
        partition.append(batch(2), acks=-1, now_ms=NOW_MS)
        path.replicas.await_acks([(partition, 2)], 100, answers.append)
        path.change("two", leader=2, leader_epoch=1)
        assert answers == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]]
        path.create("three", replicas=(1, 2), isr=(1, 2))
        third = path.partition("three")
        third.append(batch(2), acks=-1, now_ms=NOW_MS)
        path.replicas.await_acks([(third, 2)], 100, answers.append)
        path.delete("three")
        assert answers[1:] == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]]

    def test_stop_answers_parked_requests(self, path: DataPath) -> None:
        partition, answers = self.waiting(path)
        partition.append(batch(2), acks=-1, now_ms=NOW_MS)
        path.replicas.await_acks([(partition, 2)], 100, answers.append)
        path.replicas.close()
        assert answers == [[ErrorCode.REQUEST_TIMED_OUT]]


# ---- many at once -------------------------------------------------------------------------------


MANY = AT_ONCE_MAX + 40


def settled(path: DataPath) -> None:
    path.timers.advance_ms(0)


def test_many_partitions_of_one_image_are_opened_in_slices(path: DataPath) -> None:
    opened: list[int] = []
    path.replicas.on_opening.append(lambda _, states: opened.append(len(states)))
    path.create("foo", MANY)
    assert len(list(path.replicas.partitions())) == AT_ONCE_MAX
    settled(path)
    assert len(list(path.replicas.partitions())) == MANY
    assert path.partition("foo", MANY - 1).is_leader
    assert sum(opened) == MANY - AT_ONCE_MAX
    assert max(opened) == SLICE


def test_requests_open_partitions_that_wait_as_long_as_the_turn_has_room(path: DataPath) -> None:
    path.create("foo", MANY)
    for index in range(MANY - SLICE, MANY):
        assert path.partition("foo", index).is_leader
    assert path.replicas.partition("foo", AT_ONCE_MAX) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    path.create("bar", MANY)  # another image makes no room
    assert path.replicas.partition("foo", AT_ONCE_MAX) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    settled(path)
    assert len(list(path.replicas.partitions())) == 2 * MANY


def test_requests_miss_deleted_partitions_at_once_and_their_logs_go_in_slices(
    path: DataPath,
) -> None:
    path.create("foo", MANY)
    settled(path)
    last = path.partition("foo", MANY - 1)
    path.delete("foo")
    assert path.replicas.partition("foo", MANY - 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert path.logs.get(last.topic_partition) is not None
    settled(path)
    assert path.logs.get(last.topic_partition) is None
    assert not last.is_leader


def test_a_topic_deleted_and_created_again_while_it_waits_has_the_last_ones_logs(
    path: DataPath,
) -> None:
    path.create("foo", MANY)
    path.delete("foo")
    path.create("foo", MANY, incarnation=1)
    path.delete("foo")
    path.create("foo", MANY, incarnation=2)
    assert path.partition("foo", MANY - 1).log.topic_id == topic_id("foo", 2)
    settled(path)
    logs = [partition.log.topic_id for partition in path.replicas.partitions()]
    assert logs == [topic_id("foo", 2)] * MANY


def test_deletions_that_wait_are_finished_when_the_broker_stops(path: DataPath) -> None:
    path.create("foo", MANY)
    settled(path)
    path.delete("foo")
    path.replicas.finish_deletions()
    path.replicas.close()
    assert not list(path.logs.loaded())
    settled(path)
