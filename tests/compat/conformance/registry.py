"""What a case is: a function that asks a broker things in one version of one API."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from compat.conformance.messages import APIS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from compat.conformance.session import Session


class Case(NamedTuple):
    """One case. `run(session, version)` is called once a version."""

    name: str
    api: str
    first: int
    last: int
    run: Callable[[Session, int], None]


class Run(NamedTuple):
    """One case in one version; `key` names it in transcripts, topics and groups."""

    case: Case
    version: int

    @property
    def key(self) -> str:
        return f"{self.case.api}-{self.case.name}-v{self.version}".replace("_", "-")


CASES: list[Case] = []


def case(
    api: str, first: int = 0, last: int = 99, *, into: list[Case] = CASES
) -> Callable[..., Callable[..., None]]:
    """Register a case for the versions of the API from `first` to `last`."""
    lowest, highest = APIS[api].versions()

    def register(run: Callable[[Session, int], None]) -> Callable[[Session, int], None]:
        into.append(Case(run.__name__, api, max(first, lowest), min(last, highest), run))
        return run

    return register


def runs(
    reference_ranges: dict[int, tuple[int, int]] | None = None, cases: Iterable[Case] = CASES
) -> Iterator[Run]:
    """Every case in every version, those the reference has if its ranges are given."""
    for one in cases:
        first, last = one.first, one.last
        if reference_ranges is not None:
            known = reference_ranges.get(APIS[one.api].key, (0, -1))
            first, last = max(first, known[0]), min(last, known[1])
        for version in range(first, last + 1):
            yield Run(one, version)
