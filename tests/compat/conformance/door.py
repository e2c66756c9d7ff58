"""The command line of comparisons that run several brokers of a kind: `cluster`, `tiered`.

[PATTERN]                     which runs
--broker kafka|tidelog|both   which to run; one alone is compared with the recording
--record                      keep the reference's transcripts as the recording
"""

from __future__ import annotations

import argparse
import fnmatch
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from compat.conformance import recording
from compat.conformance.__main__ import report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compat.conformance.runner import Transcript


class Brokers(Protocol):
    """Brokers of one kind."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


class Door(NamedTuple):
    """What is compared: makers of brokers in a folder by kind, how they are asked, and where
    Kafka's answers are kept."""

    program: str
    kinds: Mapping[str, Callable[[Path], Brokers]]
    collect: Callable[..., dict[str, Transcript]]
    recorded: Path

    def main(self) -> int:
        """Return 1 if anything differs."""
        parser = argparse.ArgumentParser(prog=self.program)
        parser.add_argument("pattern", nargs="?", default="*")
        parser.add_argument("--broker", choices=["kafka", "tidelog", "both"], default="tidelog")
        parser.add_argument("--record", action="store_true")
        parser.add_argument("--limit", type=int, default=200)
        options = parser.parse_args()
        all_kept = recording.load(self.recorded)
        kept = {key: one for key, one in all_kept.items() if fnmatch.fnmatch(key, options.pattern)}
        if options.broker != "tidelog":
            live = self._run("kafka", options.pattern)
            if options.record:
                whole = live if options.pattern == "*" else {**all_kept, **live}
                recording.save(whole, self.recorded)
            elif options.broker == "kafka":
                return bool(report(kept, live, options.limit))
            kept = live
        if options.broker == "kafka":
            return 0
        return bool(report(kept, self._run("tidelog", options.pattern), options.limit))

    def _run(self, kind: str, pattern: str) -> dict[str, Transcript]:
        """Start brokers of this kind, collect, stop them."""
        folder = Path(tempfile.mkdtemp(prefix=f"conformance-{kind}-"))
        brokers = self.kinds[kind](folder)
        try:
            brokers.start()
            started = time.monotonic()
            collected = self.collect(brokers, pattern)
            print(f"{kind}: {len(collected)} runs in {time.monotonic() - started:.1f} s")
            return collected
        finally:
            brokers.stop()
            shutil.rmtree(folder, ignore_errors=True)
