"""Compaction as the broker drives it: real logs, real threads, a loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from support.compaction import PARTITION, compacted, fill, open_manager, view_of
from support.logs import NOW
from tidelog.config.broker import DEVELOPER_PROFILE, BrokerConfig
from tidelog.maintenance import Maintenance
from tidelog.runtime import SystemClock, ThreadExecutor
from tidelog.timeline import LoopTimeline
from tidelog_storage.compaction import rewriting
from tidelog_storage.os_files import OsFile, OsFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tidelog_storage.manager import LogManager


class Files(OsFileSystem):
    """The disk refuses `.cleaned` files while it is `full`."""

    full = False

    def __init__(self) -> None:
        super().__init__(syncs=False)
        self.refused = 0
        self.opened: list[OsFile] = []

    def open(self, path: str, *, create: bool = False):
        if self.full and path.endswith(".cleaned"):
            self.refused += 1
            raise OSError("no space")
        file = super().open(path, create=create)
        self.opened.append(file)
        return file


class Driven:
    """A manager with one filled log, and its maintenance."""

    def __init__(self, files: Files, failures: list[BaseException], **settings: str) -> None:
        self.manager = open_manager(files, compacted())
        self.log = self.manager.create(PARTITION, b"i" * 16, compacted())
        self.log.assign_epoch(0)
        fill(self.log, 200)
        self.before = view_of(self.log)
        given = {name.replace("_", "."): value for name, value in settings.items()}
        common = {"log.initial.task.delay.ms": "0", "log.cleaner.backoff.ms": "1"}
        self.executor = ThreadExecutor()
        self.maintenance = Maintenance(
            logs=self.manager,
            config=BrokerConfig.from_properties({**DEVELOPER_PROFILE, **common, **given}),
            clock=SystemClock(),
            work=LoopTimeline(SystemClock().monotonic),
            executor=self.executor,
            on_failure=failures.append,
        )

    def is_compacted(self) -> bool:
        return self.manager.compacted_to(PARTITION) == self.log.segments.active.base_offset


async def until(enough: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not enough():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.chdir(tmp_path)
    return Files()


def test_dirty_logs_are_compacted_and_more_dirt_later(files: Files) -> None:
    async def test() -> None:
        failures: list[BaseException] = []
        driven = Driven(files, failures, log_cleaner_threads="2")
        driven.maintenance.start()
        await until(driven.is_compacted)
        assert view_of(driven.log) == driven.before
        size = driven.log.size_in_bytes
        fill(driven.log, 100)
        await until(driven.is_compacted)
        assert driven.log.size_in_bytes < size + 2000, "7000 bytes came"
        await driven.maintenance.stop()
        driven.manager.shutdown()
        assert failures == []

    asyncio.run(test())


@pytest.mark.parametrize("setting", [{"log_cleaner_enable": "false"}, {"log_cleaner_threads": "0"}])
def test_none_if_the_cleaner_is_off(files: Files, setting: dict[str, str]) -> None:
    async def test() -> None:
        driven = Driven(files, [], **setting)
        driven.maintenance.start()
        assert not [task for task in asyncio.all_tasks() if "compaction" in task.get_name()]
        await driven.maintenance.stop()
        driven.manager.shutdown()

    asyncio.run(test())


def test_a_pass_that_the_disk_refuses_is_tried_again(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        failures: list[BaseException] = []
        driven = Driven(files, failures)
        files.full = True
        driven.maintenance.start()
        await until(lambda: files.refused >= 2)
        assert not driven.is_compacted()
        files.full = False
        await until(driven.is_compacted)
        await driven.maintenance.stop()
        driven.manager.shutdown()
        assert failures == []

    asyncio.run(test())
    assert "compaction of t-0 failed and will be retried: no space" in caplog.text


def test_a_log_that_cannot_be_read_is_left_alone(
    files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        failures: list[BaseException] = []
        driven = Driven(files, failures)
        path = tmp_path / driven.log.segments.first.path(".log")
        data = bytearray(path.read_bytes())
        data[80] ^= 1
        path.write_bytes(data)
        driven.maintenance.start()
        await until(lambda: "is not compacted any more" in caplog.text)
        await asyncio.sleep(0.01)
        await driven.maintenance.stop()
        driven.manager.shutdown()
        assert failures == []

    asyncio.run(test())
    assert caplog.text.count("is not compacted any more") == 1


def test_a_stop_in_the_middle_leaves_no_file_open(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "STEP_WORK", 1)  # every batch is a step

    async def test() -> None:
        driven = Driven(files, [], log_cleaner_io_max_bytes_per_second="50000")
        driven.maintenance.start()
        path = driven.log.segments.first.path(".log.cleaned")
        await until(lambda: files.exists(path))
        await driven.maintenance.stop()
        driven.executor.close()
        driven.manager.shutdown()
        assert files.exists(path)
        assert all(file._is_closed for file in files.opened)
        again = open_manager(files, compacted())
        log = again.get(PARTITION)
        assert log is not None
        assert view_of(log) == driven.before
        assert not files.exists(path)
        again.shutdown(NOW)

    asyncio.run(test())


def test_retention_beside_a_pass(files: Files) -> None:
    """The log start moves, segments go, while others are rewritten."""

    async def test() -> None:
        failures: list[BaseException] = []
        driven = Driven(files, failures, log_retention_check_interval_ms="1")
        manager: LogManager = driven.manager
        driven.maintenance.start()
        for offset in range(10, 200, 10):
            driven.log.maybe_increment_log_start(offset, "test")
            await asyncio.sleep(0.001)
            assert view_of(driven.log) == driven.before
        await until(driven.is_compacted)
        await driven.maintenance.stop()
        manager.shutdown()
        assert failures == []

    asyncio.run(test())
