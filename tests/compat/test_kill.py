"""A broker ended under load and started again: nothing acknowledged is lost or reordered.

By kill -9, and by SIGTERM, which must end it in order within five seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compat.brokers import Tidelog
from compat.clients.protocol import decoded
from compat.conftest import Client
from compat.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compat.conftest import ClientPool

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

PARTITIONS = 2
ENDS = 2
# Between two ends this many more records must have been acknowledged.
LOAD = 2000


@pytest.fixture
def lone_broker(tmp_path: Path) -> Iterator[Tidelog]:
    """A tidelog of the test's own. Small segments, so that a kill finds closed ones, too."""
    broker = Tidelog(tmp_path, {"log.segment.bytes": "1048576"})
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(params=["librdkafka", pytest.param("aiokafka", marks=pytest.mark.nightly)])
def flooding(
    request: pytest.FixtureRequest, client_pool: ClientPool, lone_broker: Tidelog
) -> Client:
    return Client(request.param, client_pool.start(request.param), lone_broker.bootstrap)


def read_all(client: Client, topic: str, partition: int) -> list[dict[str, Any]]:
    end = client.call("offsets", topic=topic, partition=partition, at="latest")["offset"]
    fields: dict[str, Any] = {"topic": topic, "partition": partition, "from": 0, "count": end}
    records = client.call("consume", **fields)["records"]
    assert [record["offset"] for record in records] == list(range(end))
    return records


def stop_in_order(broker: Tidelog) -> None:
    """It ends itself, with another code, when it takes longer than 4.5 s."""
    assert broker.stop() == 0


@pytest.mark.parametrize("end", [Tidelog.kill, stop_in_order], ids=["killed", "stopped"])
def test_acknowledged_records_survive(
    lone_broker: Tidelog, flooding: Client, end: Callable[[Tidelog], None]
) -> None:
    topic = "flood"
    flooding.call("create_topic", topic=topic, partitions=PARTITIONS, configs={})
    flooding.call("flood", topic=topic, partitions=PARTITIONS)
    for _ in range(ENDS):
        before = flooding.call("flooded")["count"]
        eventually(lambda: flooding.call("flooded")["count"], (before + LOAD).__lt__, 60)
        end(lone_broker)
        lone_broker.start()
    before = flooding.call("flooded")["count"]
    eventually(lambda: flooding.call("flooded")["count"], (before + LOAD).__lt__, 60)
    result = flooding.call("flooded", stop=True)
    assert result["failed"] == []

    acknowledged = set(result["acknowledged"])
    kept: set[int] = set()
    for partition in range(PARTITIONS):
        numbers = [
            int(decoded(record["value"]) or b"") for record in read_all(flooding, topic, partition)
        ]
        assert numbers == sorted(set(numbers)), "duplicated or reordered"
        assert all(number % PARTITIONS == partition for number in numbers)
        kept.update(numbers)
    assert acknowledged <= kept


def test_committed_offsets_survive_a_kill(lone_broker: Tidelog, flooding: Client) -> None:
    record = {"key": None, "value": "YQ==", "headers": [], "partition": 0}
    join = {"group": "steady", "topic": "t", "session_timeout_ms": 6000}
    flooding.call("create_topic", topic="t", partitions=1, configs={})
    settings = {"codec": "none", "acks": "all", "idempotent": False}
    flooding.call("produce", topic="t", records=[record] * 5, **settings)
    flooding.call("join", member="m", **join)
    eventually(lambda: len(flooding.call("consumed", member="m")["records"]), (5).__eq__)
    flooding.call("commit", member="m")
    flooding.call("leave", member="m")
    lone_broker.kill()
    lone_broker.start()
    assert flooding.call("committed", group="steady", topic="t", partition=0)["offset"] == 5
