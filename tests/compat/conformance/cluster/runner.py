"""Runs the cluster's cases against three brokers and gives their transcripts."""

from __future__ import annotations

import fnmatch
import time
import traceback
from typing import TYPE_CHECKING

from compat.conformance.cluster import (  # noqa: F401 - importing registers the cases
    cases_brokers,
    cases_data,
    cases_down,
    cases_groups,
    cases_moves,
    cases_topics,
)
from compat.conformance.cluster.registry import DOWN, ONCE, PREPARED, WHOLE
from compat.conformance.cluster.session import ClusterSession
from compat.conformance.recording import FOLDER, comparable
from compat.conformance.registry import runs
from compat.conformance.runner import served_ranges

if TYPE_CHECKING:
    from compat.conformance.cluster.doors import ClusterDoor
    from compat.conformance.registry import Run
    from compat.conformance.runner import Transcript

RECORDED = FOLDER / "cluster"
GONE = 3
AGAIN = ".again"
FENCED_WITHIN_S = 30.0
SLOW_S = 3.0

Good = "Callable[[str, Transcript], bool]"


def collect(
    cluster: ClusterDoor, pattern: str = "*", *, is_good: Good | None = None
) -> dict[str, Transcript]:
    """All transcripts by run key; those not `is_good` are run once more with names of their own."""
    ranges = served_ranges(cluster.addresses[1])
    transcripts: dict[str, Transcript] = {}

    def wanted(cases: list) -> list[Run]:
        return [run for run in runs(ranges, cases) if fnmatch.fnmatch(run.key, pattern)]

    for run in wanted(WHOLE):
        _keep(transcripts, run, ClusterSession(run, cluster.addresses))
        if is_good is not None and not is_good(run.key, transcripts[run.key]):
            _keep(transcripts, run, ClusterSession(run, cluster.addresses, AGAIN), AGAIN)
    down = wanted(DOWN)
    if down:
        _collect_down(cluster, down, transcripts, is_good)
    return transcripts


def _collect_down(
    cluster: ClusterDoor,
    down: list[Run],
    transcripts: dict[str, Transcript],
    is_good: Good | None,
) -> None:
    sessions = {}
    for run in down:
        for nonce in ("",) if is_good is None else ("", AGAIN):
            session = sessions[run.key, nonce] = ClusterSession(run, cluster.addresses, nonce)
            if run.case.name in PREPARED:
                PREPARED[run.case.name](session)
    cluster.stop_one(GONE)
    for session in sessions.values():
        session.alive.remove(GONE)
    _await_fenced(next(iter(sessions.values())))
    for run in down:
        _keep(transcripts, run, sessions[run.key, ""])
        if is_good is None or run.case.name in ONCE:
            continue
        if not is_good(run.key, transcripts[run.key]):
            _keep(transcripts, run, sessions[run.key, AGAIN], AGAIN)


def _await_fenced(session: ClusterSession) -> None:
    """Until the others know that the third broker is away."""
    end = time.monotonic() + FENCED_WITHIN_S
    for node_id in session.alive:
        while True:
            answer = session.quietly("Metadata", 12, topics=[], connection=str(node_id))
            if GONE not in [broker["node_id"] for broker in answer["brokers"]]:
                break
            if time.monotonic() > end:
                raise TimeoutError(f"broker {GONE} is still there for {node_id}")
            time.sleep(0.05)


def _keep(
    transcripts: dict[str, Transcript], run: Run, session: ClusterSession, nonce: str = ""
) -> None:
    """Run one case. What goes wrong in the case itself becomes its last line."""
    started = time.monotonic()
    try:
        run.case.run(session, run.version)
    except Exception as failure:  # noqa: BLE001 - a broken answer must not end the whole run
        where = traceback.extract_tb(failure.__traceback__)
        line = next((frame.lineno for frame in where if "cases_" in frame.filename), 0)
        text = f"{type(failure).__name__} at line {line}: {failure}"
        session.transcript.append({"api": run.case.api, "answer": {"failed": text}})
    finally:
        session.close()
    if time.monotonic() - started > SLOW_S:
        print(f"  {run.key} took {time.monotonic() - started:.1f} s", flush=True)
    transcripts[run.key] = comparable(session.transcript, nonce)
