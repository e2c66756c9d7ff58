"""`python -m compat.conformance.walks [--kind K] [--seeds N] [--first N]`: walk beside Kafka."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compat.brokers import Tidelog
from compat.conformance.compare import differences
from compat.conformance.recording import comparable
from compat.conformance.registry import Case, Run
from compat.conformance.runner import transcript
from compat.conformance.walks import classic, configs, groups, quotas, shares, topics, transactions
from compat.reference import ApacheKafka

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compat.brokers import Broker
    from compat.conformance.session import Session

KINDS = {
    **groups.KINDS,
    **classic.KINDS,
    **shares.KINDS,
    **transactions.KINDS,
    **topics.KINDS,
    **configs.KINDS,
    **quotas.KINDS,
}


def walk_of(kind: str, seed: int) -> Run:
    """A walk as a case of the conformance suite."""

    def walk(session: Session, _version: int) -> None:
        KINDS[kind](session, random.Random(f"{kind}:{seed}"))

    return Run(Case(f"{kind}-{seed}", "walk", 1, 1, walk), 1)


def ordered(answer: Any) -> Any:
    """An answer whose topics and members have an order: Kafka's are in that of a hash table."""
    if isinstance(answer, dict):
        return {name: ordered(value) for name, value in answer.items()}
    if isinstance(answer, list):
        return sorted(map(ordered, answer), key=_place)
    return answer


def _place(value: Any) -> tuple[int, str]:
    if isinstance(value, dict):
        index = value.get("partition_index", 0)
        return index, str(value.get("member_id") or value.get("topic_id") or "")
    return (value, "") if isinstance(value, int) else (0, "")


def compared(walk: Run, brokers: Sequence[Broker], nonce: str = "") -> tuple[int, str]:
    """Walk beside Kafka; how many answers there were, and the first difference."""
    sides = [
        ordered(comparable(transcript(walk, broker.bootstrap, nonce), nonce)) for broker in brokers
    ]
    found = differences(walk.key, *sides)
    return len(sides[0]), str(found[0]) if found else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk beside Kafka; 1 if any walk differs, and does so again: some depend on a moment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=list(KINDS), action="append")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.seeds)
    folder = Path(tempfile.mkdtemp(prefix="walks-"))
    brokers = (
        ApacheKafka(folder / "kafka"),
        Tidelog(folder / "tidelog", has_controller_listener=True),
    )
    differ = 0
    try:
        for broker in brokers:
            broker.start()
        for kind in options.kind or KINDS:
            steps = 0
            for walk in (walk_of(kind, seed) for seed in seeds):
                count, difference = compared(walk, brokers)
                steps += count
                if not difference:
                    continue
                _, again = compared(walk, brokers, ".again")
                differ += bool(again)
                print(f"  {'' if again else 'only once: '}{again or difference:.400}", flush=True)
            print(f"{kind}: {len(seeds)} walks of {steps} answers", flush=True)
    finally:
        for broker in brokers:
            broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{differ} walks differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
