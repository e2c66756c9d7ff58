"""What comes between the steps of a pass: the log is cut, deleted, damaged, or the disk is full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.compaction import (
    PARTITION,
    clean,
    cleaner_of,
    compacted,
    fill,
    open_compacted,
    open_manager,
    records_of,
    run_pass,
    view_of,
)
from support.logs import NOW, check_indexes
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.simulation.disk import SimDisk, SimFiles
    from tidelog_storage.log import Log
    from tidelog_storage.manager import LogManager

LATER = NOW + 20_000


@pytest.fixture
def opened(files):
    return open_compacted(files)


def interrupted(manager, when, what):
    """A pass in the middle of which something happens to the log: before the step `when`."""
    cleaner = cleaner_of(manager)
    cleaning = cleaner.begin(NOW)
    steps = iter(range(1000))

    def after_step():
        if next(steps) == when:
            what()

    return run_pass(cleaner, cleaning, NOW, after_step=after_step)


@pytest.mark.parametrize("when", range(4))
def test_a_truncation_ends_a_pass(opened: tuple[LogManager, Log], when: int) -> None:
    manager, log = opened
    fill(log, 100)
    before = {offset: row for offset, *row in records_of(log)}
    assert not interrupted(manager, when, lambda: log.truncate_to(20, NOW))
    left = records_of(log)
    assert log.log_end_offset == 20
    assert all(before[offset] == row for offset, *row in left)
    if not when:  # nothing was swapped in yet; later, it takes the newest record of a key with it
        assert [row[0] for row in left] == list(range(20))
    assert manager.compacted_to(PARTITION) is None
    fill(log, 100)
    assert clean(manager) == 1
    check_indexes(log)


def test_a_truncation_takes_the_checkpoint_back(disk: SimDisk, files: SimFiles) -> None:
    manager, log = open_compacted(files)
    fill(log, 100)
    clean(manager)
    assert manager.compacted_to(PARTITION) == log.segments.active.base_offset
    log.truncate_to(20, NOW)
    assert manager.compacted_to(PARTITION) == 20
    disk.power_failure()
    manager = open_manager(disk.files(), compacted())
    # What lies between its last record and 20 was compacted away: it ends there now.
    assert manager.compacted_to(PARTITION) == manager.get(PARTITION).log_end_offset <= 20


@pytest.mark.parametrize(
    "what",
    [
        lambda manager, log: manager.delete(PARTITION),
        lambda manager, log: setattr(log, "config", compacted(cleanup_policy="delete")),
        lambda manager, log: log.truncate_fully_and_start_at(500),
        lambda manager, log: (
            log.maybe_increment_log_start(60, "test") and log.delete_old_segments(NOW)
        ),
    ],
    ids=["deletion", "policy", "new start", "retention"],
)
@pytest.mark.parametrize("when", [0, 2])
def test_what_takes_the_segments_away_ends_a_pass(
    opened: tuple[LogManager, Log], what: Callable[[LogManager, Log], object], when: int
) -> None:
    manager, log = opened
    fill(log, 100)
    assert not interrupted(manager, when, lambda: what(manager, log))
    assert manager.directories[0].compacted_to(PARTITION) is None


def test_appends_and_rolls_do_not(opened: tuple[LogManager, Log]) -> None:
    manager, log = opened
    fill(log, 100)
    before = view_of(log)
    assert interrupted(manager, 1, lambda: fill(log, 100))
    assert view_of(log).keys() == before.keys()
    assert clean(manager) == 1


def test_a_damaged_log_is_left_as_it_is(disk: SimDisk, opened: tuple[LogManager, Log]) -> None:
    manager, log = opened
    fill(log, 100)
    name = f"data/t-0/{log.segments.base_offsets[1]:020d}.log"
    disk.names[name].data[100] ^= 1
    sizes = disk.files().sizes("data/t-0")
    cleaner = cleaner_of(manager)
    cleaning = cleaner.begin(NOW)
    with pytest.raises(StorageError, match="no valid record batch"):
        run_pass(cleaner, cleaning, NOW)
    cleaner.leave_alone(cleaning)
    assert cleaner.begin(NOW) is None
    now = disk.files().sizes("data/t-0")
    assert {name: now[name] for name in sizes if name.endswith(".log")} == {
        name: size for name, size in sizes.items() if name.endswith(".log")
    }


def test_a_full_disk_costs_a_pass(disk: SimDisk, opened: tuple[LogManager, Log]) -> None:
    manager, log = opened
    fill(log, 100)
    before = view_of(log)
    disk.capacity_bytes = disk.used_bytes() + 100
    cleaner = cleaner_of(manager)
    with pytest.raises(OSError, match="full"):
        run_pass(cleaner, cleaner.begin(NOW), NOW)
    disk.capacity_bytes = None
    assert clean(manager) == 1
    assert view_of(log) == before
    for remove in filter(None, manager.upkeep.prepare_removals(LATER)):
        remove()
    assert not [name for name in disk.names if ".cleaned" in name or ".deleted" in name]


class DiedError(Exception):
    """The process was killed here."""


@pytest.mark.parametrize("when", range(1, 5))
def test_recovery_never_meets_the_gaps(disk: SimDisk, files: SimFiles, when: int) -> None:
    """The recovery point is on disk before the first swap, however old the last checkpoint is."""
    manager, log = open_compacted(files)
    fill(log, 100)
    before, end = view_of(log), log.log_end_offset
    cleaner = cleaner_of(manager)
    cleaning = cleaner.begin(NOW)
    steps = iter(range(when + 1))

    def after_step():
        if next(steps) == when:
            raise DiedError

    with pytest.raises(DiedError):
        run_pass(cleaner, cleaning, NOW, after_step=after_step)
    disk.kill()
    manager = open_manager(disk.files(), compacted())
    log = manager.get(PARTITION)
    assert log.log_end_offset == end
    assert view_of(log) == before
    assert manager.compacted_to(PARTITION) is None
