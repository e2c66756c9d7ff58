"""When the tasks of a tiered partition run: at once when something happened, with growing pauses
after failures, never twice at a time; and what is not stable is not copied."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from support.clusters import in_thread, librdkafka, run, until
from support.metadata import broker_config
from support.tiered_cluster import segmented, tiered_cluster
from tidelog.metrics.meters import BROKER_TOPIC_METRICS, Name
from tidelog.tiered.tasks.repeated import Pace, Repeated
from tidelog.timeline import LoopTimeline
from tidelog_storage.config import LogConfig
from tidelog_storage.remote.api import (
    RemoteStorageError,
    RemoteStorageNotReady,
    RetriableRemoteStorageError,
    SegmentState,
    SegmentUpdate,
)

if TYPE_CHECKING:
    from pathlib import Path

    from support.tiered_cluster import TieredCluster

NEVER = {"remote.log.manager.task.interval.ms": "3600000"}


def runtime() -> Any:
    return SimpleNamespace(rng=EdgeRng(high=True), work=LoopTimeline(time.monotonic))


class EdgeRng:
    """Chance at one end of what is allowed."""

    def __init__(self, *, high: bool) -> None:
        self.high = high

    def uniform(self, low: float, high: float) -> float:
        return high if self.high else low

    def bytes(self, length: int) -> bytes:
        return bytes(length)

    def uuid(self) -> bytes:
        return bytes(16)


def test_pauses_double_up_to_a_limit_and_are_spread() -> None:
    pace = Pace.of(broker_config())
    assert pace == (30.0, 0.5, 30.0, 0.2)
    low = [pace.pause_s(failures, EdgeRng(high=False)) for failures in (1, 2, 3, 7, 1000)]
    high = [pace.pause_s(failures, EdgeRng(high=True)) for failures in (1, 2, 3, 7, 1000)]
    assert low == pytest.approx([0.4, 0.8, 1.6, 24.0, 24.0])
    assert high == pytest.approx([0.6, 1.2, 2.4, 36.0, 36.0])


class Work:
    """Runs that are counted, fail as told, and may be held."""

    def __init__(self) -> None:
        self.runs = 0
        self.at_once = 0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self) -> None:
        self.runs += 1
        self.at_once += 1
        assert self.at_once == 1
        try:
            await self.gate.wait()
            if self.error is not None:
                raise self.error
        finally:
            self.at_once -= 1


def test_wakes_during_a_run_cause_one_more_run() -> None:
    async def test() -> None:
        work = Work()
        repeated = Repeated("work", work, Pace(3600, 3600, 3600, 0), runtime())
        await until(lambda: work.runs == 1)
        work.gate.clear()
        repeated.wake()
        await until(lambda: work.runs == 2)
        repeated.wake()
        repeated.wake()
        await asyncio.sleep(0.01)
        assert work.runs == 2
        work.gate.set()
        await until(lambda: work.runs == 3)  # one more for both
        work.error = RemoteStorageNotReady("later")
        for runs in (4, 5):  # whoever makes it ready wakes it
            repeated.wake()
            await until(lambda runs=runs: work.runs == runs)
        await repeated.end()
        assert work.runs == 5

    run(test)


FAILURES = [RetriableRemoteStorageError("away"), RemoteStorageError("no"), KeyError("a bug")]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_after_a_failure_only_a_new_role_starts_the_next_run_early(error: Exception) -> None:
    """Else a store that fails is asked, and three events are written, at each roll."""

    async def test() -> None:
        work = Work()
        work.error = error
        repeated = Repeated("work", work, Pace(3600, 3600, 3600, 0), runtime())
        await until(lambda: work.runs == 1)
        for _ in range(3):
            repeated.wake()
            await asyncio.sleep(0.02)
            assert work.runs == 1
        repeated.restart()
        await until(lambda: work.runs == 2)
        work.gate.clear()
        repeated.restart()
        await until(lambda: work.runs == 3)
        repeated.restart()  # of what fails now this is not the role any more
        work.gate.set()
        await until(lambda: work.runs == 4)
        repeated.wake()
        await asyncio.sleep(0.02)
        await repeated.end()
        assert work.runs == 4

    run(test)


def test_end_waits_for_the_run_and_cancel_does_not() -> None:
    async def test() -> None:
        for how in ("end", "cancel"):
            work = Work()
            work.gate.clear()
            repeated = Repeated("work", work, Pace(3600, 1, 1, 0), runtime())
            await until(lambda work=work: work.runs == 1)
            ending = asyncio.ensure_future(getattr(repeated, how)())
            await asyncio.sleep(0.02)
            assert ending.done() == (how == "cancel")
            work.gate.set()
            await ending
            assert (work.runs, work.at_once) == (1, 0)

    run(test)


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_failed_run_is_repeated_without_a_wake(error: Exception) -> None:
    """After the pause what may pass soon, after the interval anything else."""

    async def test() -> None:
        work = Work()
        work.error = error
        may_pass = isinstance(error, RetriableRemoteStorageError)
        pace = Pace(3600, 0.001, 0.002, 0.2) if may_pass else Pace(0.002, 3600, 3600, 0.2)
        repeated = Repeated("work", work, pace, runtime())
        await until(lambda: work.runs >= 5)
        work.error = None
        runs = work.runs
        await until(lambda: work.runs > runs)
        await repeated.cancel()

    run(test)


# -- on a broker, whose interval never comes -------------------------------------------------------


@pytest.mark.parametrize("brokers", [1, 3])
def test_rolled_segment_is_copied_at_once(tmp_path: Path, brokers: int) -> None:
    """With followers as soon as they have the segment: until then it is not committed."""

    async def test() -> None:
        async with tiered_cluster(tmp_path, brokers, **NEVER) as it:
            await it.create("a", 1, brokers, **segmented(1))
            for number in range(4):
                await it.produce("a", [f"v{number}"])
                wanted = {base: [f"v{base}"] for base in range(number)}
                await until(lambda wanted=wanted: it.remote("a") == wanted)
            leader = it.leader("a")
            await until(lambda: it.log(leader, "a").local_log_start_offset == 3)

    run(test)


def test_failing_store_is_not_called_at_each_roll(tmp_path: Path) -> None:
    """The next leader calls it at once."""

    async def test() -> None:
        async with tiered_cluster(tmp_path, **NEVER) as it:
            it.faults.errors["copy"] = RemoteStorageError("no")
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1"])
            await until(lambda: it.faults.count("delete") == 1, "what was begun is gone")
            await it.produce("a", ["v2", "v3", "v4"])
            await asyncio.sleep(0.1)
            assert it.faults.count("copy") == 1
            it.faults.errors.clear()
            tiered = it.tiered(1, "a")
            tiered.lead(tiered.replica)
            await until(lambda: it.log(1, "a").highest_remote_offset == 3)

    run(test)


def test_records_above_the_last_stable_offset_are_not_copied(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path, **NEVER) as it:
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0"])
            await in_thread(_transaction, it, tmp_path)
            await until(lambda: len(it.remote("a")) == 4, "v0, v1, v2, v3; the marker is active")
            held = it.log(1, "a")
            await until(lambda: held.local_log_start_offset == 4)
            log_of = {name: len(files) for name, files in _by_ending(it).items()}
            assert log_of["txnindex"] == 0, "nothing was aborted"

    run(test)


def test_nothing_expires_above_a_high_watermark_that_lags(tmp_path: Path) -> None:
    """As that of a new leader whose followers have not fetched yet."""

    async def test() -> None:
        async with tiered_cluster(tmp_path, **NEVER) as it:
            await it.create("a", 1, 1, **segmented(1, local_retention_bytes="-2"))
            await it.produce("a", ["v0", "v1", "v2", "v3"])
            held, tiered = it.log(1, "a"), it.tiered(1, "a")
            await until(lambda: held.highest_remote_offset == 2, "all sealed segments are copied")
            held.config = LogConfig.from_overrides(held.config, {"retention.bytes": "1"})
            held.high_watermark = 1
            await tiered.expiration.run(held, lambda: True)
            assert (held.log_start_offset, it.faults.count("delete")) == (0, 0)
            held.set_high_watermark(4)
            await tiered.expiration.run(held, lambda: True)
            assert (held.log_start_offset, it.faults.count("delete")) == (3, 3)

    run(test)


def test_a_leader_takes_over_the_remote_log_start_once_it_is_committed(tmp_path: Path) -> None:
    """Seed 1200: its checkpoint of high watermarks was lost, and the leader before had expired."""

    async def test() -> None:
        async with tiered_cluster(tmp_path, **NEVER) as it:
            await it.create("a", 1, 1, **segmented(1, local_retention_bytes="-2"))
            await it.produce("a", ["v0", "v1", "v2", "v3"])
            held, tiered, metadata = it.log(1, "a"), it.tiered(1, "a"), it.tier(1).metadata
            await until(lambda: held.highest_remote_offset == 2, "all sealed segments are copied")
            expired = metadata.segments(tiered.partition)[0].segment_id
            for state in (
                SegmentState.DELETE_SEGMENT_STARTED,
                SegmentState.DELETE_SEGMENT_FINISHED,
            ):
                change = SegmentUpdate(tiered.partition, expired, 2, 0, state)
                await metadata.update(change)
            held.high_watermark = 0
            tiered.lead(tiered.replica)
            await asyncio.sleep(0.1)
            assert (held.log_start_offset, tiered.copier.copied_offset) == (0, None)
            held.set_high_watermark(4)
            await until(lambda: held.log_start_offset == 1, "without waiting for an interval")
            await until(lambda: tiered.copier.copied_offset == 2)

    run(test)


def _transaction(it: TieredCluster, folder: Path) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        librdkafka(it.bootstrap, transactional_id="t", acks="all") | {"linger.ms": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in (1, 2, 3):
        producer.produce("a", b"v%d" % number, partition=0)
        assert producer.flush(30) == 0
    held = it.log(1, "a")
    assert held.last_stable_offset == 1
    assert held.log_end_offset == 4
    assert list(it.remote("a")) in ([], [0])
    producer.commit_transaction(30)


def _by_ending(it: TieredCluster) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {"txnindex": []}
    for name in it.remote_files("a"):
        names.setdefault(name.rpartition(".")[2], []).append(name)
    return names


def test_gauges_count_segments_to_copy_copied_and_to_delete(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path) as it:
            it.faults.gate.clear()
            try:
                await it.create("a", 1, 1, **segmented(1))
                await it.produce("a", ["v0", "v1", "v2"])
                await until(lambda: it.faults.waiting)
                held = it.log(1, "a")
                sizes = [segment.size for segment in held.segments]
                assert gauge(it, "RemoteCopyLagSegments") == 2
                assert gauge(it, "RemoteCopyLagBytes") == sum(sizes[:2])
                assert gauge(it, "RemoteLogMetadataCount") == 1
                assert gauge(it, "RemoteLogSizeBytes") == 0
            finally:
                it.faults.gate.set()
            await it.offloaded("a", {0: ["v0"], 1: ["v1"]}, local_start=2)
            assert gauge(it, "RemoteCopyLagSegments") == 0
            assert gauge(it, "RemoteCopyLagBytes") == 0
            assert gauge(it, "RemoteLogMetadataCount") == 2
            assert gauge(it, "RemoteLogSizeBytes") == sum(sizes[:2])
            it.faults.errors["delete"] = RemoteStorageError("no")
            await it.delete_records("a", 0, 2)
            await until(lambda: gauge(it, "RemoteDeleteLagSegments") == 2)
            assert gauge(it, "RemoteDeleteLagBytes") == sum(sizes[:2])
            it.faults.errors.clear()
            await until(lambda: gauge(it, "RemoteDeleteLagSegments") == 0)

    run(test)


def gauge(it: TieredCluster, name: str) -> float:
    """Of topic `a`."""
    wanted = Name(*BROKER_TOPIC_METRICS, name)
    for found, samples in it.node(1).server.meters.gauges():
        if found == wanted:
            return next(sample.value for sample in samples if sample.labels == (("topic", "a"),))
    raise AssertionError(name)
