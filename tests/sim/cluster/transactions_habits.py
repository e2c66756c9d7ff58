"""What a seed's transactions are like: who takes part in them, and what runs out early."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

from sim.cluster.transactions_streams import SETTINGS as STREAMS
from sim.cluster.work.seeds import FIRST, work_of
from tidelog.coordinators.transactions import decisions, transaction
from tidelog.simulation.machine import COMPACTION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Who is away for longer than that misses deletions and the ends of transactions, as in Kafka.
SEVERAL: Mapping[str, str] = {"log.cleaner.delete.retention.ms": "60000"}
EXPIRY: Mapping[str, str] = {
    "transactional.id.expiration.ms": "1500",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
}
INSTANCES = 0.08


class Habits(NamedTuple):
    """None of it unless the seed says so."""

    members: int = 0  # copiers that share the source's partitions as a consumer group (KIP-447)
    instances: int = 0  # the same as a streams group (KIP-1071)
    has_expiry: bool = False  # transactional ids are forgotten soon
    has_compaction: bool = False  # the internal topics are compacted all the time
    epoch_max: int | None = None  # where producer epochs end, and a new producer id begins

    def settings(self, brokers: int) -> dict[str, str]:
        """For all of so many brokers."""
        compaction = {**COMPACTION, **(SEVERAL if brokers > 1 else {})}
        return {
            **(STREAMS if self.instances else {}),
            **(EXPIRY if self.has_expiry else {}),
            **(compaction if self.has_compaction else {}),
        }

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """While this lasts epochs end where the habits say: 32,767 transactions take too long."""
        with contextlib.ExitStack() as stack:
            for module in (transaction, decisions) if self.epoch_max is not None else ():
                stack.enter_context(mock.patch.object(module, "EPOCH_MAX", self.epoch_max))
            yield


def has_transactions(seed: int | str) -> bool:
    """Half of the seeds: the others stay what they were without."""
    return random.Random(f"{seed}:transactions").random() < 0.5


def habits_of(seed: int | str) -> Habits:
    """Those of a seed that has transactions."""
    rng = random.Random(f"{seed}:habits of transactions")
    return Habits(
        members=rng.choice((0, 0, 2, 3)),
        has_expiry=rng.random() < 0.25,
        has_compaction=rng.random() < 0.35,
        epoch_max=rng.choice((None, None, 4, 9)),
        instances=_instances_of(seed),
    )


def _instances_of(seed: int | str) -> int:
    """By chances of their own: the others stay what they were. Other work with streams groups has
    settings of its own for them."""
    rng = random.Random(f"{seed}:kafka streams exactly once")
    if not isinstance(seed, int) or seed < FIRST or "streams groups" in work_of(seed):
        return 0
    return rng.choice((2, 3)) if rng.random() < INSTANCES else 0
