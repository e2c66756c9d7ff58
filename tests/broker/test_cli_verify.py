"""`tidelog verify`, on directories and on a running broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from damage.directory import build, server_on
from tidelog.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a broker that was stopped in order."""
    asyncio.run(build(tmp_path))
    return tmp_path / "clean" / "data"


def verify(capsys: pytest.CaptureFixture[str], place: object) -> tuple[int, str, str]:
    code = main(["verify", str(place)])
    said = capsys.readouterr()
    return code, said.out, said.err


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 8
    path.write_bytes(content)


def test_a_whole_directory_is_whole(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = verify(capsys, data)
    assert (code, err) == (0, "")
    assert "all match their checksums and indexes" in out
    assert verify(capsys, data.parent)[:2] == (code, out)  # what lies above it as well
    (data / "t-0" / "notes.log").write_text("not a segment")
    assert verify(capsys, data)[:2] == (code, out)


@pytest.mark.parametrize(
    ("number", "damage", "words"),
    [
        (1, flip, "/t-0: offsets "),
        (2, lambda path: path.write_bytes(b""), " ends after 0 of 0 bytes"),
        (0, lambda path: path.unlink(), "/t-0: offsets 0 to 7 are missing"),
        (2, lambda path: path.unlink(), "/t-0: offsets "),
        (-1, lambda path: path.unlink(), " are missing"),
        (-1, flip, "/t-0: offsets "),
    ],
)
def test_a_damage_is_named(
    data: Path,
    capsys: pytest.CaptureFixture[str],
    number: int,
    damage: Callable[[Path], object],
    words: str,
) -> None:
    damage(sorted((data / "t-0").glob("*.log"))[number])
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    code, out, err = verify(capsys, data)
    assert code == 1
    assert words in out
    assert "are damaged" in err
    assert before == {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}


def test_a_bad_index_is_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(sorted((data / "t-0").glob("*.timeindex"))[1])
    code, out, _ = verify(capsys, data)
    assert code == 1
    assert ".timeindex: " in out


def test_what_is_no_directory_and_no_address_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(capsys, tmp_path / "none")[0] == 1
    assert verify(capsys, tmp_path)[2].endswith("no log directory (no meta.properties)\n")


def test_replicas_are_read_through_a_broker(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> tuple[int, str, str]:
        server = server_on(data, data.parent / "tier")
        await server.start()
        try:
            return await asyncio.to_thread(verify, capsys, server.bootstrap_servers)
        finally:
            await server.stop()

    code, out, err = asyncio.run(run())
    assert (code, err) == (0, ""), out
    assert "replicas" in out
    flip(sorted((data / "t-0").glob("*.log"))[1])
    code, out, err = asyncio.run(run())
    assert code == 1
    assert "t-0 on broker 1: " in out
