"""The state of the application survives its machine, and no booking counts twice."""

from __future__ import annotations

import json

import pytest
from balances import new_application

from tidelog.testing.records import TopicRecord, produce, read_all

CHANGELOG = "changelog__accounts--bookings--default"


@pytest.fixture
def servers(tidelog_cluster):
    """A broker with the topics, empty again after the test."""
    tidelog_cluster.create_topic("bookings")
    tidelog_cluster.create_topic("balances")
    yield tidelog_cluster.bootstrap_servers
    tidelog_cluster.reset()


def book(servers: str, account: str, *cents: int) -> None:
    values = [json.dumps({"cents": one}).encode() for one in cents]
    produce(servers, "bookings", [TopicRecord(value, key=account.encode()) for value in values])


def balances(servers: str) -> list[int]:
    return [json.loads(record.value)["balance"] for record in read_all(servers, "balances")]


def test_bookings_add_up(servers, tmp_path):
    book(servers, "rent", 100, -30, 5)
    new_application(servers, tmp_path).run(count=3, timeout=30)
    assert balances(servers) == [100, 70, 75]


def test_the_state_survives_the_machine(servers, tmp_path, tidelog_cluster):
    """The next machine rebuilds it from the changelog topic, of which compaction left the end."""
    book(servers, "rent", 100, -30)
    new_application(servers, tmp_path / "first").run(count=2, timeout=30)
    assert tidelog_cluster.topics.compact(CHANGELOG) > 0
    book(servers, "rent", 5)
    new_application(servers, tmp_path / "second").run(count=1, timeout=30)
    assert balances(servers) == [100, 70, 75]


def test_a_booking_counts_once_if_the_commit_fails(servers, tmp_path, tidelog_faults):
    book(servers, "rent", 100, -30)
    fault = tidelog_faults.on("TxnOffsetCommit", group="accounts").once()
    fault = fault.error("GROUP_AUTHORIZATION_FAILED")
    with pytest.raises(Exception, match="authorization failed"):
        new_application(servers, tmp_path / "first").run(count=2, timeout=30)
    assert fault.wait(1).hits == 1
    assert balances(servers) == []  # the transaction was aborted
    new_application(servers, tmp_path / "first").run(count=2, timeout=30)
    assert balances(servers) == [100, 70]
