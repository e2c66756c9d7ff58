"""Runs cases against a broker and gives their transcripts."""

from __future__ import annotations

import fnmatch
import traceback
from typing import TYPE_CHECKING, Any

from compat.conformance import (  # noqa: F401 - importing registers the cases
    cases_admin,
    cases_cluster,
    cases_configs,
    cases_consumer_groups,
    cases_fetch,
    cases_frames,
    cases_group_offsets,
    cases_groups,
    cases_lone,
    cases_migration,
    cases_offsets,
    cases_produce,
    cases_quotas,
    cases_share_consumers,
    cases_share_groups,
    cases_streams_groups,
    cases_streams_others,
    cases_timeouts,
    cases_transactions,
    cases_txn_admin,
    cases_txn_data,
    cases_users,
)
from compat.conformance.messages import APIS, decode, encode, request_payload
from compat.conformance.registry import Run, runs
from compat.conformance.session import Session
from compat.raw import RawConnection

if TYPE_CHECKING:
    from collections.abc import Iterable

Transcript = list[dict[str, Any]]
AGAIN = (".again", ".third")  # what keeps the names of a case apart that is run again


def served_ranges(bootstrap: str) -> dict[int, tuple[int, int]]:
    """What the broker says it serves: key -> (first, last version)."""
    tables = APIS["ApiVersions"]
    with RawConnection(bootstrap) as connection:
        connection.send_frame(request_payload(tables, 0, 1, None, encode(tables, 0, {})))
        frame = connection.read_frame()
    assert frame is not None
    keys = decode(tables, 0, frame)["api_keys"]
    return {one["api_key"]: (one["min_version"], one["max_version"]) for one in keys}


def chosen(wanted: Iterable[Run], pattern: str = "*") -> list[Run]:
    """The runs whose key matches a shell pattern."""
    return [run for run in wanted if fnmatch.fnmatch(run.key, pattern)]


def all_runs(bootstrap: str) -> list[Run]:
    """Every case in every version that the broker serves."""
    return list(runs(served_ranges(bootstrap)))


def transcript(run: Run, bootstrap: str, nonce: str = "") -> Transcript:
    """Run one case, whose failure is its last line.

    A case run again on the same broker needs a `nonce`, which keeps its names apart.
    """
    return carried_out(run, Session(run, bootstrap, nonce))


def carried_out(run: Run, session: Session) -> Transcript:
    """Run one case, and close its session. What goes wrong in the case itself becomes its last
    line."""
    try:
        run.case.run(session, run.version)
    except Exception as failure:  # noqa: BLE001 - a broken answer must not end the whole run
        where = traceback.extract_tb(failure.__traceback__)
        line = next((frame.lineno for frame in where if "cases_" in frame.filename), 0)
        text = f"{type(failure).__name__} at line {line}: {failure}"
        session.transcript.append({"api": run.case.api, "answer": {"failed": text}})
    finally:
        session.close()
    return session.transcript
