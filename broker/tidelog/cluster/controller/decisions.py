"""The results and the errors of the controller's pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog_protocol.errors import ErrorCode
    from tidelog_protocol.schema import Message

T = TypeVar("T")


class Decision(NamedTuple, Generic[T]):
    """The records to commit as one batch, and the results to return after that."""

    records: Sequence[Message]
    results: list[T]


class Charge(Protocol):
    """Charges a request for the partitions that it creates or deletes (KIP-599)."""

    def take(self, partitions: int) -> None:
        """Charge one topic; RefusedError if it is above the client's quota."""
        ...

    def throttle_ms(self) -> int:
        """Return for how long the client must be throttled; 0 if it need not be."""
        ...


class RefusedError(Exception):
    """An expected error of one topic or resource, with the code and text for the client."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def repeated(names: Iterable[str]) -> dict[str, None]:
    """Return the names that occur more than once, in the order of their second occurrence; a
    dictionary, as thousands of names are looked up in it."""
    seen: set[str] = set()
    found: dict[str, None] = {}
    for name in names:
        if name in seen:
            found[name] = None
        seen.add(name)
    return found
