"""What a log is loaded with, and what loading has found."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog_storage.epochs import LeaderEpochCache
    from tidelog_storage.log import Log
    from tidelog_storage.producer_state import ProducerStateManager
    from tidelog_storage.seams import FileSystem
    from tidelog_storage.segments import Segments
    from tidelog_storage.types import TopicPartition


class LogContext(NamedTuple):
    """What a log gets from its manager; `now_ms` is the time of loading.

    `remote_storage_system_enable`: whether the broker has a remote tier at all. `on_roll` is called
    with a log whose sealed segment must be flushed. `on_recovery_point_lowered` makes the lowered
    point durable before a cut, else a crash would trust bytes written after. `report` gets a
    sentence for each repair.
    """

    files: FileSystem
    folder: str
    topic_partition: TopicPartition
    now_ms: int
    topic_id: bytes | None = None
    producer_expiration_ms: int = 86_400_000
    remote_storage_system_enable: bool = False
    on_roll: Callable[[Log], None] | None = None
    on_recovery_point_lowered: Callable[[int], None] | None = None
    report: Callable[[str], None] | None = None


class Checkpointed(NamedTuple):
    """What the log directory's checkpoints say of one partition; see `checkpoints.py`.

    `log_start_offset` None: nothing, as for most logs that begin with their first segment.
    `compacted_to`: below this offset, segments may end before the next one begins. `keep_below`:
    below this offset nothing is cut off as torn; damage there is an error. `log_starts_are_lost`:
    the file of the log starts is gone or damaged, though the last stop was orderly.
    """

    had_clean_shutdown: bool = False
    recovery_point: int = 0
    log_start_offset: int | None = None
    high_watermark: int = 0
    compacted_to: int = 0
    keep_below: int = 0
    log_starts_are_lost: bool = False


class Loaded(NamedTuple):
    """What a log's folder holds. `epochs_lost` says why the epochs of a remote part, if it has one,
    are not known."""

    segments: Segments
    epochs: LeaderEpochCache
    producers: ProducerStateManager
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    recovery_point: int
    epochs_lost: str | None
