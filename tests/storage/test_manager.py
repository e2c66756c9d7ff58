"""Log directories: whose they are, what lies in them, stops and starts, periodic work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.logs import NOW, append, config, offsets
from tidelog.simulation.disk import SimDisk
from tidelog_storage import directory
from tidelog_storage.checkpoints import read_partition_metadata
from tidelog_storage.directory import LogDirectoryError
from tidelog_storage.manager import LogManager
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b-c", 0)
ID = bytes(range(16))
DIRECTORY_ID = b"d" * 16
SMALL = config(internal_segment_bytes=500, file_delete_delay_ms=100)


class Broker:
    """What the broker does with its logs: starts and stops."""

    def __init__(self, disk, dirs=("data",), **options):
        self.disk = disk
        self.dirs = dirs
        self.options = options
        self.heard = []
        self.start()

    def start(self, **options):
        self.files = self.disk.files()
        self.logs = LogManager(self.files, self.dirs, SMALL, report=self.heard.append)
        asked = {"cluster_id": "c", "node_id": 1, "new_directory_id": lambda: DIRECTORY_ID}
        self.logs.open(now_ms=NOW, **(asked | options))

    def restart(self):
        self.logs.shutdown(NOW)
        self.start()

    def crash(self, *, power=False):
        if power:
            self.disk.power_failure()
        else:
            self.disk.kill()
        self.start()

    def create(self, partition, batches=0):
        log = self.logs.create(partition, ID, SMALL)
        log.assign_epoch(0)
        for _ in range(batches):
            append(log, 2)
        return log

    def remove_deleted(self, now_ms):
        for remove in filter(None, self.logs.upkeep.prepare_removals(now_ms)):
            remove()


def state(log):
    return log.log_start_offset, log.high_watermark, log.log_end_offset, log.recovery_point


def test_create_and_get(disk: SimDisk) -> None:
    broker = Broker(disk)
    assert broker.logs.get(A0) is None
    log = broker.create(A0, 3)
    assert broker.logs.get(A0) is log
    assert broker.logs.create(A0, ID, SMALL) is log
    assert log.topic_id == ID == read_partition_metadata(broker.files, "data/a-0")
    assert broker.logs.log_dir(A0) == "data"
    assert broker.logs.log_dirs == ["data"]
    with pytest.raises(KeyError):
        broker.logs.log_dir(A1)


def test_an_orderly_stop_brings_back_everything(disk: SimDisk) -> None:
    broker = Broker(disk)
    broker.create(A0, 9)
    broker.create(B0, 2)
    broker.logs.get(A0).maybe_increment_log_start(5, "test")
    before = {key: state(log) for key, log in broker.logs.items()}
    broker.restart()
    assert broker.logs.directories[0].had_clean_shutdown
    assert broker.logs._logs == {}, "loaded when asked for"
    after = {key: state(log) for key, log in broker.logs.items()}
    assert {key: one[:3] for key, one in after.items()} == {
        key: one[:3] for key, one in before.items()
    }
    assert after[A0][3] == 18
    assert broker.logs.get(A0).topic_id == ID
    assert broker.heard == []


def test_what_was_not_loaded_is_checkpointed_again(disk: SimDisk) -> None:
    broker = Broker(disk)
    for key in (A0, B0):
        broker.create(key, 9)
        broker.logs.get(key).maybe_increment_log_start(5, "test")
    broker.restart()
    broker.logs.get(A0)
    broker.restart()
    assert state(broker.logs.get(B0)) == (5, 18, 18, 18)


def test_a_crash_recovers_all_logs_at_the_start(disk: SimDisk) -> None:
    broker = Broker(disk)
    broker.create(A0, 5)
    broker.create(B0, 1)
    broker.logs.upkeep.prepare_checkpoints()()
    append(broker.logs.get(A0), 2)
    broker.crash()
    assert not broker.logs.directories[0].had_clean_shutdown
    assert sorted(broker.logs._logs) == [A0, B0]
    log = broker.logs.get(A0)
    assert state(log) == (0, 10, 12, 0)
    assert offsets(log)[-1] == (10, 11)
    broker.crash()
    assert state(broker.logs.get(A0))[2] == 12
    broker.restart()
    broker.restart()
    assert broker.logs.directories[0].had_clean_shutdown


def test_flushed_records_survive_a_power_failure(disk: SimDisk) -> None:
    for seed in range(30):
        disk = SimDisk(seed)
        broker = Broker(disk)
        log = broker.create(A0, 12)
        for one, task in filter(None, broker.logs.upkeep.flush_dirty(NOW)):
            task()
            one.flushed(task)
        durable = log.recovery_point
        assert durable == log.segments.active.base_offset > 0
        broker.logs.upkeep.prepare_checkpoints()()
        append(log, 2)
        broker.crash(power=True)
        log = broker.logs.get(A0)
        assert log.log_end_offset >= durable
        assert log.recovery_point == durable
        assert offsets(log) == [(base, base + 1) for base in range(0, log.log_end_offset, 2)]


def test_truncation_lowers_the_checkpoint_at_once(disk: SimDisk) -> None:
    broker = Broker(disk)
    log = broker.create(A0, 9)
    log.flush()
    late = broker.logs.upkeep.prepare_checkpoints()
    late()
    assert broker.files.read_bytes("data/recovery-point-offset-checkpoint") == b"0\n1\na 0 18\n"
    log.truncate_to(4, NOW)
    assert broker.files.read_bytes("data/recovery-point-offset-checkpoint") == b"0\n1\na 0 4\n"
    late()
    content = broker.files.read_bytes("data/recovery-point-offset-checkpoint")
    assert content == b"0\n1\na 0 4\n", "a write from before must not raise it again"


def test_high_watermarks_are_written_when_they_moved(disk: SimDisk) -> None:
    broker = Broker(disk)
    log = broker.create(A0, 3)
    log.set_high_watermark(2)
    name = "data/replication-offset-checkpoint"
    list(broker.logs.upkeep.note_offsets())
    (write,) = broker.logs.upkeep.prepare_high_watermarks()
    write()
    assert broker.files.read_bytes(name) == b"0\n1\na 0 2\n"
    list(broker.logs.upkeep.note_offsets())
    assert broker.logs.upkeep.prepare_high_watermarks() == []
    log.set_high_watermark(4)
    list(broker.logs.upkeep.note_offsets())
    (late,) = broker.logs.upkeep.prepare_high_watermarks()
    log.set_high_watermark(6)
    broker.logs.upkeep.prepare_checkpoints()()
    assert broker.files.read_bytes(name) == b"0\n1\na 0 6\n"
    list(broker.logs.upkeep.note_offsets())
    assert broker.logs.upkeep.prepare_high_watermarks() == []
    late()
    assert broker.files.read_bytes(name) == b"0\n1\na 0 6\n", "the newest content wins"
    broker.crash()
    assert broker.logs.get(A0).high_watermark == 6


def test_periodic_work_is_done_in_parts(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is deleted or made between two parts is neither noted nor looked at."""
    monkeypatch.setattr(directory, "LOGS_AT_ONCE", 2)
    broker = Broker(disk)
    upkeep = broker.logs.upkeep
    for index in range(5):
        broker.create(TopicPartition("p", index), 1)
    assert len(list(upkeep.retention(NOW))) == 3
    assert list(upkeep.prepare_removals(NOW)) == [None, None]
    assert sum(due is None for due in upkeep.flush_dirty(NOW + 10**9)) == 2
    parts = upkeep.note_offsets()
    next(parts)
    for index in (0, 4):
        broker.logs.delete(TopicPartition("p", index), NOW)
    assert list(parts) == [None]
    upkeep.prepare_noted_checkpoints()()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        lines = broker.files.read_bytes(f"data/{name}").decode().splitlines()
        assert [line.rsplit(" ", 1)[0] for line in lines[2:]] == ["p 1", "p 2", "p 3"]


def test_flush_dirty(disk: SimDisk) -> None:
    broker = Broker(disk)
    log = broker.create(A0, 1)
    assert list(broker.logs.upkeep.flush_dirty(NOW)) == []
    for _ in range(10):
        append(log, 2)
    ((found, task),) = filter(None, broker.logs.upkeep.flush_dirty(NOW))
    assert found is log
    assert task.offset == log.segments.active.base_offset
    assert list(broker.logs.upkeep.flush_dirty(NOW)) == []
    log.config = config(flush_ms=1000)
    ((_, task),) = filter(None, broker.logs.upkeep.flush_dirty(NOW))
    assert task.offset == log.log_end_offset
    append(log, 1)
    assert list(broker.logs.upkeep.flush_dirty(NOW + 999)) == []
    assert len(list(broker.logs.upkeep.flush_dirty(NOW + 1000))) == 1


def test_logs_that_are_not_durable_are_counted(disk: SimDisk) -> None:
    broker = Broker(disk)
    log = broker.create(A0)
    broker.create(A1)
    assert broker.logs.unflushed == 0
    append(log, 2)
    assert broker.logs.unflushed == 1
    log.flush()
    assert broker.logs.unflushed == 0


def test_a_log_that_is_deleted_before_its_turn_is_not_flushed(disk: SimDisk) -> None:
    broker = Broker(disk)
    logs = [broker.create(partition, 9) for partition in (A0, A1)]
    asked = []
    for one, task in filter(None, broker.logs.upkeep.flush_dirty(NOW)):
        asked.append(one)
        broker.logs.delete(A1, NOW)
        task()
    assert asked == logs[:1]


def test_epochs_that_cannot_be_written_are_not_flushed_past(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(disk)
    log = broker.create(A0, 9)

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(broker.files, "write_atomic", fail)
        with pytest.raises(OSError, match="No space left"):
            list(broker.logs.upkeep.flush_dirty(NOW))
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == log.log_end_offset


def test_delete(disk: SimDisk) -> None:
    broker = Broker(disk)
    broker.create(A0, 2)
    broker.create(A1, 2)
    broker.logs.delete(A0, NOW)
    broker.logs.delete(A0, NOW)
    assert broker.logs.get(A0) is None
    folder = f"a-0.{ID.hex()}-delete"
    assert folder in broker.files.list("data")
    assert broker.create(A0).log_end_offset == 0, "a topic of the same name starts anew"
    broker.remove_deleted(NOW + 99)
    assert folder in broker.files.list("data")
    broker.remove_deleted(NOW + 100)
    assert folder not in broker.files.list("data")
    broker.logs.delete(A1)
    broker.crash()
    assert [key for key, _ in broker.logs.items()] == [A0]
    broker.remove_deleted(NOW)
    assert [name for name in broker.files.list("data") if name.endswith("-delete")] == []


def test_what_is_being_removed_shares_its_name_with_nothing(disk: SimDisk) -> None:
    broker = Broker(disk)
    broker.create(A0, 2)
    broker.logs.delete(A0, NOW)
    (removal,) = filter(None, broker.logs.upkeep.prepare_removals(NOW + 100))
    broker.create(A0, 2)  # the same topic: the replica is back
    broker.logs.delete(A0, NOW + 100)
    names = [f"a-0.{ID.hex()}-2-delete", f"a-0.{ID.hex()}-delete"]
    assert sorted(name for name in broker.files.list("data") if "delete" in name) == names
    removal()
    assert names[0] in broker.files.list("data")
    assert names[1] not in broker.files.list("data")
    broker.crash()
    broker.remove_deleted(NOW)
    assert [name for name in broker.files.list("data") if "delete" in name] == []


def test_delete_before_it_was_loaded(disk: SimDisk) -> None:
    broker = Broker(disk)
    broker.create(A0, 2)
    broker.restart()
    broker.logs.delete(A0)
    assert list(broker.logs.items()) == []
    broker.logs.upkeep.prepare_checkpoints()()
    assert broker.files.read_bytes("data/replication-offset-checkpoint") == b"0\n0\n"


def test_long_names_fit_their_deleted_folder(tmp_path: Path) -> None:
    logs = LogManager(OsFileSystem(), [str(tmp_path)], SMALL)
    logs.open(now_ms=0, cluster_id="c", node_id=1, new_directory_id=lambda: DIRECTORY_ID)
    key = TopicPartition("t" * 249, 12345)
    logs.create(key, ID, SMALL)
    logs.delete(key)
    assert max(len(path.name) for path in tmp_path.iterdir()) == 255
    logs.shutdown()


@pytest.mark.parametrize("crashed_before", [False, True])
@pytest.mark.parametrize("power", [False, True])
def test_a_topic_of_a_deleted_ones_name_begins_at_nothing(
    disk: SimDisk, crashed_before: bool, power: bool
) -> None:
    """What the checkpoints said of the old one is not taken for the new one's after a crash."""
    broker = Broker(disk)
    log = broker.create(A0, 9)
    log.set_high_watermark(log.log_end_offset)
    log.maybe_increment_log_start(15, "DeleteRecords")
    log.flush()
    broker.logs.upkeep.prepare_checkpoints()()
    broker.logs.delete(A0, NOW)
    if crashed_before:
        broker.crash()
    assert broker.logs.get(A0) is None
    log = broker.create(A0, 1)
    log.flush()
    append(log, 1)
    broker.crash(power=power)
    again = broker.logs.get(A0)
    assert (again.log_start_offset, again.high_watermark) == (0, 0)
    assert offsets(again)[0] == (0, 1)
    assert again.log_end_offset == 3 or power


def test_nothing_is_written_for_new_topics_of_new_names(disk: SimDisk) -> None:
    broker = Broker(disk)
    broker.create(A0, 1)
    broker.logs.upkeep.prepare_checkpoints()()
    broker.logs.delete(A0, NOW)
    broker.logs.upkeep.prepare_checkpoints()()
    broker.logs.upkeep.prepare_checkpoints()()  # the one before is on disk by now
    before = disk.names["data/log-start-offset-checkpoint"]
    broker.create(A0)
    broker.create(B0)
    assert disk.names["data/log-start-offset-checkpoint"] is before


def test_retention_of_all_logs(disk: SimDisk) -> None:
    broker = Broker(disk)
    for key in (A0, B0):
        log = broker.create(key, 9)
        log.config = config(internal_segment_bytes=500, retention_bytes=0, file_delete_delay_ms=0)
    removed = sum(broker.logs.upkeep.retention(NOW))
    assert removed > 4
    assert [log.size_in_bytes for _, log in broker.logs.items()] == [0, 0]
    assert [name for name in broker.files.list("data/a-0") if name.endswith(".deleted")]
    broker.remove_deleted(NOW)
    assert not [name for name in broker.files.list("data/a-0") if name.endswith(".deleted")]
    assert list(broker.logs.upkeep.prepare_removals(NOW)) == []


def test_idle_producers_are_forgotten(disk: SimDisk) -> None:
    broker = Broker(disk)
    log = broker.create(A0)
    append(log, 1, producer_id=3, producer_epoch=0, base_sequence=0)
    sum(broker.logs.upkeep.retention(NOW + 86_399_000))
    assert 3 in log.producers.producers
    sum(broker.logs.upkeep.retention(NOW + 86_400_001))
    assert log.producers.producers == {}


def test_idle_producers_are_forgotten_without_a_pass_of_retention(disk: SimDisk) -> None:
    broker = Broker(disk)
    log = broker.create(A0)
    append(log, 1, producer_id=3, producer_epoch=0, base_sequence=0)
    list(broker.logs.upkeep.expire_producers(NOW + 86_399_000))
    assert 3 in log.producers.producers
    list(broker.logs.upkeep.expire_producers(NOW + 86_400_001))
    assert log.producers.producers == {}


def test_several_directories(disk: SimDisk) -> None:
    broker = Broker(disk, ("data", "more"))
    for index in range(4):
        broker.create(TopicPartition("a", index), 1)
    assert [broker.logs.log_dir(TopicPartition("a", index)) for index in range(4)] == (
        ["data", "more", "data", "more"]
    )
    broker.restart()
    assert broker.logs.log_dir(A1) == "more"
    assert broker.logs.get(A1).log_end_offset == 2


def test_the_metadata_log_is_not_touched(disk: SimDisk) -> None:
    broker = Broker(disk)
    broker.files.make_dirs("data/__cluster_metadata-0")
    broker.files.make_dirs("data/not a partition")
    broker.files.make_dirs("data/-1")
    broker.crash()
    assert list(broker.logs.items()) == []


def test_a_log_that_could_not_be_made_is_made_the_next_time(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(disk)

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(broker.files, "open", fail, raising=True)
        with pytest.raises(OSError, match="No space"):
            broker.logs.create(A0, ID, SMALL)
    assert broker.logs.get(A0) is None
    assert broker.logs.log_dir_wanted(A0) == "data"
    log = broker.create(A0, 1)
    assert read_partition_metadata(broker.files, log.folder) == ID
    assert broker.logs.log_dir(A0) == broker.logs.log_dir_wanted(A0) == "data"
    broker.restart()
    assert broker.logs.get(A0).log_end_offset == 2


def test_a_locked_directory_says_so(disk: SimDisk) -> None:
    broker = Broker(disk, ("other", "data"))
    with pytest.raises(LogDirectoryError, match="data is locked: another broker"):
        Broker(disk, ("mine", "data"))
    assert "mine/.lock" not in disk.locks, "what was taken is given back"
    broker.logs.abandon()
    Broker(disk, ("mine", "data"))


def test_the_next_holder_of_the_locks_knows_which_life_has_ended(disk: SimDisk) -> None:
    broker = Broker(disk, ("a", "b"))
    assert broker.logs.ended_broker_epoch == -1
    broker.logs.note_broker_epoch(12)
    broker.logs.abandon()
    broker.start()
    assert broker.logs.ended_broker_epoch == 12
    disk.power_failure()
    broker.start()
    assert broker.logs.ended_broker_epoch == -1, "the machine may be another"


def test_a_directory_of_another_broker_is_refused(disk: SimDisk) -> None:
    broker = Broker(disk)
    broker.logs.shutdown()
    for changed in ({"cluster_id": "other"}, {"node_id": 2}):
        with pytest.raises(LogDirectoryError, match="belongs to node 1 of cluster c"):
            broker.start(**changed)
    broker.start()
    assert broker.logs.directories[0].directory_id == DIRECTORY_ID


def test_malformed_files_of_the_directory(disk: SimDisk) -> None:
    broker = Broker(disk)
    broker.create(A0, 2)
    broker.logs.shutdown()
    files = disk.files()
    kept = files.read_bytes("data/meta.properties")
    files.write_atomic("data/meta.properties", b"version=7\n")
    with pytest.raises(LogDirectoryError, match="unknown version"):
        broker.start()
    files.write_atomic("data/meta.properties", kept)
    files.write_atomic("data/recovery-point-offset-checkpoint", b"rubbish")
    with pytest.raises(LogDirectoryError, match="recovery-point"):
        broker.start()
    broker.start()  # the marker is gone: everything is read again, and synced
    assert state(broker.logs.get(A0)) == (0, 4, 4, 4)


def test_a_log_that_cannot_be_closed_leaves_no_clean_mark(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(disk)
    log = broker.create(A0, 2)

    def fail():
        raise OSError("bad disk")

    monkeypatch.setattr(type(log), "close", lambda self: fail())
    with pytest.raises(OSError, match="bad disk"):
        broker.logs.shutdown()
    assert ".kafka_cleanshutdown" not in disk.files().list("data")
    assert disk.locks == set()
