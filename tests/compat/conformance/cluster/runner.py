"""Runs the cluster's cases against three brokers and gives their transcripts."""

from __future__ import annotations

import fnmatch
import time
from typing import TYPE_CHECKING, Any

from compat.conformance.cluster import (  # noqa: F401 - importing registers the cases
    cases_brokers,
    cases_data,
    cases_down,
    cases_groups,
    cases_moves,
    cases_topics,
    cases_transactions,
)
from compat.conformance.cluster.registry import DOWN, PREPARED, WHOLE
from compat.conformance.cluster.session import ClusterSession
from compat.conformance.recording import FOLDER, comparable
from compat.conformance.registry import runs
from compat.conformance.runner import AGAIN, carried_out, served_ranges

if TYPE_CHECKING:
    from collections.abc import Callable

    from compat.conformance.cluster.doors import ClusterDoor
    from compat.conformance.registry import Case, Run
    from compat.conformance.runner import Transcript

RECORDED = FOLDER / "cluster"
GONE = 3
SLOW_S = 3.0


def collect(
    cluster: ClusterDoor,
    *patterns: str,
    is_good: Callable[[str, Transcript], bool] | None = None,
) -> dict[str, Transcript]:
    """Transcripts by run key, of all or those whose key matches one of the patterns.

    Those not `is_good` are run again, twice at most, with names of their own.
    """
    ranges = served_ranges(cluster.addresses[1])
    transcripts: dict[str, Transcript] = {}

    def wanted(cases: list[Case]) -> list[Run]:
        return [
            run
            for run in runs(ranges, cases)
            if any(fnmatch.fnmatch(run.key, pattern) for pattern in patterns or ("*",))
        ]

    def bad(chosen: list[Run]) -> list[Run]:
        if is_good is None:
            return []
        return [run for run in chosen if not is_good(run.key, transcripts[run.key])]

    def ask(chosen: list[Run], nonce: str) -> None:
        for run in chosen:
            _keep(transcripts, run, ClusterSession(run, cluster.addresses, nonce), nonce)

    whole, down = wanted(WHOLE), wanted(DOWN)
    ask(whole, "")
    for nonce in AGAIN:
        ask(bad(whole), nonce)
    if down:
        _without_third(cluster, down, transcripts)
        for nonce in AGAIN:
            again = bad(down)
            if again:
                cluster.start_one(GONE)
                _without_third(cluster, again, transcripts, nonce)
    return transcripts


def _without_third(
    cluster: ClusterDoor, down: list[Run], transcripts: dict[str, Transcript], nonce: str = ""
) -> None:
    sessions = {run.key: ClusterSession(run, cluster.addresses, nonce) for run in down}
    first = next(iter(sessions.values()))
    _await_third(first, there=True)
    for run in down:
        if run.case.name in PREPARED:
            PREPARED[run.case.name](sessions[run.key])
            sessions[run.key].close()
    cluster.stop_one(GONE)
    for session in sessions.values():
        session.alive.remove(GONE)
    _await_third(first, there=False)
    for run in down:
        _keep(transcripts, run, sessions[run.key], nonce)


def _await_third(session: ClusterSession, *, there: bool) -> None:
    """Until all others know whether the third broker is there."""

    def known(answer: dict[str, Any]) -> bool:
        return (GONE in [broker["node_id"] for broker in answer["brokers"]]) is there

    for node_id in session.alive:
        asked = {"topics": [], "connection": str(node_id)}
        session.wait(f"broker {GONE} there: {there}", "Metadata", 12, known, **asked)
    session.close()


def _keep(
    transcripts: dict[str, Transcript], run: Run, session: ClusterSession, nonce: str = ""
) -> None:
    started = time.monotonic()
    transcript = carried_out(run, session)
    if time.monotonic() - started > SLOW_S:
        print(f"  {run.key} took {time.monotonic() - started:.1f} s", flush=True)
    transcripts[run.key] = comparable(transcript, nonce)
