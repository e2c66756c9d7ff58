"""What the remote tier of a seed is like: which topics are in it, its settings, its bad weather."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sim.remote_store import NAME, NEAR_NAME, PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

# Of a broker, beside its partitions; the last is emptied when it is next needed.
FOLDERS = ("remote-log-index-cache", "remote-log-repair")
SEEDS_WITH_IT = 0.3
TOPICS_WITH_IT = 0.8
_RLMM = "rlmm.config.remote.log.metadata"
# What the store does for a while: weight, smallest and largest amount, longest time.
STORE_FAULTS: dict[str, tuple[int, float, float, float]] = {
    "store errors": (5, 0.05, 0.7, 5),  # their chance
    "store outage": (3, 1, 1, 4),
    "slow store": (3, 0.05, 1.5, 4),  # seconds a call takes at most
    "late sight": (5, 0.5, 4, 6),  # seconds until a copy is seen, at most
    "rotten reads": (4, 0.05, 0.8, 8),  # their chance
}
STORE_FAULTS_IN_A_PLAN = (2, 9)


def has_tier(seed: int | str) -> bool:
    """A part of the seeds: the others stay what they were without."""
    return random.Random(f"{seed}:a disk").random() < SEEDS_WITH_IT  # none of an old bug


def store_name(seed: int | str) -> str:
    """Of the directory, and its weather."""
    return f"cluster-{seed}"


def tier_settings(seed: int | str, factor: int, min_isr: int) -> dict[str, str]:
    """Of all brokers: little things often, and a seed's own habits."""
    rng = random.Random(f"{seed}:habits of the tier")
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": rng.choice((NAME, NEAR_NAME)),
        "rsm.config.dir": f"{PREFIX}{store_name(seed)}",
        "remote.log.manager.task.interval.ms": str(rng.choice((200, 500, 2000))),
        "remote.log.manager.task.retry.backoff.ms": "100",
        "remote.log.manager.task.retry.backoff.max.ms": "500",
        "remote.partition.remover.task.interval.ms": "1500",
        "remote.log.manager.copier.thread.pool.size": str(rng.choice((1, 10))),
        "remote.log.reader.threads": str(rng.choice((1, 10))),
        "remote.log.index.file.cache.total.size.bytes": str(rng.choice((200, 1 << 30))),
        "remote.fetch.max.wait.ms": str(rng.choice((50, 500))),
        "follower.fetch.last.tiered.offset.enable": str(rng.random() < 0.5).lower(),
        f"{_RLMM}.topic.num.partitions": str(rng.choice((1, 2, 3))),
        f"{_RLMM}.topic.replication.factor": str(factor),
        f"{_RLMM}.topic.min.isr": str(min_isr),
    }


def tiered_topic(seed: int | str, name: str, config: Mapping[str, str]) -> dict[str, str]:
    """A topic's configuration, in the remote tier or not; the same for each topic of a name."""
    rng = random.Random(f"{seed}:{name}:remote tier")
    if rng.random() >= TOPICS_WITH_IT and not name.endswith("-0"):
        return dict(config)
    return {
        **config,
        "remote.storage.enable": "true",
        "local.retention.bytes": str(rng.choice((1, 1, 1500))),
        "internal.segment.bytes": str(rng.choice((2000, 3000))),  # no batch is larger
        "index.interval.bytes": str(rng.choice((1, 300))),
        **({"segment.ms": str(rng.choice((500, 2000)))} if rng.random() < 0.5 else {}),
    }


def draw_store_faults(seed: int | str, plan_s: float) -> list[tuple[float, str, float, float]]:
    """When the store does what: time, kind, amount and how long."""
    rng = random.Random(f"{seed}:faults of the store")
    kinds, weights = list(STORE_FAULTS), [row[0] for row in STORE_FAULTS.values()]
    drawn = []
    for kind in rng.choices(kinds, weights, k=rng.randint(*STORE_FAULTS_IN_A_PLAN)):
        _, low, high, longest = STORE_FAULTS[kind]
        amount = round(rng.uniform(low, high), 3)
        drawn.append((rng.uniform(0.1, plan_s), kind, amount, rng.uniform(0.2, 1) * longest))
    return drawn
