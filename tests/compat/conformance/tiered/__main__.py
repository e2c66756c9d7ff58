"""`python -m compat.conformance.tiered [PATTERN]`: as its parent, with two brokers and a tier.

--broker kafka|tidelog|both   which to run; one alone is compared with the recording
--record                      keep the reference's transcripts as the recording
"""

from __future__ import annotations

import argparse
import fnmatch
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from compat.conformance import recording
from compat.conformance.__main__ import report
from compat.conformance.tiered.doors import TieredKafkas, TieredTidelogs
from compat.conformance.tiered.runner import RECORDED, collect

if TYPE_CHECKING:
    from compat.conformance.runner import Transcript
    from compat.conformance.tiered.runner import TieredDoor


def run_brokers(kind: str, pattern: str) -> dict[str, Transcript]:
    """Start two brokers of this kind, collect, stop them."""
    folder = Path(tempfile.mkdtemp(prefix=f"conformance-{kind}-"))
    brokers: TieredDoor = {"kafka": TieredKafkas, "tidelog": TieredTidelogs}[kind](folder)
    try:
        brokers.start()
        started = time.monotonic()
        collected = collect(brokers, pattern, with_tools=True)
        print(f"{kind}: {len(collected)} runs in {time.monotonic() - started:.1f} s")
        return collected
    finally:
        brokers.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Return 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m compat.conformance.tiered")
    parser.add_argument("pattern", nargs="?", default="*")
    parser.add_argument("--broker", choices=["kafka", "tidelog", "both"], default="tidelog")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--limit", type=int, default=200)
    options = parser.parse_args()
    all_kept = recording.load(RECORDED)
    kept = {key: one for key, one in all_kept.items() if fnmatch.fnmatch(key, options.pattern)}
    if options.broker != "tidelog":
        live = run_brokers("kafka", options.pattern)
        if options.record:
            recording.save(live if options.pattern == "*" else {**all_kept, **live}, RECORDED)
        elif options.broker == "kafka":
            return bool(report(kept, live, options.limit))
        kept = live
    if options.broker == "kafka":
        return 0
    return bool(report(kept, run_brokers("tidelog", options.pattern), options.limit))


if __name__ == "__main__":
    sys.exit(main())
