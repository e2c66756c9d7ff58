"""Planted bugs: the simulator has to find each of them, or it finds nothing.

A mutant is a function that changes one thing in the broker or its storage, through `patch`, for as
long as it is planted. Each says which promise it breaks. `storage.py`: on disk; `broker.py`: above;
`clients.py`: in answers alone;
`cluster.py` and `transactions.py`: what several brokers show, and one does not. `remote.py` and
`tier.py`: of the remote tier. `files.py`: of damaged files. `folders.py`: of log directories.
`groups.py`: of groups of KIP-848. `shares.py`: of share groups. `streams.py`: of streams groups.
`strangers.py`: clients and processes that are believed.
`voters.py`: of voters that change.
`healing.py`: of scrubs and repairs. `work.py`: of work that a part of the seeds has.
`sim/grounds.py` says where each is looked for.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from unittest import mock

from sim.mutants import (
    broker,
    clients,
    cluster,
    files,
    folders,
    groups,
    healing,
    remote,
    shares,
    storage,
    strangers,
    streams,
    tier,
    transactions,
    voters,
    work,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Planting = Callable[[Callable[..., None]], None]

__all__ = ["ALL", "CLUSTER_MUTANTS", "MUTANTS", "TIER_MUTANTS", "planted"]

MUTANTS: dict[str, Planting] = {**storage.MUTANTS, **broker.MUTANTS, **clients.MUTANTS}
CLUSTER_MUTANTS: dict[str, Planting] = {
    **cluster.MUTANTS,
    **strangers.MUTANTS,
    **transactions.MUTANTS,
}
TIER_MUTANTS: dict[str, Planting] = tier.CLUSTER  # to be found by seeds that have a remote tier
_PLAYED: tuple[Mapping[str, Planting], ...] = (  # chance seldom meets these
    cluster.DIRECTORIES,
    cluster.ELIGIBLE,
    cluster.HALF_FENCED,
    cluster.SLOW_DISK,
    files.PLAYED,
    folders.LIVES,
    folders.VOTERS,
    groups.MUTANTS,
    healing.FOLLOWERS,
    healing.HEADERS,
    voters.MUTANTS,
    healing.MUTANTS,
    healing.REMOTE,
    remote.MUTANTS,
    shares.MUTANTS,
    storage.CUTS,
    strangers.CARELESS,
    streams.EXACTLY_ONCE,
    streams.MUTANTS,
    tier.BRANCHES,
    transactions.TOLD_MUTANTS,
    work.MUTANTS,
)
ALL: dict[str, Planting] = {
    name: plant
    for mutants in (MUTANTS, CLUSTER_MUTANTS, TIER_MUTANTS, *_PLAYED)
    for name, plant in mutants.items()
}


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant a mutant by name (None: none) while the block runs."""
    with contextlib.ExitStack() as stack:
        if name is not None:
            ALL[name](
                lambda owner, attribute, value: stack.enter_context(
                    mock.patch.object(owner, attribute, value)
                )
            )
        yield
