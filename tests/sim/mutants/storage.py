"""Planted bugs of the storage room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cluster.metadata import loading as metadata_loading
from tidelog_storage import directory as log_directory
from tidelog_storage import manager, recovery
from tidelog_storage.checkpoints import write_clean_shutdown
from tidelog_storage.compaction.offset_map import OffsetMap
from tidelog_storage.flush import FlushTask
from tidelog_storage.guarded_files import GuardedFiles
from tidelog_storage.log import Log
from tidelog_storage.manager import LogManager
from tidelog_storage.segment import Segment
from tidelog_storage.segments import Segments

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog_storage.loading import LogContext

    Patch = Callable[..., None]


def trust_the_torn_tail(patch: Patch) -> None:
    """Recovery takes every batch that looks whole: no CRC, so noise becomes records."""
    from tidelog_storage import scan

    patch(scan, "crc_is_valid", lambda *_: True)


def recover_nothing(patch: Patch) -> None:
    """Every stop counts as orderly: indexes and tails are taken as they lie."""
    patch(recovery._Loader, "recover", lambda *_, **_options: [])


def forget_producers_at_restart(patch: Patch) -> None:
    """Sequences start anew after a restart: retries are appended again."""
    original = recovery.load_log

    def load_log(*args: Any, **options: Any) -> Log:
        log = original(*args, **options)
        log.producers.producers.clear()
        return log

    patch(manager, "load_log", load_log)


def recovery_point_before_fsync(patch: Patch) -> None:
    """The log counts as durable as soon as a flush is prepared."""
    original = Log.prepare_flush

    def prepare_flush(self: Log, *args: Any, **options: Any) -> FlushTask | None:
        task = original(self, *args, **options)
        if task is not None:
            self.flushed(task)
        return task

    patch(Log, "prepare_flush", prepare_flush)


def acknowledge_before_fsync(patch: Patch) -> None:
    """`flush.messages` is taken for granted: nothing is synced, the recovery point moves."""
    patch(FlushTask, "__call__", lambda _self: None)


def serve_before_the_log_start(patch: Patch) -> None:
    """Retention forgets that the log start moves with the first segment."""
    patch(Log, "maybe_increment_log_start", lambda *_: False)


def read_past_the_batch(patch: Patch) -> None:
    """A look-up lands one batch behind the one that holds the offset."""
    original = Segment.find

    def find(self: Segment, offset: int, position: int = 0) -> Any:
        place = original(self, offset, position)
        if place is not None and place.base_offset < offset:
            return original(self, place.last_offset + 1) or place
        return place

    patch(Segment, "find", find)


def compact_the_newest_away(patch: Patch) -> None:
    """Compaction takes every record for superseded."""
    patch(OffsetMap, "newest", lambda *_: 1 << 62)


def mark_a_failed_directory_clean(patch: Patch) -> None:
    """The end after a failed sync leaves the mark of an orderly stop."""
    original = LogManager.abandon

    def abandon(self: LogManager) -> None:
        for directory in self.directories:
            if directory.failure is not None:
                write_clean_shutdown(self._files, directory.path)
        original(self)

    patch(LogManager, "abandon", abandon)


def sync_a_failed_directory_again(patch: Patch) -> None:
    """A failed sync is told, and what comes later in that directory is taken for durable."""

    def fail(self: GuardedFiles, error: OSError) -> None:
        if self.on_failure is not None:
            self.on_failure(error)

    patch(GuardedFiles, "fail", fail)


def truncate_oldest_first(patch: Patch) -> None:
    """A truncation removes the segments in the order of their offsets."""
    original = Segments.remove_above
    patch(Segments, "remove_above", lambda self, offset: original(self, offset)[::-1])


def names_of_folders_are_not_synced(patch: Patch) -> None:
    """What is in a new directory is durable, and the directory's own name is not."""
    for module in (log_directory, metadata_loading):
        patch(module, "make_durable_folder", lambda files, folder: files.make_dirs(folder))


def lower_the_recovery_point_after_the_cut(patch: Patch) -> None:
    """A crash inside of a truncation leaves the recovery point that the log had before."""
    begin, end = Log._begin_cut, Log._make_cut_durable

    def begin_cut(self: Log, offset: int) -> None:
        context = self._context
        self._context = context._replace(on_recovery_point_lowered=None)
        begin(self, offset)
        self._context = context

    def make_cut_durable(self: Log) -> None:
        end(self)
        if self._context.on_recovery_point_lowered is not None:
            self._context.on_recovery_point_lowered(self.recovery_point)

    patch(Log, "_begin_cut", begin_cut)
    patch(Log, "_make_cut_durable", make_cut_durable)
    trust_the_recovery_point_above_the_end(patch)


def trust_the_recovery_point_above_the_end(patch: Patch) -> None:
    """A start that finds less than the recovery point says leaves it as it is."""
    original = recovery.load_log

    def load_log(context: LogContext, *args: Any, **options: Any) -> Log:
        log = original(context._replace(on_recovery_point_lowered=None), *args, **options)
        log._context = context
        return log

    patch(manager, "load_log", load_log)


CUTS = {
    "truncate-oldest-first": truncate_oldest_first,
    "lower-the-recovery-point-after-the-cut": lower_the_recovery_point_after_the_cut,
}
MUTANTS = {
    "trust-the-torn-tail": trust_the_torn_tail,
    "recover-nothing": recover_nothing,
    "forget-producers-at-restart": forget_producers_at_restart,
    "recovery-point-before-fsync": recovery_point_before_fsync,
    "acknowledge-before-fsync": acknowledge_before_fsync,
    "serve-before-the-log-start": serve_before_the_log_start,
    "read-past-the-batch": read_past_the_batch,
    "compact-the-newest-away": compact_the_newest_away,
    "mark-a-failed-directory-clean": mark_a_failed_directory_clean,
    "sync-a-failed-directory-again": sync_a_failed_directory_again,
    "names-of-folders-are-not-synced": names_of_folders_are_not_synced,
}
