"""The file descriptors of the process on one machine (`disk.py`).

Each open file of a life holds a descriptor, one that was viewed a second one, as a mapping does.
The files take them from each other by the rules of the real ones (`OpenFiles`). While descriptors
are lacking, each use that needs a new one gets EMFILE once no file has one to give up.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from tidelog_storage.open_files import OpenFiles, lacks_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.simulation.disk_files import SimFile

FILES_MAX = 6


class Descriptors:
    """Those of the process on one machine."""

    def __init__(self) -> None:
        self.limit: int | None = None
        self.taken = 0
        self.files = OpenFiles(FILES_MAX)
        self.violation: str | None = None  # a broker took the lack of them for a failed disk
        self.on_violation: Callable[[str], None] = lambda _violation: None

    def end_life(self) -> None:
        """All are given back."""
        self.taken = 0
        self.files = OpenFiles(FILES_MAX)

    def calm(self) -> None:
        """There are enough."""
        self.limit = None

    def use(self, file: SimFile, wanted: int = 1) -> None:
        """See that a file holds as many as it needs."""
        file.is_recent = True
        if file.descriptors >= wanted:
            return
        self.files.remove(file)  # a call that uses it keeps what it has
        try:
            while file.descriptors < wanted:
                self.files.retry(self._take, 1)
                file.descriptors += 1
        finally:
            if file.descriptors:
                self.files.add(file)

    def use_for_a_moment(self) -> None:
        """Something is opened, and closed again by the same call."""
        self.files.retry(self._take, 0)

    def _take(self, count: int) -> None:
        if self.limit is not None and self.taken >= self.limit:
            raise OSError(errno.EMFILE, "simulated lack of descriptors")
        self.taken += count

    def judge(self, failure: BaseException | None) -> None:
        """A broker ended for this reason."""
        if lacks_descriptors(failure) or lacks_descriptors(getattr(failure, "__cause__", None)):
            self.violation = f"a broker without descriptors took its disk for broken: {failure}"
            self.on_violation(self.violation)
