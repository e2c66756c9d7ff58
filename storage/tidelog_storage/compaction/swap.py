"""Replace segments by the compacted one made of them, safely across crashes.

The order is Kafka's: whole and durable `.cleaned` files become `.swap`, the old segments' files
become `.deleted`, the `.swap` files lose their suffix. Name changes become durable in the order
they happened. So while a `.cleaned` file is left, the old segments are whole; once the last one is
a `.swap`, the new segment is valid, and a start finishes the swap.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tidelog_storage.scan import batch_places
from tidelog_storage.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, file_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog_storage.seams import FileSystem
    from tidelog_storage.segment import Segment

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"


def swap_files(
    files: FileSystem, folder: str, base_offset: int, old: Sequence[Segment]
) -> list[str]:
    """Replace `old` by the `.cleaned` segment of that base; return the old files' new paths.

    OSError leaves it half done: only a start can repair that.
    """
    paths = [f"{folder}/{file_name(base_offset, suffix)}" for suffix in SEGMENT_SUFFIXES]
    present = [path for path in paths if files.exists(path + CLEANED_SUFFIX)]
    for path in present:
        files.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
    deleted: list[str] = []
    for segment in old:
        deleted += segment.mark_deleted()
    for path in present:
        files.rename(path + SWAP_SUFFIX, path)
    return deleted


def finish_swaps(
    files: FileSystem, folder: str, names: Iterable[str], report: Callable[[str], None]
) -> None:
    """Finish a swap that a crash interrupted if the `.swap` is whole, else drop it.

    `names` lie in the folder; `.cleaned` files stay there for the caller to remove.
    """
    listed = list(names)
    # Kafka also splits a segment into several this way: they are valid together or not at all.
    unfinished = min(
        [_offset(name) for name in listed if name.endswith(CLEANED_SUFFIX)], default=None
    )
    swaps = [name for name in listed if name.endswith(SWAP_SUFFIX) and _offset(name) >= 0]
    whole = [name for name in swaps if unfinished is None or _offset(name) < unfinished]
    for name in whole:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            base_offset = _offset(name)
            for covered in _covered(files, f"{folder}/{name}", base_offset, listed):
                files.remove(f"{folder}/{covered}")
            report(f"finished the compaction of segment {base_offset}")
    for name in swaps:
        if name in whole:
            files.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP_SUFFIX)}")
        else:
            files.remove(f"{folder}/{name}")
    if swaps:
        files.fsync_dir(folder)


def _covered(files: FileSystem, path: str, base_offset: int, names: Sequence[str]) -> list[str]:
    """Return the files of the old segments of the compacted one.

    Files after its last batch may be left over: all their records are superseded.
    """
    end_offset = base_offset + 1
    with closing(files.open(path)) as swap:
        for place in batch_places(swap, 0, swap.size()):
            end_offset = place.last_offset + 1
    return [
        name
        for name in names
        if name.endswith(SEGMENT_SUFFIXES) and base_offset <= _offset(name) < end_offset
    ]


def _offset(name: str) -> int:
    """Return the offset in a file's name; -1 if it has none."""
    digits = name[:20]
    return int(digits) if digits.isdecimal() and len(digits) == 20 else -1
