"""`make bench`: tidelog beside Apache Kafka and kfake, alternately, in one run.

Prints a table and writes every sample (JSON), the table and a plot to a folder. A full run takes
about an hour, 15 minutes of it for three brokers beside Apache Kafka's three (`--only "3 brokers"`)
and 20 for brokers with a remote tier (`--only tiered`); `--quick` about 15, with figures good for a
first look only.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog_bench import plot, results
from tidelog_bench.cases import CASES, START_CASE, cold_start, import_asyncio
from tidelog_bench.cluster_case import CLUSTER_NAMES, measure_clusters
from tidelog_bench.control_case import CONTROL_NAME, measure_control
from tidelog_bench.peers.apache_kafka import ApacheKafka
from tidelog_bench.peers.go_programs import GoUnavailableError, go_program
from tidelog_bench.peers.kafka_jars import JarsUnavailableError
from tidelog_bench.peers.kfake import Kfake
from tidelog_bench.peers.tidelog import Tidelog
from tidelog_bench.peers.tiered import S3_NAME
from tidelog_bench.rounds import Plan, Samples, run_rounds
from tidelog_bench.spark_case import SparkQuery
from tidelog_bench.tier_cases import TIER_NAMES, measure_tiers
from tidelog_bench.tls_cases import TLS_NAMES, measure_tls
from tidelog_bench.transaction_cases import TRANSACTION_CASES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog_bench.cases import Case
    from tidelog_bench.peers.peer import Peer

YARDSTICK = "import asyncio"
PEERS: dict[str, Callable[[Path], Peer]] = {
    "tidelog": Tidelog,
    "kafka": ApacheKafka,
    "kfake memory": lambda folder: Kfake(folder, disk=False),
    "kfake disk": lambda folder: Kfake(folder, disk=True),
}


def main() -> int:
    """Measure, print, write; exit code 1 if a measurement failed."""
    options = _options()
    names = [name for name in PEERS if not options.peers or name in options.peers]
    every: list[Case] = [*CASES, *TRANSACTION_CASES]
    cases = [case for case in every if options.only in case.name]
    spark = SparkQuery() if options.spark else None
    samples = Samples()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-", dir=options.data) as folder:
        plan = Plan(
            Path(folder),
            samples,
            _say,
            rounds=1 if options.quick else options.rounds,
            scale=1 / 3 if options.quick else 1.0,
            seed=options.seed,
            only=options.only,
            peers=options.peers or (),
        )
        shown = measure_clusters(plan)
        shown = measure_tiers(plan) or shown
        shown = measure_control(plan) or shown
        shown = measure_tls(plan) or shown
        peers = []
        if cases or spark or options.only in START_CASE:
            peers = [PEERS[name](Path(folder) / name.replace(" ", "-")) for name in names]
            peers = _available(peers)
            shown = [peer.name for peer in peers]
        if options.only in START_CASE:
            _measure_starts(peers, samples, 1 if options.quick else options.rounds + 2)
        try:
            cases += [spark] if spark is not None else []
            if cases:
                _measure_cases(plan, cases, peers)
        finally:
            if spark is not None:
                spark.close()
    text = results.table(samples, [*shown, YARDSTICK] if options.only in START_CASE else shown)
    text += f"\n\n{results.noise(samples)}\n"
    ratio = samples.ratio(START_CASE, "cold start", results.OURS, YARDSTICK)
    if ratio is not None:
        text += f"A cold start takes {ratio:.1f} times what `{YARDSTICK}` does beside it.\n"
    print("\n" + text)
    facts = {"when": datetime.now(UTC).isoformat(), "minutes": (time.monotonic() - began) / 60}
    _write(options.output, samples, shown, text, facts)
    for failure in samples.failures:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if samples.failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tidelog_bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of a third of the work")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name contains this, or `start`")
    parser.add_argument("--spark", action="store_true", help="also run small Spark queries")
    parser.add_argument(
        "--peers", nargs="*", choices=[*PEERS, S3_NAME], help="run these peers only"
    )
    parser.add_argument("--data", type=Path, help="folder for the brokers' data (temporary)")
    parser.add_argument("--output", type=Path, default=Path("bench-results"))
    parser.add_argument("--seed", type=int, default=1, help="seed of the order of the runs")
    parser.add_argument("--list", action="store_true", help="print the names of all cases")
    options = parser.parse_args()
    if options.list:
        names = [*results.ONE_BROKER, *CLUSTER_NAMES, *TIER_NAMES, CONTROL_NAME, *TLS_NAMES]
        print("\n".join(names))
        parser.exit()
    return options


def _say(line: str) -> None:
    print(line, flush=True)


def _available(peers: Sequence[Peer]) -> list[Peer]:
    """Return the peers whose programs are installed here; the load needs Go in any case."""
    go_program("load")
    ready = []
    for peer in peers:
        try:
            peer.prepare()
        except (JarsUnavailableError, GoUnavailableError) as missing:
            _say(f"without {peer.name}: {missing}")
        else:
            ready.append(peer)
    return ready


def _measure_starts(peers: Sequence[Peer], samples: Samples, rounds: int) -> None:
    """Cold starts in turn, the first of each left out: it warms the page cache."""
    rng = random.Random(rounds)
    for number in range(rounds + 1):
        for peer in rng.sample(list(peers), len(peers)):
            peer.remove()
            figures = cold_start(peer)
            yardstick = import_asyncio(Path("/"))
            peer.remove()
            _say(f"  start: {peer.name}: {figures['cold start']:.0f} ms")
            if number:
                samples.add(START_CASE, peer.name, figures)
                if peer.name == results.OURS:
                    samples.add(START_CASE, YARDSTICK, yardstick)


def _measure_cases(plan: Plan, cases: Sequence[Case], peers: Sequence[Peer]) -> None:
    try:
        for peer in peers:
            peer.start()
        run_rounds(plan, cases, peers)
    finally:
        for peer in peers:
            peer.remove()


def _write(
    folder: Path, samples: Samples, peers: Sequence[str], text: str, facts: dict[str, object]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")  # results are the machine's, not the project's
    stem = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    (folder / f"{stem}.txt").write_text(text)
    results.write_json(folder / f"{stem}.json", samples, facts)
    drawn = plot.write_plot(folder / f"{stem}.png", samples, peers)
    print(f"{folder / stem}.txt, .json{', .png' if drawn else ' (no matplotlib: no plot)'}")


if __name__ == "__main__":
    sys.exit(main())
