"""What a long operation has done so far: a file of JSON lines beside its report.

A run whose driver is killed leaves it, and the next run that asks the same goes on there. The
operation works in waves, so that a kill costs one of them.
"""

from __future__ import annotations

import json
import os
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["Journal", "waves"]

WAVE_BYTES = 8 << 30
WAVES_MAX = 50  # each leaves some cores idle at its end

T = TypeVar("T")


class Journal:
    """Results by the name of a step, as plain JSON. Without a file nothing is kept."""

    def __init__(self, file: Path | None, question: Mapping[str, Any]) -> None:
        """`question`: what is asked; results of another question do not count."""
        self._file = file
        self._question = json.dumps(question, sort_keys=True)
        self._is_begun = False
        self.done: dict[str, Any] = {} if file is None else self._read(file)

    def add(self, results: Mapping[str, Any]) -> None:
        """Keep the results of steps, whole or not at all."""
        self.done |= results
        if self._file is None:
            return
        lines = [
            json.dumps(each) for each in (self.done if not self._is_begun else results).items()
        ]
        if self._is_begun:
            with self._file.open("a") as stream:
                stream.writelines(f"{line}\n" for line in lines)
                stream.flush()
                os.fsync(stream.fileno())
            return
        # The file of a killed run may end inside a line: write a new one.
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        fresh.write_text("".join(f"{line}\n" for line in (self._question, *lines)))
        fresh.replace(self._file)
        self._is_begun = True

    def _read(self, file: Path) -> dict[str, Any]:
        try:
            question, *lines = file.read_text().split("\n")
        except (OSError, UnicodeDecodeError):
            return {}
        if question != self._question:
            return {}
        try:
            return dict(json.loads(line) for line in lines[:-1])  # the last one has no end
        except (TypeError, ValueError):
            return {}


def waves(items: Sequence[T], size_of: Callable[[T], int]) -> list[list[T]]:
    """The items in order, cut into waves of about the same bytes."""
    sizes = list(map(size_of, items))
    step = max(WAVE_BYTES, -(-sum(sizes) // WAVES_MAX), 1)
    begins = [after - size for after, size in zip(accumulate(sizes), sizes, strict=True)]
    numbered = zip((begin // step for begin in begins), items, strict=True)
    return [[item for _, item in wave] for _, wave in groupby(numbered, key=lambda each: each[0])]
