"""A streams group (KIP-1071) and little else: brokers that come and go, and members that do.

`ExactlyOnceWorld` has one whose instances commit the offsets of their tasks in transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.cluster.transactions_habits import habits_of
from sim.cluster.transactions_streams import APPLICATION
from sim.cluster.work.streams_groups import GROUP
from sim.consumer_groups import GroupsWorld, run_groups

if TYPE_CHECKING:
    from sim.cluster.transactions_habits import Habits


class StreamsWorld(GroupsWorld):
    """A run of one group."""

    kinds_of_work = ("streams groups",)
    group = GROUP


def run_streams_groups(seed: int) -> dict[str, int]:
    """Run a seed; what was seen."""
    return run_groups(StreamsWorld, seed)


class ExactlyOnceWorld(GroupsWorld):
    """A run of one group, whose instances copy in transactions, beside other transactions."""

    is_about_transactions = True
    kinds_of_work = ()
    group = APPLICATION

    @staticmethod
    def transaction_habits(seed: int) -> Habits:
        """Those of the seed, with instances."""
        return habits_of(seed)._replace(members=0, instances=2 + seed % 2)


def run_exactly_once(seed: int) -> dict[str, int]:
    """Run a seed; what was seen."""
    return run_groups(ExactlyOnceWorld, seed)
