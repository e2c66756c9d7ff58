"""`__transaction_state` stays small: ids that nobody uses are forgotten, the log is compacted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import tidelog
from support.clusters import run
from support.txn_client import Nodes, TxnProducer
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.txn_admin import DescribeTransactionsRequest

if TYPE_CHECKING:
    from pathlib import Path

BOTH = pytest.mark.parametrize("version", [1, 2])
EXPIRY = {"transactional.id.expiration.ms": "3600000"}
TRANSACTIONS = 120
SIZE_MAX = 10_000  # of the log; half a kilobyte for each transaction otherwise
COMPACTION = {
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.max.compaction.lag.ms": "50",  # segments are as short
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.initial.task.delay.ms": "20",
}


async def error_of(nodes: Nodes, transactional_id: str) -> ErrorCode:
    """What DescribeTransactions says of an id."""
    asked = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    answer = await nodes.ask(await nodes.coordinator(transactional_id, 1), asked, 0)
    return ErrorCode(answer.transaction_states[0].error_code)


async def until_forgotten(nodes: Nodes, transactional_id: str) -> None:
    error = ErrorCode.NONE
    while error is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        error = await error_of(nodes, transactional_id)


@BOTH
def test_an_unused_id_expires(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with (
            tidelog.Cluster(EXPIRY, data_dir=tmp_path) as cluster,
            Nodes(cluster.bootstrap_servers) as nodes,
        ):
            await nodes.create("t")
            idle, busy = (TxnProducer(nodes, name, version=version) for name in ("idle", "busy"))
            for producer in (idle, busy):
                assert await producer.init() is ErrorCode.NONE
                assert await producer.send("t", b"one") is ErrorCode.NONE
            assert await idle.end(commit=True) is ErrorCode.NONE
            await cluster.clock.advance(hours=2)
            await until_forgotten(nodes, "idle")
            assert await idle.send("t", b"late") in (
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                ErrorCode.INVALID_TXN_STATE,
            )
            assert await idle.end(commit=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            # Whatever its age, an open transaction keeps its id.
            assert await error_of(nodes, "busy") is ErrorCode.NONE
            assert await busy.end(commit=True) is ErrorCode.NONE
            before = idle.producer_id
            assert await idle.init() is ErrorCode.NONE
            assert (idle.producer_id != before, idle.epoch) == (True, 0)
            assert await idle.send("t", b"two") is ErrorCode.NONE
            assert await idle.end(commit=True) is ErrorCode.NONE
            await cluster.clock.advance(hours=2)
            await until_forgotten(nodes, "idle")
            assert (await nodes.fetched("t"))[0] == [b"one", b"one", b"two"]
        async with (
            tidelog.Cluster(data_dir=tmp_path) as cluster,
            Nodes(cluster.bootstrap_servers) as nodes,
        ):
            assert await error_of(nodes, "idle") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    run(test)


@BOTH
def test_the_coordinators_log_is_compacted(tmp_path: Path, version: int) -> None:
    """It has some hundreds of records, and keeps the newest of each id through a restart."""

    def size() -> int:
        return sum(path.stat().st_size for path in tmp_path.glob("__transaction_state-0/*.log"))

    async def test() -> None:
        async with (
            tidelog.Cluster(COMPACTION, data_dir=tmp_path) as cluster,
            Nodes(cluster.bootstrap_servers) as nodes,
        ):
            await nodes.create("t")
            producers = [TxnProducer(nodes, f"id-{n}", version=version) for n in range(3)]
            for producer in producers:
                assert await producer.init() is ErrorCode.NONE
            count = 0
            while count < TRANSACTIONS or size() > SIZE_MAX:
                producer = producers[count % 3]
                assert await producer.send("t", b"%d" % count) is ErrorCode.NONE
                assert await producer.end(commit=count % 2 == 0) is ErrorCode.NONE
                count += 1
                if count > TRANSACTIONS:  # the segment that is written to is never compacted
                    await asyncio.sleep(0.06)
        async with (
            tidelog.Cluster(COMPACTION, data_dir=tmp_path) as cluster,
            Nodes(cluster.bootstrap_servers) as nodes,
        ):
            for producer in producers:
                again = TxnProducer(nodes, producer.transactional_id, version=version)
                assert await again.init() is ErrorCode.NONE
                assert again.producer_id == producer.producer_id
                assert again.epoch == producer.epoch + 1
                assert await again.send("t", b"end") is ErrorCode.NONE
                assert await again.end(commit=True) is ErrorCode.NONE
            values, _ = await nodes.fetched("t")
            assert values == [b"%d" % number for number in range(0, count, 2)] + [b"end"] * 3

    run(test)
