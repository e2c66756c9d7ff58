"""Small files that the loop awaits, when whoever awaits them is cancelled."""

from __future__ import annotations

import asyncio
import gc
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.runtime import AwaitedFiles

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path


class Cancelling(ThreadPoolExecutor):
    """Cancels a task while a thread has done its `number`th call and the loop does not know yet."""

    task: asyncio.Task[Any]

    def __init__(self, number: int) -> None:
        super().__init__(1)
        self._left = number

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(*args, **kwargs)
        self._left -= 1
        if self._left == 0:
            future.exception()
            asyncio.get_running_loop().call_soon(self.task.cancel)
        return future


@pytest.mark.parametrize("what", ["write", "read"])
@pytest.mark.parametrize("number", range(1, 8))
def test_no_file_is_left_open(tmp_path: Path, what: str, number: int) -> None:
    path = tmp_path / "folder" / "file"
    path.parent.mkdir()
    path.write_bytes(b"before")

    async def test() -> None:
        executor = Cancelling(number)
        asyncio.get_running_loop().set_default_executor(executor)
        files = AwaitedFiles()
        call = files.read(str(path)) if what == "read" else files.write_atomic(str(path), b"after")
        executor.task = asyncio.create_task(call)
        await asyncio.wait([executor.task])
        if not executor.task.cancelled():
            assert executor.task.result() == (b"before" if what == "read" else None)

    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always")
        asyncio.run(test())
        gc.collect()
    assert not [str(each.message) for each in left_open]
    assert path.read_bytes() in (b"before", b"after")


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (kept := tmp_path / "kept").write_bytes(b"kept")
    (tmp_path / "file").symlink_to(kept)
    asyncio.run(AwaitedFiles().write_atomic(f"{tmp_path}/file", b"new"))
    assert not (tmp_path / "file").is_symlink()
    (tmp_path / "file.tmp").symlink_to(kept)
    with pytest.raises(OSError, match="symbolic links"):
        asyncio.run(AwaitedFiles().write_atomic(f"{tmp_path}/file", b"newer"))
    assert kept.read_bytes() == b"kept"
