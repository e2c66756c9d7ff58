"""A group of real clients rolls from the classic to the consumer protocol and back (KIP-848)."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from compat.brokers import Tidelog
from compat.clients.protocol import encoded
from compat.conftest import Client
from compat.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compat.conftest import ClientPool

pytestmark = [pytest.mark.compat, pytest.mark.timeout(200)]

PARTITIONS = range(4)
OFTEN = {f"group.consumer.{name}heartbeat.interval.ms": "100" for name in ("", "min.", "max.")}


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tidelog]:
    """A broker whose members of the consumer protocol follow an assignment at once."""
    broker = Tidelog(
        tmp_path_factory.mktemp("migration"), OFTEN | {"group.consumer.assignment.interval.ms": "0"}
    )
    broker.start()
    yield broker
    broker.stop()


@pytest.mark.parametrize(
    "name", ["librdkafka", pytest.param("java", marks=pytest.mark.xdist_group("java"))]
)
def test_a_group_rolls_to_the_other_protocol_and_back(
    name: str, client_pool: ClientPool, quick_broker: Tidelog
) -> None:
    """Each member commits before the next change: every record comes exactly once."""
    client = Client(name, client_pool.get(name), quick_broker.bootstrap)
    topic = f"roll-{name}"
    client.call("create_topic", topic=topic, partitions=len(PARTITIONS), configs={})
    join = {"group": topic, "topic": topic, "session_timeout_ms": 10_000}
    seen: list[tuple[int, int]] = []

    def assignments(members: Sequence[str]) -> list[list[int]]:
        return [client.call("assignment", member=each)["partitions"] for each in members]

    def records(members: Sequence[str]) -> list[tuple[int, int]]:
        found = (client.call("consumed", member=each)["records"] for each in members)
        return sorted((each["partition"], each["offset"]) for each in chain(*found))

    def goes_on(*members: str) -> None:
        """The members share all partitions, and read what comes from then on."""

        def is_shared(shares: list[list[int]]) -> bool:
            return all(shares) and sorted(chain(*shares)) == list(PARTITIONS)

        eventually(lambda: assignments(members), is_shared)
        before = records(members)
        sent: list[dict[str, Any]] = [
            {"key": None, "value": encoded(b"v"), "headers": [], "timestamp": 1, "partition": n}
            for n in PARTITIONS
        ]
        client.call("produce", topic=topic, records=sent, codec="none", acks="all", idempotent=True)
        after = eventually(
            lambda: records(members), lambda found: len(found) >= len(before) + len(sent)
        )
        seen.extend(set(after) - set(before))
        assert len(after) == len(before) + len(sent), "a record came again"
        for each in members:
            client.call("commit", member=each)

    client.call("join", member="old", **join)
    goes_on("old")
    client.call("join", member="new", protocol="consumer", **join)
    goes_on("old", "new")
    client.call("leave", member="old")
    goes_on("new")
    client.call("join", member="back", **join)
    goes_on("new", "back")
    client.call("leave", member="new")
    goes_on("back")
    client.call("leave", member="back")
    assert sorted(seen) == [(partition, offset) for partition in PARTITIONS for offset in range(5)]
