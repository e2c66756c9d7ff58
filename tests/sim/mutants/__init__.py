"""Planted bugs: the simulator has to find each of them, or it finds nothing.

A mutant is a function that changes one thing in the broker or its storage, through `patch`, for as
long as it is planted. Each says which promise it breaks. `storage.py`: on disk; `broker.py`: above;
`clients.py`: in answers alone;
`cluster.py` and `transactions.py`: what several brokers show, and one does not. `remote.py` and
`tier.py`: of the remote tier. `files.py`: of damaged files. `folders.py`: of log directories.
`strangers.py`: clients and processes that are believed.
`healing.py`: of scrubs and repairs.
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
    healing,
    storage,
    strangers,
    tier,
    transactions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "CLUSTER_MUTANTS",
    "CUT_MUTANTS",
    "FOLDER_MUTANTS",
    "MUTANTS",
    "SCRUB_MUTANTS",
    "SLOW_DISK_MUTANTS",
    "TIER_MUTANTS",
    "VOTER_MUTANTS",
    "planted",
]

MUTANTS: dict[str, Callable[[Callable[..., None]], None]] = {
    **storage.MUTANTS,
    **broker.MUTANTS,
    **clients.MUTANTS,
}
CLUSTER_MUTANTS: dict[str, Callable[[Callable[..., None]], None]] = {
    **cluster.MUTANTS,
    **strangers.MUTANTS,
    **transactions.MUTANTS,
}
SLOW_DISK_MUTANTS = cluster.SLOW_DISK  # to be found by `test_slow_disk.py`
CUT_MUTANTS = storage.CUTS  # to be found by the play of `cuts.py`
FOLDER_MUTANTS = folders.LIVES  # by `folder_lives.py`
SCRUB_MUTANTS = healing.MUTANTS  # by `scrubs.py`
VOTER_MUTANTS = folders.VOTERS  # by `lost_voter.py`
TIER_MUTANTS = tier.CLUSTER  # to be found by seeds that have a remote tier


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant a mutant by name (None: none) while the block runs."""
    with contextlib.ExitStack() as stack:
        if name is not None:
            known = {**MUTANTS, **CLUSTER_MUTANTS, **CUT_MUTANTS, **TIER_MUTANTS, **tier.BRANCHES}
            known |= {
                **FOLDER_MUTANTS,
                **SCRUB_MUTANTS,
                **VOTER_MUTANTS,
                **SLOW_DISK_MUTANTS,
                **transactions.TOLD_MUTANTS,
                **files.PLAYED,
            }
            known[name](
                lambda owner, attribute, value: stack.enter_context(
                    mock.patch.object(owner, attribute, value)
                )
            )
        yield
