"""What the controller's pure functions give back, and how they refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog_protocol.errors import ErrorCode
    from tidelog_protocol.schema import Message

T = TypeVar("T")


class Decision(NamedTuple, Generic[T]):
    """What to write, as one batch, and what to answer once that is committed."""

    records: Sequence[Message]
    results: list[T]


class RefusedError(Exception):
    """An expected error of one topic or resource: code and text of its answer."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def repeated(names: Iterable[str]) -> list[str]:
    """Names that come more than once, in the order of their second coming."""
    seen: set[str] = set()
    found: dict[str, None] = {}
    for name in names:
        if name in seen:
            found[name] = None
        seen.add(name)
    return list(found)
