"""A streams group (KIP-1071) and little else: brokers that come and go, and members that do."""

from __future__ import annotations

from sim.consumer_groups import GroupsWorld, run_groups


class StreamsWorld(GroupsWorld):
    """A run of one group."""

    kinds_of_work = ("streams groups",)


def run_streams_groups(seed: int) -> dict[str, int]:
    """Run a seed; what was seen."""
    return run_groups(StreamsWorld, seed)
