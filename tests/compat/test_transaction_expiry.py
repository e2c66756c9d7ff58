"""Transactional ids that nobody uses are forgotten, and whoever still has one hears the same of
tidelog as of Apache Kafka."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from compat.brokers import Tidelog
from compat.jvm import require_jars
from compat.reference import ApacheKafka
from support.txn_client import Nodes, TxnProducer
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.txn_admin import DescribeTransactionsRequest

if TYPE_CHECKING:
    from pathlib import Path

    from compat.brokers import Broker

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

SETTINGS = {
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
}


ENDED = ErrorCode.INVALID_PRODUCER_ID_MAPPING
KAFKAS = [
    ("end", ErrorCode.NONE),
    ("open one", ErrorCode.NONE),
    ("late records", ENDED),
    ("late offsets", ENDED),
    ("late end", ENDED),
    ("open end", ErrorCode.NONE),
    ("again", ErrorCode.NONE),
    ("epoch", 0),
    ("another producer id", True),
    ("records", ErrorCode.NONE),
    ("abort", ErrorCode.NONE),
    ("committed", [b"one", b"one"]),
]


async def described(nodes: Nodes, transactional_id: str) -> ErrorCode:
    asked = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    answer = await nodes.ask(await nodes.coordinator(transactional_id, 1), asked, 0)
    return ErrorCode(answer.transaction_states[0].error_code)


async def forgotten(nodes: Nodes, transactional_id: str) -> None:
    error = ErrorCode.NONE
    while error is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        error = await described(nodes, transactional_id)


async def heard(bootstrap: str, version: int) -> list[tuple[str, object]]:
    """What a producer hears after its id has gone, and what the next one does."""
    said: list[tuple[str, object]] = []
    async with Nodes(bootstrap) as nodes:
        topic = f"t-{version}"
        await nodes.create(topic)
        idle = TxnProducer(nodes, f"idle-{version}", version=version)
        busy = TxnProducer(nodes, f"busy-{version}", version=version)
        for producer in (idle, busy):
            assert await producer.init() is ErrorCode.NONE
            assert await producer.send(topic, b"one") is ErrorCode.NONE
        said.append(("end", await idle.end(commit=True)))
        await forgotten(nodes, idle.transactional_id)
        said.append(("open one", await described(nodes, busy.transactional_id)))
        said.append(("late records", await idle.send(topic, b"late")))
        said.append(("late offsets", await idle.send_offsets("g", topic, 1)))
        said.append(("late end", await idle.end(commit=True)))
        said.append(("open end", await busy.end(commit=True)))
        before = idle.producer_id
        said.append(("again", await idle.init()))
        said.append(("epoch", idle.epoch))
        said.append(("another producer id", idle.producer_id != before))
        said.append(("records", await idle.send(topic, b"two")))
        said.append(("abort", await idle.end(commit=False)))
        values, _ = await nodes.fetched(topic)
        said.append(("committed", values))
    return said


@pytest.mark.parametrize("kind", [Tidelog, pytest.param(ApacheKafka, marks=pytest.mark.nightly)])
def test_a_producer_that_returns_after_expiry_gets_kafkas_answer(
    kind: type[Broker], tmp_path: Path
) -> None:
    if kind is ApacheKafka:
        require_jars()
    broker = kind(tmp_path, SETTINGS)
    broker.start()
    try:
        for version in (1, 2):
            assert asyncio.run(heard(broker.bootstrap, version)) == KAFKAS
    finally:
        broker.stop()
