"""Each order is paid once, whatever fails between the worker and the brokers."""

from __future__ import annotations

import json

import pytest
from payments import Payments

from tidelog.testing.records import assert_records, produce, read_all
from tidelog.testing.waits import wait_for_lag

ORDERS = [json.dumps({"id": n, "count": n, "price": 250}) for n in range(1, 4)]
PAYMENTS = [json.dumps({"order": n, "cents": n * 250}) for n in range(1, 4)]


@pytest.fixture
def servers(tidelog_cluster):
    """A broker with the two topics, empty again after the test."""
    tidelog_cluster.create_topic("orders")
    tidelog_cluster.create_topic("payments")
    yield tidelog_cluster.bootstrap_servers
    tidelog_cluster.reset()


@pytest.fixture
def payments(servers):
    worker = Payments(servers)
    yield worker
    worker.close()


def test_every_order_is_paid(servers, payments):
    produce(servers, "orders", ORDERS)
    payments.work(3)
    assert_records(servers, "payments", PAYMENTS)
    wait_for_lag(servers, "payments", "orders")


def test_an_order_is_paid_once_when_the_commit_is_not_answered(servers, payments, tidelog_faults):
    fault = tidelog_faults.on("EndTxn").once().drop_connection(after_work=True)
    produce(servers, "orders", ORDERS)
    payments.work(3)
    assert_records(servers, "payments", PAYMENTS)
    assert fault.wait(1).hits == 1


def test_an_aborted_payment_is_not_seen(servers, payments, tidelog_faults):
    """The broker refuses the first record of `payments`: the worker aborts and pays again."""
    fault = tidelog_faults.on("Produce", topic="payments").once().error("INVALID_RECORD")
    produce(servers, "orders", ORDERS)
    payments.work(3)
    assert_records(servers, "payments", PAYMENTS)
    assert fault.wait(1).hits == 1
    assert len(read_all(servers, "payments", committed=False)) == 3  # none was written
