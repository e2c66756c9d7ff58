"""Transactions of every client library: one text, five clients (clients/protocol.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compat.clients.protocol import decoded, encoded
from compat.eventually import eventually
from compat.line_process import WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from compat.conftest import Client

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]


def records(numbers: Iterable[int]) -> list[dict[str, Any]]:
    return [
        {"key": None, "value": encoded(b"%d" % number), "headers": [], "partition": 0}
        for number in numbers
    ]


def read(client: Client, topic: str, count: int, *, committed: bool = True) -> list[int]:
    """At least so many numbers; a fetch brings more, if it may show more."""
    fields: dict[str, Any] = {"topic": topic, "partition": 0, "from": "earliest", "count": count}
    answer = client.call("consume", committed=committed, **fields)
    return [int(decoded(each["value"]) or b"-1") for each in answer["records"]]


@pytest.fixture
def topic(client: Client, fresh: Callable[[str], str]) -> str:
    name = fresh("transactions")
    client.call("create_topic", topic=name, partitions=1, configs={})
    return name


def send(client: Client, producer: str, topic: str, numbers: Iterable[int], **more: Any) -> None:
    fields = {"begin": True, **more}
    client.call("txn_send", producer=producer, topic=topic, records=records(numbers), **fields)


def end(client: Client, producer: str, *, commit: bool) -> None:
    client.call("txn_end", producer=producer, commit=commit)


def test_what_readers_see_of_committed_aborted_and_open_transactions(
    client: Client, topic: str, fresh: Callable[[str], str]
) -> None:
    for producer in ("one", "two"):
        client.call("txn_open", producer=producer, transactional_id=fresh("id"))
    send(client, "one", topic, range(5))
    end(client, "one", commit=True)
    send(client, "one", topic, range(5, 10))
    end(client, "one", commit=False)
    send(client, "one", topic, range(10, 13))  # stays open
    send(client, "two", topic, range(13, 16))
    end(client, "two", commit=True)
    assert read(client, topic, 5) == list(range(5)), "of what follows an open transaction"
    assert read(client, topic, 16, committed=False) == list(range(16))
    send(client, "one", topic, range(16, 18), begin=False)
    end(client, "one", commit=True)
    expected = [*range(5), *range(10, 18)]
    assert read(client, topic, len(expected)) == expected
    for producer in ("one", "two"):
        client.call("txn_close", producer=producer)


def test_a_new_producer_of_an_id_fences_the_older_one(
    client: Client, topic: str, fresh: Callable[[str], str]
) -> None:
    transactional_id = fresh("id")
    client.call("txn_open", producer="older", transactional_id=transactional_id)
    send(client, "older", topic, range(3))
    client.call("txn_open", producer="newer", transactional_id=transactional_id)
    with pytest.raises(WorkerError, match=r"(?i)fenced|epoch|newer"):
        end(client, "older", commit=True)
    send(client, "newer", topic, range(3, 6))
    end(client, "newer", commit=True)
    assert read(client, topic, 3) == [3, 4, 5]
    client.call("txn_close", producer="newer")


def test_a_copy_and_its_offsets_are_committed_together_or_not_at_all(
    client: Client, topic: str, fresh: Callable[[str], str]
) -> None:
    to = fresh("copies")
    client.call("create_topic", topic=to, partitions=1, configs={})
    client.call("txn_open", producer="source", transactional_id=fresh("id"))
    for start in range(0, 30, 10):
        send(client, "source", topic, range(start, start + 5))
        end(client, "source", commit=True)
        send(client, "source", topic, range(100, 105))
        end(client, "source", commit=False)
        send(client, "source", topic, range(start + 5, start + 10))
        end(client, "source", commit=True)
    client.call("txn_close", producer="source")
    group = fresh("group")
    fields = {"topic": topic, "to": to, "group": group, "transactional_id": fresh("id")}

    def offset() -> int:
        return client.call("committed", group=group, topic=topic, partition=0)["offset"]

    # The three parts of ten have 18 offsets each: two times five and a marker, five and a marker.
    assert client.call("copy", count=10, commit=True, **fields) == {"copied": 10}
    assert eventually(offset, lambda seen: seen > 0) in (17, 18)
    assert client.call("copy", count=10, commit=False, **fields) == {"copied": 10}
    assert offset() in (17, 18)
    assert client.call("copy", count=20, commit=True, **fields) == {"copied": 20}
    assert read(client, to, 30) == list(range(30)), "lost or doubled"
    eventually(offset, (53, 54).__contains__)
