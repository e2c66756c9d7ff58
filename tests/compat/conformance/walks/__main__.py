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
    from compat.conformance.runner import Transcript
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


def walked(broker: Broker, walks: Sequence[Run]) -> list[Transcript]:
    """Start a broker, and walk."""
    try:
        broker.start()
        return [ordered(comparable(transcript(walk, broker.bootstrap))) for walk in walks]
    finally:
        broker.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk beside Kafka; 1 if any walk differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=list(KINDS), action="append")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.seeds)
    walks = [walk_of(kind, seed) for kind in options.kind or KINDS for seed in seeds]
    folder = Path(tempfile.mkdtemp(prefix="walks-"))
    try:
        reference = walked(ApacheKafka(folder / "kafka"), walks)
        found = walked(Tidelog(folder / "tidelog", has_controller_listener=True), walks)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    differ = 0
    for walk, *sides in zip(walks, reference, found, strict=True):
        here = differences(walk.key, *sides)
        differ += bool(here)
        for one in here[:1]:
            print(f"  {one!s:.400}")
    steps = sum(map(len, reference))
    print(f"{len(walks)} walks of {steps} answers, {differ} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
