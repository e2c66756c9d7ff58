"""Which seeds have which kinds of work, by chances of their own: the others stay what they were."""

from __future__ import annotations

import random

KINDS = (
    "append time",
    "compacted topic",
    "fetch sessions",
    "names used again",
    "retention",
    "unclean elections",
)
SHARES = {
    "consumer groups": ("members that beat", 0.06),
    "new topics that move": ("moves beside others", 0.08),
    "share groups": ("kip-932", 0.05),
    "static members": ("members by instance", 0.08),
    "streams groups": ("kafka streams", 0.05),
    "voters that change": ("kip-853", 0.04),
}
"""Kinds with a share of all seeds of their own, and the stream (no later seed of old bugs)."""
SEEDS_WITH_IT = 0.3
CHANCE_OF_A_KIND = 0.4
UNCLEAN_ELECTION = "unclean election"
NAME_REUSED = "name used again"
WORK_FAULTS = {UNCLEAN_ELECTION: "unclean elections", NAME_REUSED: "names used again"}
FIRST = 32  # tests replay the seeds below, which find old bugs


def work_of(seed: int | str) -> tuple[str, ...]:
    """The kinds that a seed has."""
    if not isinstance(seed, int) or seed < FIRST:
        return ()
    own = tuple(
        kind
        for kind, (stream, share) in SHARES.items()
        if random.Random(f"{seed}:{stream}").random() < share
    )
    chance = random.Random(f"{seed}:more work").random()  # by this name: no later seed of old bugs
    if chance >= SEEDS_WITH_IT:
        return own
    return own + tuple(
        kind for kind in KINDS if random.Random(f"{seed}:work {kind}").random() < CHANCE_OF_A_KIND
    )


def draw_work_faults(seed: int | str, plan_s: float) -> list[tuple[float, str]]:
    """What belongs to a seed's work, and when."""
    kinds = work_of(seed)
    drawn = []
    for fault, kind in WORK_FAULTS.items():
        if kind in kinds:
            rng = random.Random(f"{seed}:{fault}")
            drawn += [(rng.uniform(0.5, plan_s), fault) for _ in range(rng.randint(1, 2))]
    return drawn
