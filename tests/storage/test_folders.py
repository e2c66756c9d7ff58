"""Which folders of a log directory are logs; what a crash inside a creation leaves; strays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.logs import NOW, append, config
from tidelog.simulation.disk import MachineDiedError, SimDisk
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.checkpoints import CheckpointError, read_partition_metadata
from tidelog_storage.directory import LogDirectoryError
from tidelog_storage.folders import make_durable_folder, scan
from tidelog_storage.manager import LogManager
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.types import StorageError, TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

A0 = TopicPartition("a", 0)
ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))
SMALL = config(internal_segment_bytes=500, file_delete_delay_ms=0)


class Broker:
    """What a broker does with one directory."""

    def __init__(self, disk):
        self.disk = disk
        self.heard: list[str] = []
        self.start()

    def start(self):
        self.files = self.disk.files()
        self.logs = LogManager(self.files, ("data",), SMALL, report=self.heard.append)
        self.logs.open(
            now_ms=NOW, cluster_id="c", node_id=1, new_directory_id=lambda: b"directory 1 of 1"
        )

    def stop(self):
        self.logs.shutdown(NOW)

    def write(self, path, data=b"mine"):
        """Put a file of a user into the directory."""
        self.files.make_dirs(path.rpartition("/")[0])
        self.files.write_atomic(path, data)

    def remove_deleted(self):
        for remove in filter(None, self.logs.upkeep.prepare_removals(NOW + 60_000)):
            remove()

    def create(self, batches=3):
        log = self.logs.create(A0, ID, SMALL)
        log.assign_epoch(0)
        for _ in range(batches):
            append(log, 2)
        return log

    def folders(self):
        return sorted(f for f in self.disk.folders if f.startswith("data/"))


@pytest.fixture
def broker():
    return Broker(SimDisk(0))


FOREIGN = (
    "myapp-2/src/main.py",
    "myapp-2/000.log",
    "notes-1/notes.txt",
    "old-app-1-delete/x",
    "app-0.backup-delete/data.db",
    "app-0.next-future/data.db",
    "lost-0.found-delete/00000000000000000000.log/deep",
)


def test_folders_without_a_log_are_never_touched(broker: Broker) -> None:
    for name in FOREIGN:
        broker.write(f"data/{name}")
    broker.stop()
    broker.start()
    assert broker.logs.topic_ids() == {}
    broker.remove_deleted()
    broker.stop()
    for name in FOREIGN:
        assert broker.disk.files().read_bytes(f"data/{name}") == b"mine"


@pytest.mark.parametrize("name", ["a-٣", "a-00", "a-", "-0", "a-1x", "__cluster_metadata-0"])
def test_other_names_are_no_partitions(broker: Broker, name: str) -> None:
    broker.write(f"data/{name}/partition.metadata", b"version: 0\ntopic_id: " + b"A" * 22)
    assert scan(broker.files, "data") == ({}, {}, [], [], [], [])


def test_files_links_and_sockets_are_no_logs(tmp_path: Path) -> None:
    (tmp_path / "a-0").write_text("a file")
    (tmp_path / "b-0").symlink_to(tmp_path / "nowhere")
    (tmp_path / "c-0").mkdir()
    assert scan(OsFileSystem(), str(tmp_path)) == ({}, {}, [], [], [], [])


def test_a_topic_does_not_move_into_a_foreign_folder(broker: Broker) -> None:
    broker.write("data/a-0/main.py")
    with pytest.raises(StorageError, match="data/a-0 cannot become a log") as refused:
        broker.logs.create(A0, ID, SMALL)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert str(refused.value).endswith(": it contains main.py; move the folder away")
    assert broker.files.list("data/a-0") == ["main.py"]
    broker.files.remove("data/a-0/main.py")
    assert broker.create().log_end_offset == 6


def test_a_log_without_a_topic_id_is_kept_as_a_stray(broker: Broker) -> None:
    broker.create()
    broker.stop()
    broker.disk.files().remove("data/a-0/partition.metadata")
    broker.start()
    assert broker.logs.topic_ids() == {}
    stray = f"data/a-0.{bytes(16).hex()}-stray"
    assert broker.folders() == [stray]
    assert broker.heard == [f"a-0 has no partition.metadata: its log is kept as {stray}"]
    assert broker.create(0).log_end_offset == 0
    assert broker.files.sizes(stray)["00000000000000000000.log"] > 0


def test_strays_are_kept_and_named_at_every_start(broker: Broker) -> None:
    broker.create()
    assert broker.logs.set_aside([A0]) == [f"data/a-0.{ID.hex()}-stray"]
    assert broker.logs.get(A0) is None
    broker.create()
    assert broker.logs.set_aside([A0]) == [f"data/a-0.{ID.hex()}-2-stray"]
    broker.stop()
    broker.start()
    names = f"a-0.{ID.hex()}-2-stray, a-0.{ID.hex()}-stray"
    assert broker.heard == [f"data keeps 2 stray logs, which nothing uses: {names}"]
    broker.remove_deleted()
    assert len(broker.folders()) == 2
    assert broker.logs.set_aside([A0]) == []


@pytest.mark.parametrize(
    "content", [b"", b"version: 0\ntopic_id: AAEC", b"version: 9\n", b"\xff\xfe", b"topic_id"]
)
def test_a_damaged_topic_id_refuses_the_start(broker: Broker, content: bytes) -> None:
    broker.create()
    broker.stop()
    broker.write("data/a-0/partition.metadata", content)
    with pytest.raises(LogDirectoryError, match=r"^data/a-0/partition\.metadata: .*: restore"):
        broker.start()
    assert "data/.lock" not in broker.disk.locks
    broker.write("data/a-0/partition.metadata", b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    broker.start()
    assert broker.logs.get(A0).log_end_offset == 6


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_inside_a_creation_leaves_no_log_without_a_topic_id(power: bool) -> None:
    """A folder that a crash left is never adopted by another topic of the name."""
    step = 0
    while True:
        step += 1
        broker = Broker(disk := SimDisk(step))
        disk.on_death = disk.kill
        disk.die_at = disk.operations + step
        try:
            broker.create(0)
        except MachineDiedError:
            disk.unwinding = False
            if power:
                disk.power_failure()
        else:
            break
        broker.start()
        assert set(broker.logs.topic_ids().items()) <= {(A0, ID)}
        assert not any(folder.endswith("-stray") for folder in broker.folders())
        if broker.logs.topic_ids():
            broker.logs.delete(A0, NOW)
        log = broker.logs.create(A0, OTHER_ID, SMALL)
        assert (log.topic_id, log.log_end_offset) == (OTHER_ID, 0)
        assert read_partition_metadata(broker.files, log.folder) == OTHER_ID
        broker.stop()
    assert step > 4


def test_a_future_that_was_not_begun_goes(broker: Broker) -> None:
    broker.files.make_dirs("data/a-0.0123456789abcdef0123456789abcdef-future")
    broker.stop()
    broker.start()
    broker.remove_deleted()
    assert broker.folders() == []


def test_a_log_that_was_never_written_to_may_go_in_a_power_failure() -> None:
    """Its topic id is synced before its first batch, and not before: many are made at a time."""
    for seed in range(30):
        broker = Broker(SimDisk(seed))
        syncs = broker.disk.syncs
        broker.create(batches=0)
        assert broker.disk.syncs == syncs
        broker.disk.power_failure()
        broker.start()
        assert broker.logs.topic_ids() in ({}, {A0: ID})
        assert broker.create().log_end_offset == 6


def test_a_batch_that_is_there_after_a_power_failure_has_its_topic_id() -> None:
    for seed in range(30):
        broker = Broker(SimDisk(seed))
        broker.create(batches=1)
        broker.disk.power_failure()
        broker.start()
        assert broker.logs.topic_ids() == {A0: ID}


def test_a_log_that_was_never_written_to_is_made_again_and_not_missed(broker: Broker) -> None:
    broker.create(0)
    broker.logs.upkeep.prepare_checkpoints()()
    broker.disk.kill()
    broker.disk.files().write_atomic("data/a-0/partition.metadata", b"")
    broker.start()
    assert (broker.logs.topic_ids(), broker.logs.missing()) == ({}, set())
    assert broker.folders() == ["data/a-0"]
    assert broker.create(1).log_end_offset == 2


@pytest.mark.parametrize("was_begun", [False, True])
def test_a_durable_folder_outlives_a_power_failure_that_keeps_nothing_else(was_begun: bool) -> None:
    for seed in range(10):
        disk = SimDisk(seed)
        disk.is_apart = True
        files = disk.files()
        if was_begun:  # by a process that was killed
            files.make_dirs("a/b/c")
            files.fsync_dir(".")
            files.fsync_dir("a")
        make_durable_folder(files, "a/b/c")
        disk.power_failure()
        assert disk.folders == {"", "a", "a/b", "a/b/c"}


def test_a_durable_folder_may_lie_in_one_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = SimDisk(1).files()
    files.make_dirs("a")

    def refused(_path):
        raise PermissionError

    monkeypatch.setattr(files, "fsync_dir", refused)
    make_durable_folder(files, "a/b")
    assert files.exists("a/b")


def test_a_lock_that_is_a_symbolic_link_refuses_the_start(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_bytes(b"kept")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ".lock").symlink_to(kept)
    logs = LogManager(OsFileSystem(), [f"{tmp_path}/data"], SMALL)
    with pytest.raises(LogDirectoryError, match=r"\.lock is a symbolic link, and none is followed"):
        logs.open(now_ms=NOW, cluster_id="c", node_id=1, new_directory_id=lambda: ID)
    assert kept.read_bytes() == b"kept"


@pytest.mark.parametrize("name", ["t-0", f"t-0.{'a' * 32}-delete", f"t-0.{'a' * 32}-future"])
def test_a_log_that_is_a_symbolic_link_refuses_the_start(tmp_path: Path, name: str) -> None:
    """What it leads to is not the broker's: a deleted log would have been emptied there."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / f"{0:020}.log").write_bytes(b"")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).symlink_to(elsewhere)
    (tmp_path / "data" / "my-notes").symlink_to(elsewhere)  # no log's name
    with pytest.raises(CheckpointError, match=f"{name} is a symbolic link"):
        scan(OsFileSystem(), str(tmp_path / "data"))
    (tmp_path / "data" / name).unlink()
    assert scan(OsFileSystem(), str(tmp_path / "data")) == ({}, {}, [], [], [], [])
    assert len(list(elsewhere.iterdir())) == 1
