"""What a broker finds in its data directory that is not its own, or that its metadata lacks."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from broker.test_server import create_topic, make_server, produce
from support.wire_client import WireClient
from tidelog.server import StartError

if TYPE_CHECKING:
    from pathlib import Path


async def write_a_topic(folder: Path) -> None:
    """A life of a broker: 3 records in `precious`."""
    server = make_server(folder)
    await server.start()
    async with await WireClient.connect(server.bootstrap_servers) as client:
        await create_topic(client, "precious")
        for _ in range(3):
            await produce(client, "precious", b"record")
    await server.stop()


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def refused(folder: Path, **settings: str) -> str:
    """Why the broker does not start."""
    with pytest.raises(StartError) as error:
        await make_server(folder, **settings).start()
    return str(error.value)


def test_logs_without_a_metadata_log_refuse_the_start(tmp_path: Path) -> None:
    asyncio.run(write_a_topic(tmp_path))
    logs = [name for name in names(tmp_path) if name.startswith("precious-0")]
    shutil.rmtree(tmp_path / "__cluster_metadata-0")
    assert asyncio.run(refused(tmp_path)) == (
        f"metadata.log.dir: {tmp_path}/__cluster_metadata-0 has no metadata log, but {tmp_path} has"
        " 1 logs of topics, such as precious-0: set it to the directory of their metadata log, or"
        " move these logs away"
    )
    assert [name for name in names(tmp_path) if name.startswith("precious-0")] == logs


def test_a_changed_topic_id_deletes_nothing(tmp_path: Path) -> None:
    asyncio.run(write_a_topic(tmp_path))
    path = tmp_path / "precious-0" / "partition.metadata"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + (b"A" if content[-1:] != b"A" else b"Q"))

    async def look() -> None:
        server = make_server(tmp_path)
        await server.start()
        await server.stop()

    asyncio.run(look())
    (stray,) = tmp_path.glob("precious-0.*-stray")
    assert (stray / f"{0:020d}.log").stat().st_size > 0


def test_a_project_in_the_data_directory_stays_whole(tmp_path: Path) -> None:
    source = tmp_path / "myapp-2" / "src" / "main.py"
    source.parent.mkdir(parents=True)
    source.write_text("print()")
    asyncio.run(write_a_topic(tmp_path))
    assert source.read_text() == "print()"
    assert names(tmp_path / "myapp-2") == ["src/main.py"]
