"""Three brokers under load of four clients, killed, paused, restarted, with disks that fail: what
each client saw is what Kafka promises, and the replicas' logs end up the same.

`TIDELOG_CHAOS_SEED` repeats the faults of a run; without it pytest's own seed chooses them.
`make chaos` runs for five minutes, the nightly run for twenty.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from compat.chaos.rounds import KINDS, planned, run_chaos
from compat.go_client import build_go_program
from compat.jvm import require_jars

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 1  # of a kind that the seed chooses; the nightly run goes on for minutes


@pytest.mark.compat
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_clients_see_what_kafka_promises(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    require_jars()
    build_go_program("chaos")
    seed = int(os.environ.get("TIDELOG_CHAOS_SEED") or random.randrange(1 << 32))
    print(f"TIDELOG_CHAOS_SEED={seed}")
    print(run_chaos(tmp_path, seed, ROUNDS, print))


def test_a_seed_chooses_the_faults() -> None:
    assert planned(7, 20) == planned(7, 20) != planned(8, 20)
    assert len(planned(7, 20)) == 20
    assert {fault.kind for fault in planned(7, ROUNDS)} <= set(KINDS)
    assert {fault.kind for fault in planned(7, len(KINDS))} == set(KINDS)
