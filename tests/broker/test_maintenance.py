"""Periodic work, on a loop whose timers this test runs."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from tidelog.config.broker import DEVELOPER_PROFILE, BrokerConfig
from tidelog.maintenance import Maintenance
from tidelog.runtime import SystemClock, ThreadExecutor
from tidelog.timeline import LoopTimeline

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Recorder:
    """The methods of a `LogManager` and its upkeep that the timers call."""

    def __init__(self) -> None:
        self.upkeep = self
        self.calls: list[str] = []
        self.removers: list[int] = []  # threads
        self.changed = asyncio.Event()
        self.error: Exception | None = None

    def _note(self, name: str) -> None:
        self.calls.append(name)
        self.changed.set()
        if self.error is not None:
            raise self.error

    def retention(self, now_ms: int) -> list[int]:
        self._note("retention")
        return [1, 0]

    def expire_producers(self, now_ms: int) -> list[None]:
        self._note("producers")
        return [None]

    def prepare_removals(self, now_ms: int) -> list[Callable[[], None] | None]:
        self._note("removals")
        return [None, lambda: self.removers.append(threading.get_ident())]

    def gone(self) -> list[OSError]:
        return []

    def flush_dirty(self, now_ms: int) -> list[tuple[Any, Callable[[], None]] | None]:
        self.calls.append("flush")
        return [None, (self, lambda: self.calls.append("fsync"))]

    def flushed(self, task: object) -> None:
        self.calls.append("flushed")

    def loaded(self) -> list[Any]:
        self._note("compaction")
        return []

    def note_offsets(self) -> list[None]:
        return [None]

    def prepare_noted_checkpoints(self) -> Callable[[], None]:
        self._note("checkpoints")
        return lambda: self.calls.append("written")

    def prepare_high_watermarks(self) -> list[Callable[[], None]]:
        self._note("high watermarks")
        return [lambda: self.calls.append("high watermarks written")]


def maintenance(
    logs: Any, failures: list[BaseException], more: dict[str, str] | None = None
) -> Maintenance:
    config = BrokerConfig.from_properties(
        {
            **DEVELOPER_PROFILE,
            "log.initial.task.delay.ms": "0",
            "log.retention.check.interval.ms": "1",
            "log.flush.scheduler.interval.ms": "1",
            "log.flush.offset.checkpoint.interval.ms": "1",
            "log.cleaner.backoff.ms": "1",
            **(more or {}),
        }
    )
    return Maintenance(
        logs=logs,
        config=config,
        clock=SystemClock(),
        work=LoopTimeline(SystemClock().monotonic),
        executor=ThreadExecutor(),
        on_failure=failures.append,
    )


async def until(logs: Recorder, enough: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not enough():
            await logs.changed.wait()
            logs.changed.clear()


def test_everything_is_done_again_and_again() -> None:
    async def test() -> None:
        logs = Recorder()
        failures: list[BaseException] = []
        work = maintenance(logs, failures)
        work.start()
        kinds = ("retention", "removals", "compaction", "checkpoints", "flushed", "written")
        await until(logs, lambda: all(logs.calls.count(kind) >= 3 for kind in kinds))
        await work.stop()
        calls = list(logs.calls)
        first = [calls.index(step) for step in ("removals", "flush", "fsync", "flushed")]
        assert first == sorted(first)
        assert logs.removers
        assert threading.get_ident() not in logs.removers, "the loop waits for no file system"
        await asyncio.sleep(0.01)  # nothing comes after the end
        assert logs.calls == calls
        assert failures == []

    asyncio.run(test())


def test_idle_producers_are_forgotten_at_their_own_interval() -> None:
    async def test() -> None:
        logs = Recorder()
        often = {
            "log.initial.task.delay.ms": "3600000",
            "log.retention.check.interval.ms": "300000",
            "producer.id.expiration.check.interval.ms": "1",
        }
        work = maintenance(logs, [], often)
        work.start()
        await until(logs, lambda: logs.calls.count("producers") >= 3)
        await work.stop()
        assert "retention" not in logs.calls

    asyncio.run(test())


def test_high_watermarks_are_written_where_there_are_followers() -> None:
    async def test() -> None:
        logs = Recorder()
        several = {
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:1,2@localhost:2",
            "listeners": "PLAINTEXT://:0,CONTROLLER://:1",
            "replica.high.watermark.checkpoint.interval.ms": "1",
        }
        work = maintenance(logs, [], several)
        work.start()
        await until(logs, lambda: logs.calls.count("high watermarks written") >= 2)
        await work.stop()

    asyncio.run(test())


def test_a_disk_that_fails_stops_the_broker() -> None:
    async def test() -> None:
        logs = Recorder()
        logs.error = OSError("no space")
        failures: list[BaseException] = []
        work = maintenance(logs, failures)
        work.start()
        await until(logs, lambda: len(failures) == 4)
        await work.stop()
        assert set(failures) == {logs.error}
        assert sorted(logs.calls) == ["checkpoints", "compaction", "removals", "retention"]

    asyncio.run(test())


def test_a_bug_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        logs = Recorder()
        logs.error = KeyError("a bug")
        failures: list[BaseException] = []
        work = maintenance(logs, failures)
        work.start()
        await until(logs, lambda: logs.calls.count("retention") >= 3)
        await work.stop()
        assert failures == []

    asyncio.run(test())
    assert "a bug" in caplog.text


def test_compaction_begins_at_once_and_the_rest_after_the_initial_delay() -> None:
    async def test() -> None:
        logs = Recorder()
        work = maintenance(logs, [], {"log.initial.task.delay.ms": "3600000"})
        work.start()
        await until(logs, lambda: logs.calls.count("compaction") >= 3)
        await work.stop()
        assert set(logs.calls) == {"compaction"}

    asyncio.run(test())
