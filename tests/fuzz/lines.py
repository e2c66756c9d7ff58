"""Which inputs reach new code, where atheris is not there: Python tells of each line once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType, TracebackType
    from typing import Self

OWN = "/tidelog"  # in the paths of what is fuzzed


def is_there() -> bool:
    """Whether this Python has `sys.monitoring` (PEP 669)."""
    return sys.version_info >= (3, 12)


class Lines:
    """Counts lines that run for the first time within a `with` block."""

    def __init__(self, part_of_path: str = OWN) -> None:
        self._part = part_of_path
        self._count = self._seen = 0

    def has_new(self) -> bool:
        """Whether lines ran that had never run at the last call."""
        before, self._seen = self._seen, self._count
        return self._seen > before

    if sys.version_info >= (3, 12):

        def __enter__(self) -> Self:
            monitoring = sys.monitoring
            monitoring.use_tool_id(monitoring.COVERAGE_ID, "fuzz")
            monitoring.register_callback(
                monitoring.COVERAGE_ID, monitoring.events.LINE, self._on_line
            )
            monitoring.restart_events()
            monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
            return self

        def __exit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
        ) -> None:
            monitoring = sys.monitoring
            monitoring.set_events(monitoring.COVERAGE_ID, 0)
            monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, None)
            monitoring.free_tool_id(monitoring.COVERAGE_ID)

        def _on_line(self, code: CodeType, _line: int) -> object:
            self._count += self._part in code.co_filename
            return sys.monitoring.DISABLE  # once is enough

    else:

        def __enter__(self) -> Self:
            return self

        def __exit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
        ) -> None:
            return
