"""A seed of a play is one run: whatever has run in its process before, and whatever the order of
sets is there. `test_simulation.py` and `test_cluster_simulation.py` say so of random runs."""

from __future__ import annotations

from sim.grounds import GROUND_OF
from support.processes import under_another_hash_seed
from tidelog.simulation.loop import SimLoop

# Of each play one bug by which it is found; none is planted here.
PLAYS = (
    "copies-of-dead-branches-count",
    "assignments-are-not-loaded",
    "acknowledgements-in-memory",
)
PROGRAM = "from sim.test_one_seed_one_run import traces\nprint(*traces({plays!r}), sep='\\n')"


def traces(plays: tuple[str, ...], seed: int = 0) -> list[str]:
    """The name and the trace of the run of each play, in this process, one after the other."""
    close, found = SimLoop.close, []

    def note_and_close(loop: SimLoop) -> None:
        found.append(f"{bug} {loop.trace}")
        close(loop)

    SimLoop.close = note_and_close
    try:
        for bug in plays:
            assert GROUND_OF[bug].run(bug, seed) is None
    finally:
        SimLoop.close = close
    return found


def test_plays_are_the_same_in_a_process_of_another_hash_seed_in_another_order() -> None:
    backwards = under_another_hash_seed(PROGRAM.format(plays=PLAYS[::-1]))
    here = traces(PLAYS)
    assert len(here) == len(PLAYS)
    assert backwards.split("\n")[-2::-1] == here
