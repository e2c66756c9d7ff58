"""Log directories whose disk fails: what is written then, and what the next start finds."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from storage.test_manager import A0, A1, B0, SMALL, Broker
from support.logs import NOW, offsets
from tidelog_storage.manager import LogManager

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.simulation.disk import SimDisk


def test_after_a_failed_sync_the_directory_is_neither_marked_nor_checkpointed(
    disk: SimDisk,
) -> None:
    """The next sync of the same file would succeed, and what was lost would pass for durable."""
    broker = Broker(disk, ("one", "two"))
    first, second = broker.create(A0, 9), broker.create(A1, 9)
    assert (broker.logs.log_dir(A0), broker.logs.log_dir(A1)) == ("one", "two")
    disk.trouble.sync_fails = lambda path: path.endswith(".log")
    with pytest.raises(OSError, match="failed sync"):
        first.flush()
    broker.logs.shutdown(NOW)
    assert disk.trouble.violation is None
    assert not broker.files.exists("one/.kafka_cleanshutdown")
    assert broker.files.exists("two/.kafka_cleanshutdown")
    assert second.recovery_point == second.log_end_offset == 18
    disk.kill()
    broker.start()
    log = broker.logs.get(A0)
    assert offsets(log) == [(base, base + 1) for base in range(0, log.log_end_offset, 2)]
    assert log.log_end_offset < 18
    assert "one/a-0" not in "".join(broker.heard)
    assert any("a-0: cut" in sentence for sentence in broker.heard)


def test_a_failed_directory_drops_its_logs_and_the_other_still_works(disk: SimDisk) -> None:
    broker = Broker(disk, ("one", "two"))
    broker.create(A0, 9)
    broker.create(A1, 9)
    broker.logs.fail("one", OSError(5, "no"))
    with pytest.raises(OSError, match="no"):
        broker.logs.get(A0)
    assert [key for key, _ in broker.logs.items()] == [A1]
    assert broker.create(B0).folder == "two/b-c-0"
    broker.logs.upkeep.prepare_checkpoints()()
    for _, task in filter(None, broker.logs.upkeep.flush_dirty(NOW + 1_000_000)):
        task()
    assert disk.trouble.violation is None
    broker.logs.shutdown(NOW)
    assert not broker.files.exists("one/.kafka_cleanshutdown")
    broker.start()
    assert broker.logs.get(A0).log_end_offset == 18


def test_a_directory_that_fails_while_it_is_closed_is_told(disk: SimDisk) -> None:
    """One that had failed before is known, and no reason to end otherwise than Kafka."""
    broker = Broker(disk, ("one", "two"))
    broker.create(A0, 9)
    broker.create(A1, 9)
    disk.trouble.sync_fails = lambda path: path.startswith("one/")
    with pytest.raises(OSError, match="failed sync"):
        broker.logs.shutdown(NOW)
    assert not broker.files.exists("one/.kafka_cleanshutdown")
    assert broker.files.exists("two/.kafka_cleanshutdown")


def write_high_watermarks(logs: LogManager) -> None:
    list(logs.upkeep.note_offsets())
    for write in logs.upkeep.prepare_high_watermarks():
        write()


WRITES: tuple[Callable[[LogManager], None], ...] = (
    lambda logs: logs.upkeep.prepare_checkpoints()(),
    write_high_watermarks,
    LogManager.shutdown,
)


@pytest.mark.parametrize("write", WRITES)
def test_no_checkpoint_goes_to_where_a_directory_was_mounted(
    write: Callable[[LogManager], None], disk: SimDisk
) -> None:
    broker = Broker(disk, ("one", "two"))
    broker.create(A0, 9)
    broker.create(A1, 9)
    disk.change("remove_tree", "two")
    disk.files().make_dirs("two")
    with pytest.raises(FileNotFoundError, match="two/"):
        write(broker.logs)
    assert not [path for path in disk.names if path.startswith("two/")]


def test_an_orderly_stop_closes_all_logs_whatever_one_of_them_does(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(disk)
    broken, well = broker.create(A0, 3), broker.create(B0, 3)
    monkeypatch.setattr(type(broken.producers), "take_snapshot", failing_for(broken.producers))
    with pytest.raises(KeyError, match="a bug"):
        broker.logs.shutdown(NOW)
    monkeypatch.undo()
    assert well.recovery_point == 6
    assert not broker.files.exists("data/.kafka_cleanshutdown")
    assert b"b-c 0 6" in broker.files.read_bytes("data/recovery-point-offset-checkpoint")
    broker.start()
    assert broker.logs.get(A0).log_end_offset == broker.logs.get(B0).log_end_offset == 6


def failing_for(producers):
    take_snapshot = type(producers).take_snapshot

    def fail(self, **options):
        if self is producers:
            raise KeyError("a bug")
        return take_snapshot(self, **options)

    return fail


def test_temporary_checkpoint_files_of_a_crash_are_removed_and_no_others(disk: SimDisk) -> None:
    broker = Broker(disk)
    left = ["recovery-point-offset-checkpoint.7.tmp", "meta.properties.tmp"]
    others = ["notes.7.tmp", "recovery-point-offset-checkpoint.old"]
    for name in left + others:
        broker.files.open(f"data/{name}", create=True)
    broker.crash()
    assert not any(broker.files.exists(f"data/{name}") for name in left)
    assert all(broker.files.exists(f"data/{name}") for name in others)


def test_an_empty_log_that_a_power_failure_takes_is_not_missed(disk: SimDisk) -> None:
    """The recovery points named it before its folder was durable: its partition stayed offline."""
    broker = Broker(disk)
    broker.create(B0, 1)
    broker.logs.create(A0, b"i" * 16, broker.logs.get(B0).config)
    broker.logs.upkeep.prepare_checkpoints()()
    disk.change("remove_tree", "data/a-0")
    broker.crash()
    assert broker.logs.missing() == set()
    disk.change("remove_tree", "data/b-c-0")
    broker.crash()
    assert broker.logs.missing() == {B0}


def test_a_directory_that_cannot_be_read_at_the_start_is_offline(disk: SimDisk) -> None:
    broker = Broker(disk, ("one", "two"))
    broker.create(A0, 9)
    broker.create(A1, 9)
    broker.logs.shutdown(NOW)
    disk.trouble.unreadable = "two"
    broker.start()
    logs = broker.logs
    assert [one.failure is None for one in logs.directories] == [True, False]
    assert any("two is offline until the next start" in sentence for sentence in broker.heard)
    assert logs.get(A0).log_end_offset == 18
    assert logs.get(A1) is None
    assert logs.has_unread_directory
    assert logs.clean_broker_epoch == -1
    assert not logs.has_new_directory
    assert broker.create(B0).folder == "one/b-c-0"
    logs.upkeep.prepare_checkpoints()()
    logs.shutdown(NOW)
    disk.trouble.calm()
    broker.start()
    assert broker.logs.get(A1).log_end_offset == 18
    assert [key for key, _ in broker.logs.items()] == [A0, B0, A1]


@pytest.mark.parametrize("metadata_dir", ["two", "three"])
def test_the_last_directory_and_that_of_the_metadata_must_be_readable(
    disk: SimDisk, metadata_dir: str
) -> None:
    dirs = ("one", "two") if metadata_dir == "two" else ("two",)
    Broker(disk, dirs).logs.shutdown(NOW)
    disk.trouble.unreadable = "two"
    logs = LogManager(disk.files(), dirs, SMALL)
    logs.add_metadata_dir(metadata_dir)
    with pytest.raises(OSError, match="unreadable"):
        logs.open(now_ms=NOW, cluster_id="c", node_id=1, new_directory_id=lambda: b"m" * 16)
    assert not disk.locks


def test_a_move_is_not_completed_while_the_current_log_may_be_unread(disk: SimDisk) -> None:
    broker = Broker(disk, ("one", "two"))
    broker.create(A0, 9)
    broker.logs.create_future(A0, "two", "f" * 32, SMALL)
    broker.logs.shutdown(NOW)
    disk.trouble.unreadable = "one"
    broker.start()
    assert broker.logs.get(A0) is None
    assert broker.logs.unadopted == {A0}
    disk.trouble.calm()
    broker.logs.abandon()
    broker.start()
    assert broker.logs.get(A0).log_end_offset == 18
    assert broker.logs.is_moving(A0)


def test_a_directory_that_fails_while_its_logs_are_recovered_is_offline(disk: SimDisk) -> None:
    broker = Broker(disk, ("one", "two"))
    broker.create(A0, 9)
    broker.create(A1, 9)
    broker.logs.upkeep.prepare_checkpoints()()
    disk.kill()
    disk.trouble._bad = disk.names["two/a-1/00000000000000000000.log"]
    broker.start()
    logs = broker.logs
    assert [one.failure is None for one in logs.directories] == [True, False]
    assert not logs.has_unread_directory, "what it has is known"
    assert [key for key, _ in logs.items()] == [A0]
    with pytest.raises(OSError, match="failed read"):
        logs.get(A1)
    disk.trouble.calm()
    logs.abandon()
    broker.start()
    assert broker.logs.get(A1).log_end_offset == 18


def test_a_start_without_descriptors_takes_no_directory_offline(disk: SimDisk) -> None:
    Broker(disk, ("one", "two")).logs.shutdown(NOW)
    logs = LogManager(disk.files(), ("one", "two"), SMALL)

    def take(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    logs.directories[1].take = take  # type: ignore[method-assign]
    with pytest.raises(OSError, match="Too many open files"):
        logs.open(now_ms=NOW, cluster_id="c", node_id=1)
    assert not disk.locks
