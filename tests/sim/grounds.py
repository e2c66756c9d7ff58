"""Where each planted bug is looked for.

Chance shows most of them in random runs, of one broker or of three. The others need more to meet
than chance brings about often: each has a play.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.careless import run_careless
from sim.changing_voters import run_changing_voters
from sim.cluster.faults import ClusterFault
from sim.cluster.header_rot import has_header_rot
from sim.cluster.remote_rot import has_remote_rot
from sim.cluster.tier_habits import has_tier
from sim.cluster.transactions_habits import has_transactions
from sim.cluster.transactions_steps import Case, play
from sim.cluster.transactions_zombies import tell
from sim.cluster.work.seeds import work_of
from sim.consumer_groups import run_consumer_groups
from sim.cuts import run_cuts
from sim.eligible import run_eligible
from sim.failed_directory import run_failed_directory
from sim.faults import Fault
from sim.folder_lives import run_folder_lives
from sim.half_fenced import run_half_fenced
from sim.history import Violation
from sim.lost_voter import run_lost_voter
from sim.mutants import (
    CLUSTER_MUTANTS,
    MUTANTS,
    TIER_MUTANTS,
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
    transactions,
    voters,
    work,
)
from sim.mutants import tier as tier_mutants
from sim.rotten_state import run_rotten_state
from sim.run import run_seed
from sim.scrubs import run_scrubs
from sim.share_groups import run_share_groups
from sim.streams_groups import run_exactly_once, run_streams_groups
from sim.test_file_mutants import PLAYS as FILE_PLAYS
from sim.test_remote_lineage import live as live_branches
from sim.test_remote_tier import live
from sim.test_slow_disk import test_a_failover_does_not_wait_for_a_slow_disk as fail_over
from tidelog.simulation.loop import simulate
from tidelog_storage.remote.api import RemoteStorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

BROKERS = 3
# Anything else that a play raises is a bug that no longer fits what it changes.
FOUND = (Violation, AssertionError, RemoteStorageError)


class Ground(NamedTuple):
    """Runs in which planted bugs are looked for."""

    name: str
    bugs: Collection[str]
    run: Callable[[str, int], str | None]  # of a bug at a seed: the failure, if there is one
    suits: Callable[[int], bool] = lambda _seed: True  # which seeds may show one


def _random(brokers: int) -> Callable[[str, int], str | None]:
    return lambda _bug, seed: run_seed(seed, brokers=brokers).failure


def _has(kind: str) -> Callable[[int], bool]:
    return lambda seed: kind in work_of(seed)


def _play(run: Callable[[int], Any]) -> Callable[[str, int], str | None]:
    return lambda _bug, seed: _failure(lambda: run(seed))


def _failure(run: Callable[[], Any]) -> str | None:
    try:
        run()
    except FOUND as error:
        kind = next(kind for kind in FOUND if isinstance(error, kind))
        return f"{kind.__name__}: {' '.join(str(error).split())}"
    return None


def _is_first(seed: int) -> bool:
    """Of a play without chance."""
    return seed == 0


# -- plays -----------------------------------------------------------------------------------------


def _flushes_cut_short(_bug: str, seed: int) -> str | None:
    return run_seed(seed, flushes_cut_short(seed)).failure


def flushes_cut_short(seed: int) -> list[Fault]:
    """A plan: the power fails while the disk is slow to sync, three times."""
    rng = random.Random(f"{seed}:flushes")
    plan = []
    for number in range(3):
        at_s = 0.3 + 1.8 * number + rng.uniform(0, 0.3)
        plan.append(Fault(at_s, "slow disk", 0.4, 1.5))
        plan.append(Fault(at_s + rng.uniform(0.5, 1.4), "power failure", 0, 0.3))
    return plan


def _broker_replaced(_bug: str, seed: int) -> str | None:
    """Another process with the id of a broker: chance seldom brings one."""
    plan = [ClusterFault(1.5, "broker replaced", 2, 0, 0)]
    return run_seed(seed, plan, brokers=BROKERS).failure


def _late_sight(_bug: str, seed: int) -> str | None:
    """A store shows its objects late: chance seldom lets a broker read one before."""
    plan = [ClusterFault(0.3, "late sight", 1, 3.0, 6.0)]
    return run_seed(seed, plan, brokers=BROKERS).failure


def _tier(seed: int) -> None:
    name = f"tier-{seed}"
    simulate(name, lambda loop: live(loop, name, 1 + seed % 3, 6))


def _branches(seed: int) -> None:
    name = f"branches-{seed}"
    simulate(name, lambda loop: live_branches(loop, name, 3))


def _late_write(_bug: str, seed: int) -> str | None:
    is_v2 = bool(seed % 2)
    return play(Case("a partition is being added", "coordinator", is_v2, True, True, "late"))


def _open_offsets(_bug: str, seed: int) -> str | None:
    return tell("offsets that are open", is_v2=bool(seed % 2), seed=seed // 2)


def _damaged_file(bug: str, _seed: int) -> str | None:
    return _failure(FILE_PLAYS[bug])


LATE_WRITES = ("late-writes-are-given-up",)
PLAN = ("recovery-point-before-fsync",)  # chance brings its faults together too seldom
REPLACED = {"follow-the-image-of-another-life"}
LATE_SIGHT = {"out-of-sight-is-out-of-range"}
BY_CHANCE = CLUSTER_MUTANTS.keys() - transactions.MUTANTS.keys() - REPLACED
GROUNDS = (
    Ground("one broker", MUTANTS.keys() - PLAN, _random(1)),
    Ground("flushes cut short", PLAN, _flushes_cut_short),
    Ground("three brokers", BY_CHANCE, _random(BROKERS)),
    Ground("broker replaced", REPLACED, _broker_replaced),
    Ground("transactions", transactions.MUTANTS, _random(BROKERS), has_transactions),
    Ground("remote tier", TIER_MUTANTS.keys() - LATE_SIGHT, _random(BROKERS), has_tier),
    Ground("late sight", LATE_SIGHT, _late_sight, has_tier),
    *(Ground(kind, bugs, _random(BROKERS), _has(kind)) for kind, bugs in work.BY_KIND.items()),
    Ground("three replicas and a store", remote.MUTANTS, _play(_tier)),
    Ground("dead branches", tier_mutants.BRANCHES, _play(_branches)),
    Ground("consumer groups", groups.MUTANTS, _play(run_consumer_groups)),
    Ground("a share group alone", shares.MUTANTS, _play(run_share_groups)),
    Ground("streams groups", streams.MUTANTS, _play(run_streams_groups)),
    Ground("streams groups exactly once", streams.EXACTLY_ONCE, _play(run_exactly_once)),
    Ground("changing voters", voters.MUTANTS, _play(run_changing_voters)),
    Ground("cuts", storage.CUTS, _play(run_cuts)),
    Ground("folder lives", folders.LIVES, _play(run_folder_lives)),
    Ground("header rot", healing.HEADERS, _random(BROKERS), has_header_rot),
    Ground("remote rot", healing.REMOTE, _random(BROKERS), has_remote_rot),
    Ground("rotten state of followers", healing.FOLLOWERS, _play(run_rotten_state)),
    Ground("scrubs", healing.MUTANTS, _play(run_scrubs)),
    Ground("lost voter", folders.VOTERS, _play(run_lost_voter)),
    Ground("failed directory", cluster.DIRECTORIES, _play(run_failed_directory)),
    Ground("eligible leader replicas", cluster.ELIGIBLE, _play(run_eligible)),
    Ground("half fenced", cluster.HALF_FENCED, _play(run_half_fenced)),
    Ground("careless administrators", strangers.CARELESS, _play(run_careless)),
    Ground("slow disk", cluster.SLOW_DISK, _play(lambda _seed: fail_over()), _is_first),
    Ground("damaged files", files.PLAYED, _damaged_file, _is_first),
    Ground("late writes", LATE_WRITES, _late_write, lambda seed: seed < 2),
    Ground("open offsets", transactions.TOLD_MUTANTS.keys() - LATE_WRITES, _open_offsets),
)
GROUND_OF = {bug: ground for ground in GROUNDS for bug in sorted(ground.bugs)}
