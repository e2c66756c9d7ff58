"""A read_committed Fetch does not wait on the loop for the check of a large transaction index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from damage.directory import SEGMENTS, create, server_on
from support.clusters import run, until
from support.txn_client import Nodes, TxnProducer
from support.wire_client import WireClient
from tidelog_protocol.messages.data import FetchRequest
from tidelog_storage import log as log_module
from tidelog_storage import transaction_proof
from tidelog_storage.remote.api import RetriableRemoteStorageError
from tidelog_storage.remote.directory_store import DirectoryStore

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tidelog.server import BrokerServer


async def produce(server: BrokerServer, topic: str, config: dict[str, str]) -> None:
    """Transactions of one batch each, every other one aborted."""
    async with Nodes(server.bootstrap_servers) as nodes:
        await create(nodes, topic, config)
        producer = TxnProducer(nodes, "producer")
        await producer.init()
        for number in range(20):
            await producer.send(topic, f"{number:02}".encode() * 60)
            await producer.end(commit=number % 2 > 0)


def test_the_check_runs_off_the_loop_and_wakes_the_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        server = server_on(tmp_path / "data", tmp_path / "tier")
        await server.start()
        await produce(server, "t", SEGMENTS)
        await server.stop()
        monkeypatch.setattr(transaction_proof, "SMALL_BYTES", 0)
        monkeypatch.setattr(log_module, "TransactionProof", None)  # what the loop would call
        server = server_on(tmp_path / "data", tmp_path / "tier")
        await server.start()
        try:
            async with await WireClient.connect(server.bootstrap_servers) as client:
                part = FetchRequest.FetchTopic.FetchPartition(
                    partition=0, fetch_offset=0, partition_max_bytes=1 << 20
                )
                topic = FetchRequest.FetchTopic(topic="t", partitions=[part])
                asked = FetchRequest(
                    max_wait_ms=60_000, min_bytes=1, isolation_level=1, topics=[topic]
                )
                answer = await client.ask(asked, 11)
                data = answer.responses[0].partitions[0]
                assert data.error_code == 0
                assert data.records
                assert next(each.first_offset for each in data.aborted_transactions) == 0
        finally:
            await server.stop()

    run(test)


def test_what_is_copied_is_compared_off_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments that the store refused before a restart."""

    async def test() -> None:
        server = server_on(tmp_path / "data", tmp_path / "tier")
        await server.start()
        with monkeypatch.context() as patched:
            patched.setattr(DirectoryStore, "copy_segment", _is_away)
            await produce(server, "r", {**SEGMENTS, "remote.storage.enable": "true"})
            await server.stop()
        monkeypatch.setattr(transaction_proof, "SMALL_BYTES", 0)
        monkeypatch.setattr(log_module, "TransactionProof", None)
        server = server_on(tmp_path / "data", tmp_path / "tier")
        await server.start()
        try:
            sealed = len(server.replicas.partition("r", 0).log.segments) - 1
            await until(lambda: len(list((tmp_path / "tier").rglob("*.txnindex"))) == sealed)
        finally:
            await server.stop()

    run(test)


def _is_away(*_: object) -> None:
    raise RetriableRemoteStorageError("away")
