"""The simulated disk loses what a power failure may lose, and nothing else."""

from __future__ import annotations

import errno

import pytest

from tidelog.simulation.disk import SimDisk


def fresh(seed=1, **options):
    disk = SimDisk(seed, **options)
    files = disk.files()
    files.make_dirs("data/t-0")
    files.fsync_dir("data")
    return disk, files


def test_a_killed_process_loses_nothing_written() -> None:
    disk, files = fresh()
    files.open("data/t-0/a", create=True).append([b"one", b"two"])
    disk.kill()
    assert disk.files().read_bytes("data/t-0/a") == b"onetwo"


def test_power_failure_keeps_what_was_synced_and_some_of_the_rest() -> None:
    lengths = set()
    for seed in range(60):
        disk, files = fresh(seed)
        file = files.open("data/t-0/a", create=True)
        file.append([b"s" * 100])
        file.fsync()
        file.append([b"u" * 100])
        disk.power_failure()
        kept = disk.files().read_bytes("data/t-0/a")
        assert kept[:100] == b"s" * 100
        lengths.add(len(kept))
    assert min(lengths) < 110
    assert max(lengths) > 190


def test_power_failure_may_tear_the_unsynced_end() -> None:
    torn = 0
    for seed in range(60):
        disk, files = fresh(seed)
        file = files.open("data/t-0/a", create=True)
        file.fsync()
        file.append([b"u" * 100])
        disk.power_failure()
        torn += disk.files().read_bytes("data/t-0/a").strip(b"u") != b""
    assert 5 < torn < 55


def test_unsynced_names_may_vanish_in_order() -> None:
    survivors = set()
    for seed in range(40):
        disk, files = fresh(seed)
        for name in "abc":
            files.open(f"data/t-0/{name}", create=True)
        disk.power_failure()
        survivors.add("".join(disk.files().list("data/t-0")))
    assert survivors == {"", "a", "ab", "abc"}


def test_an_atomic_write_is_old_or_new_and_durable_once_it_returns() -> None:
    for seed in range(20):
        disk, files = fresh(seed)
        files.write_atomic("data/checkpoint", b"old")
        files.write_atomic("data/checkpoint", b"new")
        disk.power_failure()
        assert disk.files().read_bytes("data/checkpoint") == b"new"
        assert not disk.files().exists("data/checkpoint.tmp")


def test_a_full_disk_takes_nothing_of_a_write() -> None:
    disk, files = fresh(capacity_bytes=10)
    file = files.open("data/t-0/a", create=True)
    file.append([b"12345678"])
    with pytest.raises(OSError, match="full") as refusal:
        file.append([b"ab", b"c"])
    assert refusal.value.errno == errno.ENOSPC
    assert file.size() == 8
    assert disk.used_bytes() == 8


def test_a_dead_life_can_not_touch_the_disk() -> None:
    disk, files = fresh()
    file = files.open("data/t-0/a", create=True)
    disk.kill()
    with pytest.raises(AssertionError, match="dead process"):
        file.append([b"x"])


def test_folders_move_and_vanish_with_what_is_in_them() -> None:
    _, files = fresh()
    files.open("data/t-0/a", create=True).append([b"x"])
    files.rename("data/t-0", "data/t-0.x-delete")
    assert files.list("data") == ["t-0.x-delete"]
    assert files.read_bytes("data/t-0.x-delete/a") == b"x"
    files.remove_tree("data/t-0.x-delete")
    assert files.list("data") == []


def test_a_lock_is_held_until_released_or_until_death() -> None:
    disk, files = fresh()
    lock = files.lock("data/.lock")
    with pytest.raises(BlockingIOError):
        files.lock("data/.lock")
    lock.release()
    files.lock("data/.lock")
    disk.kill()
    disk.files().lock("data/.lock")


def test_a_flipped_bit_stays_flipped_after_a_power_failure() -> None:
    disk = SimDisk(1)
    files = disk.files()
    files.write_atomic("t", b"\x00\x00")
    disk.flip("t", 1, 3)
    disk.power_failure()
    assert disk.files().read_bytes("t") == b"\x00\x08"


def apart(seed=1):
    disk = SimDisk(seed)
    disk.is_apart = True
    return disk, disk.files()


def test_where_names_are_apart_later_ones_may_survive_without_earlier_ones() -> None:
    survivors = set()
    for seed in range(60):
        disk, files = apart(seed)
        files.make_dirs("data/t-0")
        files.fsync_dir(".")
        files.fsync_dir("data")
        for path in ("data/t-0/a", "data/b"):
            files.open(path, create=True)
        disk.power_failure()
        survivors.add(tuple(sorted(disk.names)))
    assert survivors == {(), ("data/t-0/a",), ("data/b",), ("data/b", "data/t-0/a")}


def test_where_names_are_apart_a_sync_does_not_keep_the_folder_it_is_in() -> None:
    kept = set()
    for seed in range(20):
        disk, files = apart(seed)
        files.make_dirs("data/t-0")
        files.write_atomic("data/t-0/a", b"synced")
        disk.power_failure()
        kept.add(disk.files().exists("data/t-0/a"))
    assert kept == {False, True}


def test_where_names_are_apart_a_renamed_folder_keeps_what_was_synced_in_it() -> None:
    for seed in range(20):
        disk, files = apart(seed)
        files.make_dirs("data/t-0")
        files.fsync_dir(".")
        files.fsync_dir("data")
        file = files.open("data/t-0/a", create=True)
        files.rename("data/t-0", "data/t-1")
        files.fsync_dir("data")
        file.fsync()
        disk.power_failure()
        assert list(disk.names) == ["data/t-1/a"]


def test_a_view_that_lacks_its_second_descriptor_does_not_wait_for_its_own_first() -> None:
    disk, files = fresh()
    file = files.open("data/t-0/a", create=True)
    disk.descriptors.limit = 1
    with pytest.raises(OSError, match="lack of descriptors"):
        file.view(0, 0)
    disk.descriptors.calm()
    file.view(0, 0)
    assert disk.descriptors.taken == 2
