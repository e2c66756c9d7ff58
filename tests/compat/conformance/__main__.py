"""`python -m compat.conformance [PATTERN]`: run both brokers, print a table and the differences.

--broker kafka|tidelog|both   which to run; one alone is compared with the recording
--record                      keep the reference's transcripts as the recording
--bootstrap HOST:PORT         compare a broker that already runs
--limit N                     print at most N differences (200)
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from compat.brokers import Tidelog
from compat.conformance import recording
from compat.conformance.compare import collapsed, differences
from compat.conformance.runner import all_runs, chosen, transcript
from compat.reference import ApacheKafka

if TYPE_CHECKING:
    from compat.brokers import Broker
    from compat.conformance.compare import Difference
    from compat.conformance.runner import Transcript

SLOW_S = 3.0


def collect(bootstrap: str, pattern: str, only: set[str] | None) -> dict[str, Transcript]:
    """Transcripts of one broker, by run key."""
    wanted = chosen(all_runs(bootstrap), pattern)
    collected = {}
    for run in wanted:
        if only is None or run.key in only:
            started = time.monotonic()
            collected[run.key] = recording.comparable(transcript(run, bootstrap))
            if time.monotonic() - started > SLOW_S:
                print(f"  {run.key} took {time.monotonic() - started:.1f} s", flush=True)
    return collected


def run_broker(kind: str, pattern: str, only: set[str] | None = None) -> dict[str, Transcript]:
    """Start a broker of this kind, collect, stop it."""
    folder = Path(tempfile.mkdtemp(prefix=f"conformance-{kind}-"))
    broker: Broker = (
        ApacheKafka(folder) if kind == "kafka" else Tidelog(folder, has_controller_listener=True)
    )
    try:
        broker.start()
        started = time.monotonic()
        collected = collect(broker.bootstrap, pattern, only)
        print(f"{kind}: {len(collected)} runs in {time.monotonic() - started:.1f} s")
        return collected
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def report(
    reference: dict[str, Transcript], tidelog: dict[str, Transcript], limit: int
) -> list[Difference]:
    """Print the table and the differences."""
    found: list[Difference] = []
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for key in sorted(reference):
        row = rows[key.partition("-")[0]]
        if key not in tidelog:
            row["not served"] += 1
            continue
        here = differences(key, reference[key], tidelog[key])
        row["different" if here else "equal"] += 1
        found += here
    lines = collapsed(found)
    for line in lines[:limit]:
        print(f"  {line:.500}")
    if len(lines) > limit:
        print(f"  ... and {len(lines) - limit} more")
    columns = ("equal", "different", "not served")
    print(f"{'API':28}" + "".join(f"{column:>12}" for column in columns))
    for api, row in rows.items():
        print(f"{api:28}" + "".join(f"{row[column]:12}" for column in columns))
    return found


def main() -> int:
    """Return 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m compat.conformance")
    parser.add_argument("pattern", nargs="?", default="*")
    parser.add_argument("--broker", choices=["kafka", "tidelog", "both"], default="tidelog")
    parser.add_argument("--bootstrap")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--limit", type=int, default=200)
    options = parser.parse_args()
    kept = {
        key: value for key, value in recording.load().items() if chosen_key(key, options.pattern)
    }
    if options.broker != "tidelog":
        live = run_broker("kafka", options.pattern)
        if options.record:
            recording.save(live if options.pattern == "*" else {**recording.load(), **live})
        elif options.broker == "kafka":
            return bool(report(kept, live, options.limit))
        kept = live
    if options.broker == "kafka":
        return 0
    if options.bootstrap:
        tidelog = collect(options.bootstrap, options.pattern, set(kept))
    else:
        tidelog = run_broker("tidelog", options.pattern, set(kept))
    return bool(report(kept, tidelog, options.limit))


def chosen_key(key: str, pattern: str) -> bool:
    """Whether a recorded run is asked for."""
    import fnmatch

    return fnmatch.fnmatch(key, pattern)


if __name__ == "__main__":
    sys.exit(main())
