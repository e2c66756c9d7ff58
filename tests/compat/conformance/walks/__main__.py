"""`python -m compat.conformance.walks [--kind K] [--seeds N] [--first N]`: walk beside Kafka."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from compat.acl_tools import AUTHORIZER
from compat.brokers import Tidelog
from compat.conformance.compare import differences
from compat.conformance.door import Brokers
from compat.conformance.recording import comparable
from compat.conformance.registry import Case, Run
from compat.conformance.runner import carried_out
from compat.conformance.sasl.doors import KafkaSasl, TidelogSasl
from compat.conformance.sasl.session import SaslSession
from compat.conformance.session import Session
from compat.conformance.walks import (
    acls,
    classic,
    configs,
    groups,
    quotas,
    shares,
    topics,
    transactions,
)
from compat.conformance.walks.walk import ordered
from compat.reference import ApacheKafka

Sessions = Callable[[Run, str], "Session"]
Pair = Sequence[tuple[Brokers, Sessions]]
KINDS: Mapping[str, Callable[[Any, random.Random], None]] = {
    **groups.KINDS,
    **classic.KINDS,
    **shares.KINDS,
    **transactions.KINDS,
    **topics.KINDS,
    **configs.KINDS,
    **quotas.KINDS,
    **acls.KINDS,
}


def open_pair(folder: Path) -> Pair:
    """Kafka and tidelog, with sessions of clients who may do everything."""
    kafka = ApacheKafka(folder / "kafka")
    tidelog = Tidelog(folder / "tidelog", has_controller_listener=True)
    return [
        (each, lambda walk, nonce, each=each: Session(walk, each.bootstrap, nonce))
        for each in (kafka, tidelog)
    ]


def authorizing_pair(folder: Path) -> Pair:
    """Kafka and tidelog with an authorizer, and sessions of users who log in."""
    doors = (KafkaSasl(folder, AUTHORIZER), TidelogSasl(folder, AUTHORIZER))
    return [
        (each, lambda walk, nonce, each=each: SaslSession(walk, each.addresses, nonce))
        for each in doors
    ]


PAIRS = {"acls": authorizing_pair}


@contextmanager
def running(pair: Pair) -> Iterator[Sequence[Sessions]]:
    """Start both brokers, and stop them."""
    try:
        for broker, _ in pair:
            broker.start()
        yield [sessions for _, sessions in pair]
    finally:
        for broker, _ in pair:
            broker.stop()


def walk_of(kind: str, seed: int) -> Run:
    """A walk as a case of the conformance suite."""

    def walk(session: Session, _version: int) -> None:
        KINDS[kind](session, random.Random(f"{kind}:{seed}"))

    return Run(Case(f"{kind}-{seed}", "walk", 1, 1, walk), 1)


def _place(value: Any) -> tuple[int, str]:
    """By the topic or the member."""
    if isinstance(value, dict):
        index = value.get("partition_index", 0)
        return index, str(value.get("member_id") or value.get("topic_id") or "")
    return (value, "") if isinstance(value, int) else (0, "")


def compared(walk: Run, sessions: Sequence[Sessions], nonce: str = "") -> tuple[int, str]:
    """Walk beside Kafka; how many answers there were, and the first difference."""
    sides = [
        ordered(comparable(carried_out(walk, session_of(walk, nonce)), nonce), _place)
        for session_of in sessions
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
    differ = 0
    try:
        for pair, kinds in groupby(options.kind or KINDS, lambda kind: PAIRS.get(kind, open_pair)):
            with running(pair(folder)) as sessions:
                differ += sum(walked(kind, seeds, sessions) for kind in kinds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{differ} walks differ")
    return 1 if differ else 0


def walked(kind: str, seeds: range, sessions: Sequence[Sessions]) -> int:
    """Walk with all seeds of a kind; how many walks differ twice."""
    steps = differ = 0
    for walk in (walk_of(kind, seed) for seed in seeds):
        count, difference = compared(walk, sessions)
        steps += count
        if not difference:
            continue
        _, again = compared(walk, sessions, ".again")
        differ += bool(again)
        print(f"  {'' if again else 'only once: '}{again or difference:.400}", flush=True)
    print(f"{kind}: {len(seeds)} walks of {steps} answers", flush=True)
    return differ


if __name__ == "__main__":
    sys.exit(main())
