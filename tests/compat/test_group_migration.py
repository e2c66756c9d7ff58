"""A group of real clients, one or two, rolls from the classic to the consumer protocol and back
(KIP-848)."""

from __future__ import annotations

from itertools import chain, product
from typing import TYPE_CHECKING, Any

import pytest

from compat.brokers import Tidelog
from compat.clients.protocol import encoded
from compat.conftest import CLIENTS, Client
from compat.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from _pytest.mark import ParameterSet

    from compat.conftest import ClientPool

pytestmark = [pytest.mark.compat, pytest.mark.timeout(200)]

OF_BOTH_PROTOCOLS = ("librdkafka", "java", "go")
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


def pairs() -> Iterator[ParameterSet]:
    """Every client as a member of the classic protocol, beside each that has the other one. CI has
    those that roll by themselves; `make nightly` mixes them."""
    for classic, modern in product(CLIENTS, OF_BOTH_PROTOCOLS):
        marks = [pytest.mark.xdist_group("java")] if "java" in (classic, modern) else []
        if classic != modern:
            marks.append(pytest.mark.nightly)
        yield pytest.param(classic, modern, marks=marks)


@pytest.mark.parametrize(("classic", "modern"), list(pairs()))
def test_a_group_rolls_to_the_other_protocol_and_back(
    classic: str, modern: str, client_pool: ClientPool, quick_broker: Tidelog
) -> None:
    """Each member commits before the next change: every record comes exactly once."""
    client = Client(classic, client_pool.get(classic), quick_broker.bootstrap)
    other = Client(modern, client_pool.get(modern), quick_broker.bootstrap)
    client_of = {"old": client, "new": other, "back": client}
    topic = f"roll-{classic}-{modern}"
    client.call("create_topic", topic=topic, partitions=len(PARTITIONS), configs={})
    join = {"group": topic, "topic": topic, "session_timeout_ms": 10_000}
    seen: list[tuple[int, int]] = []

    def call(op: str, member: str, **fields: Any) -> dict[str, Any]:
        answer: dict[str, Any] = client_of[member].call(op, member=member, **fields)
        return answer

    def assignments(members: Sequence[str]) -> list[list[int]]:
        return [call("assignment", each)["partitions"] for each in members]

    def records(members: Sequence[str]) -> list[tuple[int, int]]:
        found = (call("consumed", each)["records"] for each in members)
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
            call("commit", each)

    call("join", "old", **join)
    goes_on("old")
    call("join", "new", protocol="consumer", **join)
    goes_on("old", "new")
    call("leave", "old")
    goes_on("new")
    call("join", "back", **join)
    goes_on("new", "back")
    call("leave", "new")
    goes_on("back")
    call("leave", "back")
    assert sorted(seen) == [(partition, offset) for partition in PARTITIONS for offset in range(5)]
