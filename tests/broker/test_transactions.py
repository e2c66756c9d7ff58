"""Transactions over real sockets, both protocols, one broker and three; raw requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tidelog
from support.clusters import FAST, image_of, run, until
from support.txn_client import Nodes, TxnProducer
from tidelog.cluster.metadata.image import TRANSACTION_STATE_TOPIC
from tidelog.coordinators.transactions import decisions, transaction
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

BOTH = pytest.mark.parametrize("version", [1, 2])
THREE = {
    **FAST,
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
}


@BOTH
def test_committed_records_are_seen_and_aborted_ones_are_not(version: int) -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster, Nodes(cluster.bootstrap_servers) as nodes:
            await nodes.create("t", 2)
            producer = TxnProducer(nodes, "tx", version=version)
            assert await producer.init() is ErrorCode.NONE
            for number, commit in enumerate((True, False, True)):
                for index in (0, 1):
                    sent = await producer.send("t", b"%d" % number, b"more", index=index)
                    assert sent is ErrorCode.NONE
                # An open transaction holds readers of committed records back, and no others.
                values, data = await nodes.fetched("t")
                assert data.last_stable_offset == 3 * number
                assert data.high_watermark == 3 * number + 2
                assert b"%d" % number not in values
                assert await nodes.end_offset("t", committed=True) == 3 * number
                assert await nodes.end_offset("t", committed=False) == 3 * number + 2
                assert await producer.end(commit=commit) is ErrorCode.NONE
            for index in (0, 1):
                values, data = await nodes.fetched("t", index)
                assert values == [b"0", b"more", b"2", b"more"]
                assert [each.first_offset for each in data.aborted_transactions] == [3]
                assert data.last_stable_offset == data.high_watermark == 9
                all_of_it, _ = await nodes.fetched("t", index, committed=False)
                assert all_of_it == [b"0", b"more", b"1", b"more", b"2", b"more"]

    run(test)


@BOTH
def test_offsets_hold_once_the_transaction_commits(version: int) -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster, Nodes(cluster.bootstrap_servers) as nodes:
            await nodes.create("t")
            producer = TxnProducer(nodes, "tx", version=version)
            assert await producer.init() is ErrorCode.NONE
            wanted = -1
            for offset, commit in ((5, True), (9, False), (7, True)):
                assert await producer.send_offsets("g", "t", offset) is ErrorCode.NONE
                assert await nodes.committed("g", "t") == (wanted, ErrorCode.NONE)
                assert await nodes.committed("g", "t", require_stable=True) == (
                    -1,
                    ErrorCode.UNSTABLE_OFFSET_COMMIT,
                )
                assert await producer.end(commit=commit) is ErrorCode.NONE
                wanted = offset if commit else wanted
                assert await nodes.committed("g", "t", require_stable=True) == (
                    wanted,
                    ErrorCode.NONE,
                )

    run(test)


def test_long_metadata_of_an_offset_are_refused_after_the_member() -> None:
    """As in Kafka's OffsetMetadataManager; the transaction goes on without the offset."""

    async def test() -> None:
        async with tidelog.Cluster() as cluster, Nodes(cluster.bootstrap_servers) as nodes:
            await nodes.create("t")
            producer = TxnProducer(nodes, "tx", version=2)
            assert await producer.init() is ErrorCode.NONE
            long = "x" * 5000
            refused = await producer.send_offsets("g", "t", 5, metadata=long, generation=3)
            assert refused is ErrorCode.ILLEGAL_GENERATION
            too_large = await producer.send_offsets("g", "t", 5, metadata=long)
            assert too_large is ErrorCode.OFFSET_METADATA_TOO_LARGE
            assert await producer.end(commit=True) is ErrorCode.NONE
            assert await nodes.committed("g", "t", require_stable=True) == (-1, ErrorCode.NONE)

    run(test)


@BOTH
def test_a_new_producer_fences_the_old_one(version: int) -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster, Nodes(cluster.bootstrap_servers) as nodes:
            await nodes.create("t")
            old, new = (TxnProducer(nodes, "tx", version=version) for _ in range(2))
            assert await old.init() is ErrorCode.NONE
            assert await old.send("t", b"zombie") is ErrorCode.NONE
            assert await new.init() is ErrorCode.NONE
            assert (new.producer_id, new.epoch > old.epoch) == (old.producer_id, True)
            assert await old.end(commit=True) is ErrorCode.PRODUCER_FENCED
            fenced = await old.send("t", b"again")
            assert fenced in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
            assert await new.send("t", b"alive") is ErrorCode.NONE
            assert await new.end(commit=True) is ErrorCode.NONE
            values, _ = await nodes.fetched("t")
            assert values == [b"alive"]

    run(test)


def test_a_batch_outside_of_its_transaction_is_refused() -> None:
    """KIP-890: a partition nobody added would never get a marker."""

    async def test() -> None:
        async with tidelog.Cluster() as cluster, Nodes(cluster.bootstrap_servers) as nodes:
            await nodes.create("t", 2)
            producer = TxnProducer(nodes, "tx", version=1)
            assert await producer.init() is ErrorCode.NONE
            assert await producer.send("t", b"in") is ErrorCode.NONE
            producer._added.add(("t", 1))  # it believes so
            assert await producer.send("t", b"out", index=1) is ErrorCode.INVALID_TXN_STATE
            assert await producer.end(commit=True) is ErrorCode.NONE
            assert (await nodes.fetched("t", 1, committed=False))[0] == []

    run(test)


@BOTH
def test_a_transaction_that_runs_out_of_time_is_aborted(version: int) -> None:
    async def test() -> None:
        settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "20"}
        async with (
            tidelog.Cluster(settings) as cluster,
            Nodes(cluster.bootstrap_servers) as nodes,
        ):
            await nodes.create("t")
            producer = TxnProducer(nodes, "tx", version=version)
            assert await producer.init(timeout_ms=1500) is ErrorCode.NONE
            assert await producer.send("t", b"late") is ErrorCode.NONE
            stable = 0
            while stable < 2:
                stable = await nodes.end_offset("t", committed=True)
            assert (await nodes.fetched("t"))[0] == []
            # With the second protocol a late end looks like the repetition of an earlier one.
            late = ErrorCode.PRODUCER_FENCED if version == 1 else ErrorCode.INVALID_TXN_STATE
            assert await producer.end(commit=True) is late

    run(test)


@BOTH
def test_restarts_forget_nothing(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        folder = tmp_path / "data"
        producer_id = epoch = -1
        async with (
            tidelog.Cluster(data_dir=folder) as cluster,
            Nodes(cluster.bootstrap_servers) as nodes,
        ):
            await nodes.create("t")
            producer = TxnProducer(nodes, "tx", version=version)
            assert await producer.init() is ErrorCode.NONE
            assert await producer.send("t", b"open") is ErrorCode.NONE
            assert await producer.send_offsets("g", "t", 3) is ErrorCode.NONE
            producer_id, epoch = producer.producer_id, producer.epoch
        async with (
            tidelog.Cluster(data_dir=folder) as cluster,
            Nodes(cluster.bootstrap_servers) as nodes,
        ):
            again = TxnProducer(nodes, "tx", version=version)
            again.producer_id, again.epoch = producer_id, epoch
            assert (await nodes.fetched("t"))[0] == []
            assert await nodes.committed("g", "t") == (-1, ErrorCode.NONE)
            assert await again.end(commit=True) is ErrorCode.NONE
            assert (await nodes.fetched("t"))[0] == [b"open"]
            assert await nodes.committed("g", "t", require_stable=True) == (3, ErrorCode.NONE)
            assert await again.init() is ErrorCode.NONE
            assert (again.producer_id, again.epoch > epoch) == (producer_id, True)

    run(test)


@BOTH
def test_the_last_epochs_transaction_runs_out_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Its end needs a new producer id, of which a coordinator that has just started has none: only
    requests for a producer had a block brought, and nobody makes one here."""
    for module in (decisions, transaction):
        monkeypatch.setattr(module, "EPOCH_MAX", 1)  # so that epoch 0 is the last for clients

    async def test() -> None:
        settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "20"}
        async with (
            tidelog.Cluster(data_dir=tmp_path) as cluster,
            Nodes(cluster.bootstrap_servers) as nodes,
        ):
            await nodes.create("t")
            producer = TxnProducer(nodes, "tx", version=version)
            assert await producer.init(timeout_ms=100) is ErrorCode.NONE
            assert await producer.send("t", b"late") is ErrorCode.NONE
        async with (
            tidelog.Cluster(settings, data_dir=tmp_path) as cluster,
            Nodes(cluster.bootstrap_servers) as nodes,
        ):
            stable = 0
            while stable < 2:
                stable = await nodes.end_offset("t", committed=True)
            assert (await nodes.fetched("t"))[0] == []

    run(test)


@BOTH
def test_three_brokers_and_a_coordinator_that_dies(version: int) -> None:
    """Between any two steps the coordinator may go; its successor has what was answered."""

    async def test() -> None:
        async with (
            tidelog.Cluster(THREE, brokers=3) as cluster,
            Nodes(cluster.bootstrap_servers) as nodes,
        ):
            await nodes.create("t", 3, replicas=3)
            producer = TxnProducer(nodes, "tx", version=version)
            assert await producer.init() is ErrorCode.NONE
            for number, commit in enumerate((True, False, True)):
                value = b"%d" % number
                for index in range(3):
                    assert await producer.send("t", value, index=index) is ErrorCode.NONE
                assert await producer.send_offsets("g", "t", number) is ErrorCode.NONE
                address = await nodes.coordinator("tx", 1)
                node = next(
                    n for n in cluster.brokers if n.is_running and n.bootstrap_server == address
                )
                await node.kill()
                assert await producer.end(commit=commit) is ErrorCode.NONE
                await node.start()
                await until(
                    lambda: all(
                        len(each.isr) == 3
                        for name in ("t", TRANSACTION_STATE_TOPIC, "__consumer_offsets")
                        for each in image_of(cluster.brokers[0]).topics[name].partitions
                    ),
                    "all in sync",
                )
            assert await producer.send("t", b"end") is ErrorCode.NONE
            assert await producer.end(commit=True) is ErrorCode.NONE
            offset, error = await nodes.committed("g", "t", require_stable=True)
            assert (offset, error) == (2, ErrorCode.NONE)
            # The markers follow the answer; until then the last stable offset holds readers back.
            for index, wanted in ((0, [b"0", b"2", b"end"]), (1, [b"0", b"2"])):
                values, data = await nodes.fetched("t", index)
                while data.last_stable_offset < data.high_watermark:
                    values, data = await nodes.fetched("t", index)
                assert values == wanted

    run(test)
