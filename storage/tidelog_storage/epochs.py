"""The leader epoch cache of a log: the start offset of each leader epoch (KIP-101, KIP-279).

One log owns it and keeps it equal to its batches. `log.py` calls every method, replica code calls
`end_offset_for`. It does not know the log's ends: they are arguments. Kafka: LeaderEpochFileCache.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from tidelog_storage.checkpoints import LEADER_EPOCH_CHECKPOINT, EpochEntry
from tidelog_storage.types import UNDEFINED_EPOCH, UNDEFINED_OFFSET, OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog_storage.checkpoints import LeaderEpochCheckpoint


class LeaderEpochCache:
    """Entries (epoch, start offset), both strictly rising.

    With a remote tier the list reaches back to the log start, not only to the local log start.

    The file is right below the log's recovery point and may be old above it: a flush of the log
    writes it first. A crash loses nothing by that. Each batch carries its epoch, and recovery takes
    the epochs above the recovery point from the batches and not from the file. An epoch without
    records starts at the log end and is not written: loading drops such an entry, in Kafka as well.
    Nothing refers to it: followers learn epochs from batches (KIP-101, KIP-279), and the next epoch
    starts at the same offset and takes its place. So a new leader needs no fsync; Kafka's does one.

    The file never begins below a log start that is checkpointed: what was cut off the entries for
    its sake is durable before (`Log.prepare_start`). So a checkpointed log start above the
    oldest entry is no log start but damage (`recovery.py`).
    """

    __slots__ = ("_checkpoint", "_epochs", "_starts", "_wanted", "_written")

    def __init__(
        self,
        checkpoint: LeaderEpochCheckpoint | None = None,
        entries: Iterable[EpochEntry | tuple[int, int]] = (),
    ) -> None:
        """`checkpoint` None keeps the cache in memory only (copies, tests)."""
        self._checkpoint = checkpoint
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._written: list[EpochEntry] | None = None  # what was last written; None without a file
        self._wanted: list[EpochEntry] | None = None  # the same object, if no write is pending
        for epoch, start_offset in entries:
            self._insert(epoch, start_offset)

    @classmethod
    def load(cls, checkpoint: LeaderEpochCheckpoint) -> LeaderEpochCache:
        """Load the cache from its file; CheckpointError if that is malformed."""
        entries = checkpoint.read()
        cache = cls(checkpoint, entries or ())
        if entries is not None:
            cache._written = cache._wanted = cache.entries
        return cache

    @property
    def has_file(self) -> bool:
        """Return whether there is a file, even without entries."""
        return self._written is not None

    # -- questions -----------------------------------------------------------------------------

    @property
    def entries(self) -> list[EpochEntry]:
        """A copy of all entries, oldest first."""
        return list(map(EpochEntry, self._epochs, self._starts))

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def latest_epoch(self) -> int:
        """The newest epoch; UNDEFINED_EPOCH (-1) when empty."""
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    @property
    def earliest_entry(self) -> EpochEntry | None:
        """The oldest entry."""
        return EpochEntry(self._epochs[0], self._starts[0]) if self._epochs else None

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that covers `offset`; None below the oldest entry."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> OffsetAndEpoch:
        """Return where `epoch` ends here: the largest known epoch <= it, and its end offset.

        KIP-279: for an epoch older than all, return it with the oldest start, so that the follower
        truncates to that. (-1, -1) for an unknown newer epoch, -1, or an empty cache.
        """
        epochs = self._epochs
        if not epochs or epoch == UNDEFINED_EPOCH or epoch > epochs[-1]:
            return OffsetAndEpoch(UNDEFINED_OFFSET, UNDEFINED_EPOCH)
        if epoch == epochs[-1]:
            return OffsetAndEpoch(log_end_offset, epoch)
        index = bisect_right(epochs, epoch)
        if not index:
            return OffsetAndEpoch(self._starts[0], epoch)
        return OffsetAndEpoch(self._starts[index], epochs[index - 1])

    def entries_in_range(self, start_offset: int, end_offset: int) -> list[EpochEntry]:
        """The entries of offsets [start, end), clipped to start; a start below 0 means no bound."""
        copy = LeaderEpochCache(None, self.entries)
        if start_offset >= 0:
            copy.truncate_from_start(start_offset)
        copy.truncate_from_end(end_offset)
        return copy.entries

    # -- changes -------------------------------------------------------------------------------

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` has a record at `start_offset`; return whether that was new.

        Entries that it contradicts (epoch or start not below) are dropped, because the log was
        rewritten there.
        """
        epochs = self._epochs
        if epochs and epochs[-1] == epoch and self._starts[-1] <= start_offset:
            return False  # every append but the first of an epoch ends here
        self._insert(epoch, start_offset)
        return True

    def _insert(self, epoch: int, start_offset: int) -> None:
        if epoch < 0 or start_offset < 0:
            raise ValueError(
                f"leader epoch {epoch} at offset {start_offset}: both must be 0 or more"
            )
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset))
        del self._epochs[keep:]
        del self._starts[keep:]
        self._epochs.append(epoch)
        self._starts.append(start_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: drop entries that start there or above.

        Call it even if no record was cut: an epoch without records must be dropped.
        """
        keep = bisect_left(self._starts, end_offset)
        del self._epochs[keep:]
        del self._starts[keep:]

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now begins at `start_offset`: its epoch begins there, older ones are dropped."""
        covering = bisect_right(self._starts, start_offset) - 1
        if covering >= 0:
            del self._epochs[:covering]
            del self._starts[:covering]
            self._starts[0] = start_offset

    def replace(self, entries: Iterable[tuple[int, int]]) -> None:
        """The log was fully truncated and restarts with these entries."""
        self.clear()
        for epoch, start_offset in entries:
            self._insert(epoch, start_offset)

    def correct(self, found: Sequence[tuple[int, int]], end_offset: int) -> None:
        """Replace the entries from the first of these on, up to `end_offset`, by these."""
        (first_epoch, start_offset), (last_epoch, _) = found[0], found[-1]
        entries = self.entries
        older = [
            one for one in entries if one.start_offset < start_offset and one.epoch <= first_epoch
        ]
        newer = [
            one for one in entries if one.start_offset >= end_offset and one.epoch > last_epoch
        ]
        newest = older[-1].epoch if older else UNDEFINED_EPOCH
        self.replace([*older, *(one for one in found if one[0] > newest), *newer])

    def clear(self) -> None:
        """The log was truncated fully."""
        self._epochs.clear()
        self._starts.clear()

    def move_to(self, folder: str) -> None:
        """Follow the checkpoint to another folder."""
        if self._checkpoint is not None:
            self._checkpoint.path = f"{folder}/{LEADER_EPOCH_CHECKPOINT}"

    def has_below(self, offset: int) -> bool:
        """Return whether the file may hold an entry below an offset, or is missing."""
        written = self._written
        if written is None or written is not self._wanted:
            return True
        return bool(written) and written[0].start_offset < offset

    def flush(self, end_offset: int) -> None:
        """Write the entries below `end_offset`, unless the file holds them."""
        write = self.prepare(end_offset)
        if write is not None:
            write()

    def prepare(self, end_offset: int) -> Callable[[], None] | None:
        """`flush` in two steps: call the result on any thread; None if the file is up to date.

        The oldest entry is written even if no record is left: it says where the log starts.
        """
        keep = max(bisect_left(self._starts, end_offset), 1)
        entries = list(map(EpochEntry, self._epochs[:keep], self._starts))
        is_written = self._written is self._wanted and entries == self._wanted
        if self._checkpoint is None or is_written:
            return None
        self._wanted = entries
        return self._write

    def _write(self) -> None:
        """Write the newest entries, which also win over a concurrent write of another thread."""
        assert self._checkpoint is not None
        wanted = None
        while wanted is not self._wanted:
            wanted = self._wanted
            assert wanted is not None
            self._checkpoint.write(wanted)
        self._written = wanted
