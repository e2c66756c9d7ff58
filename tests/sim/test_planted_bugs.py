"""Planted bugs are found, each where it may be (`grounds.py`), at the seed known to show it.

`make mutants` looks for all of them from the first seed on.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from sim.grounds import FOUND, GROUND_OF, GROUNDS
from sim.hunting import Hunt, Tried, attempt
from sim.mutants import ALL, planted

ROOT = Path(__file__).parent.parent.parent
SEEDS_MAX = 300
# Where each was found the last time; after a change that shifts schedules the others are looked
# through, and the new seed belongs here. What is missing takes longer, or has a test beside its
# play.
FOUND_AT = {
    # one broker
    "acknowledge-before-append": 9,
    "acknowledge-before-fsync": 0,
    "answer-an-old-log-end": 0,
    "compact-the-newest-away": 22,
    "early-timers-are-the-last": 105,
    "forget-producers-at-restart": 0,
    "high-watermark-not-restored": 15,
    "leak-parked-requests": 9,
    "mark-a-failed-directory-clean": 0,
    "name-another-leader": 0,
    "names-of-folders-are-not-synced": 26,
    "offsets-in-memory": 3,
    "pass-over-a-batch": 0,
    "read-past-the-batch": 28,
    "recover-nothing": 0,
    "recovery-point-before-fsync": 1,
    "serve-before-the-log-start": 0,
    "sync-a-failed-directory-again": 118,
    "take-no-descriptors-for-a-broken-disk": 30,
    "topics-before-fsync": 0,
    "trust-the-torn-tail": 1,
    # three brokers
    "commit-without-a-majority": 0,
    "follower-commits-all-it-has": 0,
    "high-watermark-before-the-shrink": 0,
    "lose-the-epoch-checkpoint": 5,
    "skip-the-divergence-check": 7,
    "truncate-to-the-high-watermark": 1,
    "vote-in-memory": 1,
    # transactions
    "aborted-in-the-first-segment": 1,
    "aborted-offsets-count": 8,
    "any-end-is-the-oldest": 1,
    "epoch-not-bumped": 7,
    "epochs-begin-again": 8,
    "guard-not-checked": 29,
    "markers-before-the-decision-is-committed": 8,
    "markers-forgotten-at-load": 1,
    "nothing-verified": 17,
    "pending-offsets-not-loaded": 7,
    "zombie-members-commit": 51,
    # remote tier
    "aborted-transactions-end-with-their-segment": 12,
    "files-are-ahead-of-what-they-have": 12,
    "one-id-for-all-tries": 9,
    "open-transactions-are-copied": 9,
    "out-of-sight-is-out-of-range": 9,
    "rotten-bytes-are-served": 43,
    "segments-go-before-the-log-start-moves": 27,
    "the-log-start-stays-when-the-tier-goes": 43,
    "the-segment-of-the-log-start-goes": 9,
    "the-store-before-the-metadata": 9,
    "unfinished-segments-are-read": 9,
    # work of a part of the seeds
    "append-time-of-the-producer": 41,
    "elect-past-the-in-sync": 67,
    "instances-are-not-loaded": 34,
    "keys-that-begin-alike-are-one": 41,
    "leaders-load-no-share-states": 34,
    "moves-end-before-their-replicas-are-in-sync": 52,
    "one-segment-too-many": 49,
    "recover-by-half": 41,
    "retention-ahead-of-time": 102,
    "returns-lose-their-assignment": 34,
    "sessions-forget-nothing": 45,
    "sessions-stay-where-they-began": 39,
    "share-groups-acknowledge-in-memory": 34,
    "states-are-pruned-ahead": 120,
    "tombstones-delete-nothing": 118,
    "twins-go-on": 34,
    "updates-of-states-are-not-loaded": 43,
    # three replicas and a store
    "a-new-leader-trusts-no-metadata": 7,
    "copied-before-it-is": 9,
    "deletions-are-finished-when-they-fail": 1,
    "events-are-not-read-back": 0,
    "failed-copies-count": 7,
    "nobody-marks": 3,
    "retention-does-not-wait": 1,
    # dead branches
    "copies-of-dead-branches-count": 1,
    "followers-begin-with-one-epoch": 1,
    "reads-run-into-dead-branches": 0,
    "segments-are-found-by-offset-alone": 1,
    # changing voters
    "commit-by-the-old-majority": 1,
    "truncated-voters-stay": 1,
    "two-changes-at-once": 8,
    # consumer groups
    "a-lost-answer-costs-the-place": 28,
    "assignments-are-not-loaded": 0,
    "assignments-are-told-once": 0,
    "classic-members-need-not-join-again": 6,
    "downgrades-lose-a-member": 51,
    "group-epochs-are-not-loaded": 1,
    "heartbeats-are-answered-before-they-are-stored": 0,
    "heartbeats-renew-no-session": 0,
    "instances-are-taken-at-once": 5,
    "instances-away-lose-their-place": 13,
    "instances-stay-away-for-ever": 5,
    "late-members-commit-what-others-have": 12,
    "loaded-offsets-count-as-committed": 18,
    "members-commit-when-they-are-out": 12,
    "members-stay-without-heartbeats": 0,
    "new-topics-are-passed-over": 20,
    "no-session-begins-at-load": 0,
    "no-time-to-revoke": 0,
    "offsets-are-told-before-they-are-committed": 4,
    "one-partition-is-left-over": 0,
    "partitions-are-free-before-they-are-revoked": 1,
    "partitions-are-given-before-they-are-free": 0,
    "previous-epochs-are-not-loaded": 32,
    "released-partitions-stay-owned": 0,
    "replaced-processes-go-on": 42,
    "subscriptions-are-not-loaded": 16,
    "targets-are-not-loaded": 9,
    "upgrades-forget-who-has-what": 8,
    "what-is-to-be-revoked-is-not-stored": 22,
    # share groups
    "a-member-that-leaves-frees-all": 5,
    "a-share-partition-is-left-out": 0,
    "aborted-records-are-given-out": 0,
    "acknowledgements-in-memory": 0,
    "answered-before-it-is-stored": 1,
    "any-member-acknowledges": 48,
    "deliveries-are-not-counted": 0,
    "delivery-counts-are-not-stored": 1,
    "gaps-are-done": 2,
    "limits-of-records-are-hints": 0,
    "locks-end-together": 1,
    "locks-never-end": 0,
    "no-delivery-is-the-last": 3,
    "open-transactions-are-read": 0,
    "released-records-stay-behind": 0,
    "renewals-renew-nothing": 0,
    "share-partitions-are-not-loaded": 8,
    "snapshots-begin-where-the-last-began": 1,
    "snapshots-forget-what-is-in-flight": 2,
    "stored-states-are-not-loaded": 0,
    "the-last-delivery-is-left-out": 9,
    "the-log-start-is-not-followed": 0,
    "the-start-passes-what-is-held": 0,
    # streams groups
    "a-lost-answer-costs-the-tasks": 0,
    "a-task-is-left-over": 0,
    "epochs-of-applications-are-not-loaded": 1,
    "heartbeats-renew-no-session-of-instances": 0,
    "instances-stay-without-heartbeats": 0,
    "no-session-of-instances-begins-at-load": 0,
    "no-time-to-give-back": 3,
    "processes-count-by-member": 3,
    "tasks-are-free-before-they-are-given-back": 3,
    "tasks-are-given-before-they-are-free": 0,
    "tasks-are-not-loaded": 1,
    "tasks-given-back-stay-taken": 0,
    "topics-of-the-topology-are-passed-over": 0,
    "topologies-are-not-loaded": 1,
    # streams groups exactly once
    "zombie-instances-commit": 45,
    # cuts
    "lower-the-recovery-point-after-the-cut": 133,
    "truncate-oldest-first": 21,
    # folder lives
    "adopt-a-log-by-its-name": 7,
    "adopt-logs-without-an-id": 12,
    "begin-lost-logs-anew": 10,
    "believe-every-name": 0,
    "delete-strays": 1,
    # rotten state of followers
    "followers-begin-without-what-they-cannot-read": 0,
    "what-followers-ask-is-not-noted": 0,
    # scrubs
    "pass-a-bad-checksum": 1,
    "repair-above-the-high-watermark": 4,
    "serve-the-damage": 1,
    "swap-in-two-steps": 11,
    "swap-in-what-is-not-durable": 29,
    "take-any-copy": 4,
    # eligible leader replicas
    "a-crash-keeps-the-eligible": 1,
    "anybody-is-the-last-leader": 1,
    "eligible-whatever-the-minimum": 0,
    "the-last-leader-does-not-lead": 0,
    # half fenced
    "a-half-fenced-life-goes-on": 0,
    "a-new-controller-settles-nothing": 1,
    # failed directory
    "directories-of-replicas-are-not-told": 0,
    "failed-directories-are-not-told": 2,
    "unread-logs-begin-anew": 2,
    # careless administrators
    "an-unregistered-broker-goes-on": 0,
    "answers-are-as-long-as-they-are": 1,
    "unregister-the-only-broker": 1,
    # lost voter
    "format-by-itself": 0,
}

# CI plays one bug of each ground, that of the lowest seed, so that it is found soon if its seed
# shifts; `make nightly` plays all.
LATE_FIRST = sorted(FOUND_AT, key=lambda bug: FOUND_AT[bug], reverse=True)
IN_CI = {GROUND_OF[bug].name: bug for bug in LATE_FIRST}.values()
BUGS = [pytest.param(bug, marks=[] if bug in IN_CI else pytest.mark.nightly) for bug in FOUND_AT]


def test_each_planted_bug_has_one_place_where_it_is_looked_for() -> None:
    looked_for = [bug for ground in GROUNDS for bug in ground.bugs]
    assert sorted(looked_for) == sorted(ALL)


def test_docs_say_how_many_there_are() -> None:
    docs = (ROOT / "docs/reliability.md").read_text()
    assert re.findall(r"(\d+) bugs planted one by one", docs) == [str(len(ALL))]


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("default:.*note it in FOUND_AT")  # the hunt costs CPU until then
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    ground = GROUND_OF[bug]
    seeds = dict.fromkeys((FOUND_AT[bug], *filter(ground.suits, range(SEEDS_MAX))))
    failure = None
    with planted(bug):
        for seed in seeds:
            failure = ground.run(bug, seed)
            if failure is not None:
                break
    assert failure is not None, f"cd tests && python -m sim --mutants --mutant {bug}"
    if seed != FOUND_AT[bug]:
        warnings.warn(f"{bug} is found at {seed} now: note it in FOUND_AT", stacklevel=1)
    # Anything else is a bug that no longer fits what it changes.
    seen_as = ("Violation:", "the broker logged:", *(error.__name__ for error in FOUND))
    assert failure.startswith(seen_as), failure


def test_a_hunt_counts_seeds_in_their_order_however_they_end() -> None:
    hunt = Hunt("vote-in-memory", range(5))
    jobs = [hunt.next() for _ in range(3)]
    end(hunt, jobs[2], is_found=True)
    assert not hunt.is_open()  # no further seed is tried
    assert not hunt.is_over()  # an earlier one may fail yet
    end(hunt, jobs[0], is_found=None)
    end(hunt, jobs[1], is_found=True)
    assert hunt.is_over()
    assert hunt.result().job.seed == 1
    assert "seed 1 " in hunt.line()


def end(hunt, job, is_found):
    hunt.ended[job.seed] = Tried(job, is_found, "Violation" if is_found else "", 1.0)


def test_a_hunt_that_finds_nothing_says_so() -> None:
    hunt = Hunt("vote-in-memory", range(2))
    for _ in range(2):
        assert not hunt.is_over()
        end(hunt, hunt.next(), is_found=None)
    assert hunt.is_over()
    assert hunt.result() is None
    assert "survives 2 seeds" in hunt.line()


def test_a_bug_is_not_found_by_a_run_that_fails_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = GROUND_OF["delete-strays"]._replace(run=lambda *_: "Violation: at any rate")
    monkeypatch.setitem(GROUND_OF, "delete-strays", ground)
    done = attempt(Hunt("delete-strays", range(2)).next())
    assert done.is_found is False
    assert done.failure == "fails without it, too: Violation: at any rate"


def test_a_bug_that_no_longer_fits_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_):
        raise TypeError("an argument is missing")

    ground = GROUND_OF["delete-strays"]._replace(run=run)
    monkeypatch.setitem(GROUND_OF, "delete-strays", ground)
    done = attempt(Hunt("delete-strays", range(2)).next())
    assert done.is_found is False
    assert "does not fit: TypeError" in done.failure
