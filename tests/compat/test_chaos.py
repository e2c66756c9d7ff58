"""Three brokers under load of librdkafka and the Java client, killed, paused and restarted: nothing
acknowledged is lost or doubled, order is kept, and the replicas' logs end up the same.

`TIDELOG_CHAOS_SEED` repeats the faults of a run; without it pytest's own seed chooses them.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from compat.chaos.check import check_numbers
from compat.chaos.rounds import planned, run_chaos
from compat.jvm import require_jars

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 20


@pytest.mark.compat
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    require_jars()
    seed = int(os.environ.get("TIDELOG_CHAOS_SEED") or random.randrange(1 << 32))
    print(f"TIDELOG_CHAOS_SEED={seed}")
    print(run_chaos(tmp_path, seed, ROUNDS, print))


def test_a_seed_chooses_the_faults() -> None:
    assert planned(7, ROUNDS) == planned(7, ROUNDS) != planned(8, ROUNDS)
    assert len(planned(7, ROUNDS)) == ROUNDS
    assert {fault.kind for fault in planned(7, 3)} <= {"kill", "pause", "restart"}


@pytest.mark.parametrize(
    ("there", "complaint"),
    [
        ([0, 1, 3], "1 lost: [2]"),
        ([0, 1, 2, 2, 3], "doubled: [2]"),
        ([0, 2, 1, 3], "out of order"),
        ([0, 1, 2, 3, 4], "4 was not acknowledged"),
    ],
)
def test_the_check_sees_what_is_wrong(there: list[int], complaint: str) -> None:
    check_numbers([0, 1, 2, 3], [0, 1, 2, 3], "here")
    with pytest.raises(AssertionError, match="here") as caught:
        check_numbers(there, [0, 1, 2, 3], "here")
    assert complaint in str(caught.value)
