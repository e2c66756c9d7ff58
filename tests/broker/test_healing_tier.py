"""A lone broker with a remote tier: each of the two copies of a segment repairs the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from damage.directory import SEGMENTS, create, flip, server_on
from support.clusters import run, until
from support.txn_client import Nodes, TxnProducer

if TYPE_CHECKING:
    from pathlib import Path


def logs_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.log"))


def test_a_local_and_a_remote_copy_repair_each_other(tmp_path: Path) -> None:
    async def test() -> None:
        server = server_on(tmp_path / "data", tmp_path / "tier")
        await server.start()
        try:
            async with Nodes(server.bootstrap_servers) as nodes:
                await create(nodes, "r", {**SEGMENTS, "remote.storage.enable": "true"})
                producer = TxnProducer(nodes, "producer")
                await producer.init()
                for number in range(20):
                    await producer.send("r", f"{number:02}".encode() * 60)
                await producer.end(commit=True)
            await until(lambda: len(logs_in(tmp_path / "tier")) > 2, "copies")
            assert server.healing is not None
            for folder in (tmp_path / "tier", tmp_path / "data" / "r-0"):
                path = logs_in(folder)[1]
                good = path.read_bytes()
                flip(path)
                await server.healing.healer.scrub_all()
                assert logs_in(folder)[1].read_bytes() == good
        finally:
            await server.stop()

    run(test)
