"""Runs the cases of SASL against a broker and gives their transcripts."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from compat.conformance.recording import FOLDER, comparable
from compat.conformance.registry import runs
from compat.conformance.runner import carried_out, served_ranges
from compat.conformance.sasl import (  # noqa: F401 - importing registers the cases
    cases_mechanisms,
    cases_order,
    cases_tokens,
)
from compat.conformance.sasl.registry import CASES
from compat.conformance.sasl.session import SaslSession

if TYPE_CHECKING:
    from compat.conformance.runner import Transcript
    from compat.conformance.sasl.doors import SaslDoor

RECORDED = FOLDER / "sasl"


def collect(door: SaslDoor, pattern: str = "*") -> dict[str, Transcript]:
    """Transcripts by run key, of those whose key matches."""
    ranges = served_ranges(door.addresses["PLAINTEXT"])
    return {
        run.key: comparable(carried_out(run, SaslSession(run, door.addresses)))
        for run in runs(ranges, CASES)
        if fnmatch.fnmatch(run.key, pattern)
    }
