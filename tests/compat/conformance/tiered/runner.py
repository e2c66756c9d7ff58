"""Runs the tiered cases against two brokers and gives their transcripts."""

from __future__ import annotations

import fnmatch
import time
from typing import TYPE_CHECKING, Protocol

from compat.conformance.recording import FOLDER, comparable
from compat.conformance.registry import runs
from compat.conformance.runner import AGAIN, carried_out, served_ranges
from compat.conformance.tiered import (  # noqa: F401 - importing registers the cases
    cases_configs,
    cases_console,
    cases_fetch,
    cases_offsets,
    cases_topics,
)
from compat.conformance.tiered.console import Console
from compat.conformance.tiered.layouts import Layouts
from compat.conformance.tiered.registry import CASES, TOOLS
from compat.conformance.tiered.session import TieredSession

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from compat.conformance.registry import Run
    from compat.conformance.runner import Transcript

RECORDED = FOLDER / "tiered"
SLOW_S = 3.0


class TieredDoor(Protocol):
    """Two brokers with a tier."""

    name: str
    tier: Path  # where the objects are
    addresses: Mapping[int, str]  # `host:port` by node id, once it is started

    def start(self) -> None: ...
    def stop(self) -> None: ...


def collect(
    brokers: TieredDoor,
    *patterns: str,
    with_tools: bool = False,
    is_good: Callable[[str, Transcript], bool] | None = None,
) -> dict[str, Transcript]:
    """Transcripts by run key, of all or those whose key matches one of the patterns.

    Those not `is_good` are run again, twice at most, with names of their own.
    `with_tools`: the cases of console tools as well, which need Kafka's jars.
    """
    ranges = served_ranges(brokers.addresses[1])
    layouts = Layouts(brokers.addresses)
    console = Console(",".join(brokers.addresses.values()))

    def heard(run: Run, nonce: str = "") -> Transcript:
        started = time.monotonic()
        session = TieredSession(run, brokers.addresses, nonce, layouts, console, brokers.tier)
        transcript = comparable(carried_out(run, session), nonce)
        if time.monotonic() - started > SLOW_S:
            print(f"  {run.key} took {time.monotonic() - started:.1f} s", flush=True)
        return transcript

    transcripts: dict[str, Transcript] = {}
    try:
        for run in runs(ranges, [*CASES, *(TOOLS if with_tools else ())]):
            if any(fnmatch.fnmatch(run.key, pattern) for pattern in patterns or ("*",)):
                transcripts[run.key] = heard(run)
                for nonce in AGAIN:
                    if is_good is not None and not is_good(run.key, transcripts[run.key]):
                        transcripts[run.key] = heard(run, nonce)
    finally:
        console.close()
    return transcripts
