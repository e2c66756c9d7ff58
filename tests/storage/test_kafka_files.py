"""Folders that Apache Kafka 4.3.1 wrote are opened, read, indexed alike, and written on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.logs import append, check_indexes, config, offsets, open_log, read_all
from tidelog_protocol.primitives import uuid_to_str
from tidelog_storage.manager import LogManager
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.types import AbortedTransaction, InRemoteTier, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

VECTORS = Path(__file__).parent / "vectors" / "kafka-4.3.1" / "log-dir"
INTERVALS = {"fc-none-0": 4096, "fidx-0": 4096, "ftxn-0": 0, "__consumer_offsets-0": 4096}
FOLDERS = sorted(INTERVALS)


@pytest.fixture
def folder(tmp_path):
    def copy(name):
        target = tmp_path / name
        shutil.copytree(VECTORS / name, target)
        return target

    return copy


def content(folder, *suffixes):
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.suffix in suffixes or path.name in suffixes
    }


def settings(name):
    return config(index_interval_bytes=INTERVALS[name])


@pytest.mark.parametrize("name", FOLDERS)
def test_opened_after_kafkas_clean_stop(folder: Callable[[str], Path], name: str) -> None:
    copy = folder(name)
    before = content(copy, ".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    log = open_log(OsFileSystem(), copy, settings(name))
    check_indexes(log)
    whole = read_all(log, 500)
    assert whole[0][0].base_offset == 0
    assert whole[-1][0].next_offset == log.log_end_offset
    log.close()
    assert content(copy, ".log", ".index", ".timeindex", ".txnindex", ".snapshot") == before


@pytest.mark.parametrize("name", FOLDERS)
def test_rebuilt_indexes_are_kafkas_byte_for_byte(folder: Callable[[str], Path], name: str) -> None:
    copy = folder(name)
    kept = (".log", ".index", ".timeindex", ".txnindex", "leader-epoch-checkpoint")
    before = content(copy, *kept)
    snapshots = content(copy, ".snapshot")
    for path in copy.iterdir():
        if path.suffix in {".index", ".timeindex", ".txnindex", ".snapshot"}:
            path.unlink()
    (copy / "leader-epoch-checkpoint").unlink()
    log = open_log(OsFileSystem(), copy, settings(name), clean=False)
    assert content(copy, *kept[:-1]) == content(copy, *kept)
    log.flush()
    assert content(copy, *kept) == before
    log.close()
    assert content(copy, *kept) == before
    end = f"{log.log_end_offset:020d}.snapshot"
    assert content(copy, ".snapshot") == {end: snapshots[end]}


def test_transactions_of_kafkas_log(folder: Callable[[str], Path]) -> None:
    log = open_log(OsFileSystem(), folder("ftxn-0"), settings("ftxn-0"), high_watermark=33)
    assert log.log_end_offset == log.last_stable_offset == 33
    aborted = [AbortedTransaction(1, 11), AbortedTransaction(1, 23)]
    assert log.aborted_transactions(0, 33) == aborted
    assert log.aborted_transactions(0, 17) == aborted[:1]
    assert log.aborted_transactions(17, 23) == []
    assert log.aborted_transactions(28, 33) == aborted[1:]
    assert sorted(log.producers.producers) == [0, 1, 3]


def test_the_same_snapshots_and_indexes_when_replicated(
    folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """A follower that fetches Kafka's records ends up with Kafka's files."""
    source = folder("ftxn-0")
    target = tmp_path / "copy" / "ftxn-0"
    target.parent.mkdir()
    log = open_log(OsFileSystem(), source, settings("ftxn-0"))
    follower = open_log(OsFileSystem(), target, settings("ftxn-0"))
    for header, _ in read_all(log):
        if header.base_offset == 10:
            follower.roll(0)
        outcome = log.read(header.base_offset, 1, upper_bound=log.log_end_offset)
        follower.append_as_follower(memoryview(outcome.parts[0]), leader_epoch=0, now_ms=0)
        follower.set_high_watermark(follower.log_end_offset)
    follower.close()
    kept = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint")
    assert content(target, *kept) == content(VECTORS / "ftxn-0", *kept)


def test_a_log_directory_of_kafka(tmp_path: Path) -> None:
    target = tmp_path / "data"
    shutil.copytree(VECTORS, target)
    shutil.copy(VECTORS.parent / "kafka_cleanshutdown", target / ".kafka_cleanshutdown")
    lines = (target / "meta.properties").read_text().splitlines()
    owner = dict(line.split("=") for line in lines if "=" in line)
    logs = LogManager(OsFileSystem(), [str(target)], config())
    logs.open(
        now_ms=0,
        cluster_id=owner["cluster.id"],
        node_id=int(owner["node.id"]),
        new_directory_id=lambda: bytes(16),
    )
    assert logs.directories[0].had_clean_shutdown
    assert uuid_to_str(logs.directories[0].directory_id) == owner["directory.id"]
    log = logs.get(TopicPartition("fidx", 0))
    assert log is not None
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (300, 300, 300)
    assert append(log, leader_epoch=1).first_offset == 300
    logs.shutdown()
    again = open_log(OsFileSystem(), target / "fidx-0")
    assert offsets(again)[-1] == (300, 300)
    assert [tuple(entry) for entry in again.epochs.entries] == [(0, 0), (1, 300)]


def test_a_tiered_log_of_kafka(tmp_path: Path) -> None:
    """All but its newest segment is in the remote tier alone."""
    target = tmp_path / "data"
    shutil.copytree(VECTORS.parent / "tiered", target)
    shutil.copy(VECTORS.parent / "kafka_cleanshutdown", target / ".kafka_cleanshutdown")
    lines = (target / "meta.properties").read_text().splitlines()
    owner = dict(line.split("=") for line in lines if "=" in line)
    tiered = config(remote_storage_enable=True, local_retention_bytes=1)
    logs = LogManager(OsFileSystem(), [str(target)], config(), remote_storage_system_enable=True)
    logs.open(
        now_ms=0,
        cluster_id=owner["cluster.id"],
        node_id=int(owner["node.id"]),
        new_directory_id=lambda: bytes(16),
    )
    log = logs.get(TopicPartition("ftiny", 0))
    assert log is not None
    log.config = tiered
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 182, 222)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (1, 80)]
    assert log.read(0, 99, upper_bound=222) == InRemoteTier(0, 0, 182)
    assert log.read(181, 99, upper_bound=222) == InRemoteTier(181, 1, 182)
    assert offsets(log, start=182)[0][0] == 182
    log.set_high_watermark(222)
    log.roll(0)
    files = log.sealed_files(log.segments.first)
    snapshot = Path(files.producer_snapshot)
    kept = VECTORS.parent / "tiered" / "ftiny-0"
    assert snapshot.read_bytes() == (kept / snapshot.name).read_bytes()
    logs.shutdown()
    assert (target / "log-start-offset-checkpoint").read_bytes() == b"0\n1\nftiny 0 0\n"
