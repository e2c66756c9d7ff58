"""The workload of a simulated cluster does all that it is there for, and bit rot is dealt with."""

from __future__ import annotations

import asyncio
import random

import pytest

from sim.cluster.faults import ClusterFault
from sim.raw_logs import read_log
from sim.run import run_seed
from sim.stage import FOLDER, Stage
from tidelog.simulation.loop import simulate
from tidelog_storage import replicated

WORK = {
    "brokers added",
    "brokers removed",
    "committed offsets looked at",
    "group assignments",
    "offsets committed",
    "reassignments",
    "reassignments cancelled",
    "reassignments listed",
    "records deleted",
    "topics created again",
    "topics deleted",
    "topics grown",
}


def rotten(seed):
    """A plan of nothing but bit rot."""
    rng = random.Random(seed)
    return sorted(
        ClusterFault(
            rng.uniform(0.5, 9), "bit rot", rng.randint(1, 3), rng.random(), rng.uniform(1, 4)
        )
        for _ in range(3)
    )


@pytest.mark.nightly
def test_everything_is_done_within_some_seeds() -> None:
    missing = set(WORK)
    for seed in range(100, 130):
        verdict = run_seed(seed, brokers=4)
        assert verdict.failure is None, seed
        missing -= verdict.counts.keys()
        if not missing:
            return
    assert not missing


def test_bits_that_flip_are_repaired_and_go_nowhere() -> None:
    for seed in (3, 4):
        verdict = run_seed(seed, rotten(seed), 3)
        assert verdict.failure is None
        assert verdict.counts["bits flipped"] == verdict.counts["rot repaired"] > 0


async def taken_over(loop):
    """How far a follower gets that fetches a log of which the second batch went bad meanwhile."""
    async with Stage(loop, "AB") as stage:
        await stage.create_topic("AB")
        await stage.until(lambda: stage.leads("A"), "A leads")
        stage.kill("B")
        for value in ("good", "bad", "behind it"):
            await stage.acknowledged("A", value)
        await stage.until(lambda: stage.high_watermark("A") == 3, "committed without B")
        disk = stage.machines["A"].disk
        batches = read_log(disk, FOLDER).segments[0]
        disk.flip(f"{FOLDER}/{0:020d}.log", batches[2].position - 1, bit=3)
        await stage.start("B")
        await stage.until(lambda: stage.has_replica("B"), "it is back")
        await asyncio.sleep(5)
        assert stage.in_sync == ("AB" if stage.log_end("B") == 3 else "A")
        return stage.log_end("B")


def test_a_follower_takes_over_no_rot() -> None:
    assert simulate("rot:0", taken_over)[0] == 0, "nothing of an answer that has bad bytes"


def test_a_follower_that_takes_over_rot_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated, "crc_is_valid", lambda *_: True)
    assert simulate("rot:0", taken_over)[0] == 3
