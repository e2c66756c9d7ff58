"""How many partitions a controller changes by one batch: few in some seeds, so that it, and its
brokers, may die between two steps of one decision."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING
from unittest import mock

from sim.cluster.work.seeds import FIRST
from tidelog.cluster.controller import partitions

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS_WITH_IT = 0.15


def partitions_per_step(seed: int | str) -> int | None:
    """Those of a seed, by a chance of its own; None: as many as outside of the simulation."""
    rng = random.Random(f"{seed}:partitions per step")
    if not isinstance(seed, int) or seed < FIRST or rng.random() >= SEEDS_WITH_IT:
        return None
    return rng.randint(1, 3)


@contextlib.contextmanager
def steps_of(count: int | None) -> Iterator[None]:
    """While this lasts a step has so many partitions."""
    count = partitions.CHANGES_PER_STEP_MAX if count is None else count
    with mock.patch.object(partitions, "CHANGES_PER_STEP_MAX", count):
        yield
