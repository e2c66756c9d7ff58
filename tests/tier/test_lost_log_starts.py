"""`log-start-offset-checkpoint` is lost after an orderly stop: nothing remote is deleted for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from support.clusters import run
from tier.harness import TieredCluster, kv

if TYPE_CHECKING:
    from pathlib import Path

LOG_STARTS = "log-start-offset-checkpoint"


@pytest.mark.parametrize(("brokers", "content"), [(1, None), (2, b""), (1, b"0\n1\nt 0 9\n")])
def test_a_lost_or_damaged_log_start_costs_no_record(
    tmp_path: Path, brokers: int, content: bytes | None
) -> None:
    """Without it, the log began with its first local segment, and the tier was cut below that."""
    store = {"inner": "directory", "dir": str(tmp_path / "tier")}

    async def test():
        cluster = TieredCluster(store, brokers=brokers, data_dir=str(tmp_path / "data"))
        async with cluster:
            await cluster.create("t", [list(range(brokers))])
            await cluster.produce("t", 0, kv(*range(10)))
            await cluster.expect_earliest_local("t", 0, 9)
            await cluster.delete_records("t", 0, 2)
            before = await cluster.consume("t", 0, 2, 8, 7)
        found = list((tmp_path / "data").rglob(LOG_STARTS))
        assert found
        for path in found:
            path.unlink()
            if content is not None:
                path.write_bytes(content)
        async with cluster:
            await cluster.expect_leader("t", 0, 0, elect=brokers > 1)
            assert {one.log.log_start_offset for one in cluster.replicas("t", 0)} == {2}
            await cluster.produce("t", 0, kv(10))
            await cluster.expect_earliest_local("t", 0, 10)
            await asyncio.sleep(0.3)  # expiration has run again and again
            assert await cluster.consume("t", 0, 2, 8, 8) == before

    run(test)
