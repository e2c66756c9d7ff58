"""Who has something that one alone may have at a time, from when to when.

A group's partition, or the lock of a record: the check does not care what it is.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator


class Tenure(NamedTuple):
    """An owner certainly had a thing between two moments."""

    thing: Hashable
    owner: str
    start: float
    end: float


def overlaps(tenures: Iterable[Tenure]) -> Iterator[tuple[Tenure, Tenure]]:
    """Pairs of owners that had one thing at the same time, the earlier one first."""
    by_thing: dict[Hashable, list[Tenure]] = defaultdict(list)
    for tenure in tenures:
        if tenure.start < tenure.end:
            by_thing[tenure.thing].append(tenure)
    for same in by_thing.values():
        same.sort(key=lambda each: each.start)
        lasts: dict[str, Tenure] = {}  # of each owner, the one that ends last
        for later in same:
            for earlier in lasts.values():
                if earlier.owner != later.owner and later.start < earlier.end:
                    yield earlier, later
            known = lasts.get(later.owner, later)
            lasts[later.owner] = max(known, later, key=lambda each: each.end)
