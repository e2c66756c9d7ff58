"""The brokers of these tests, and what they share."""

from __future__ import annotations

import pytest
from billing import Billing
from orders import Order


@pytest.fixture(scope="session")
def tidelog_settings():
    """As in production: topics are created by those who own them."""
    return {"auto.create.topics.enable": False}


@pytest.fixture
def order():
    """Makes orders: `order(1)`, `order(2, customer="bo")`."""

    def make(number: int, **fields) -> Order:
        given = {"customer": "ada", "item": "lamp", "cents": 100, **fields}
        return Order(str(number), **given)

    return make


@pytest.fixture
def billing(tidelog_bootstrap, tidelog_topic_factory, tidelog_group_id, tidelog_transactional_id):
    """Starts billing, with topics and ids of this test: `with billing() as one:`."""
    names = {
        "orders": tidelog_topic_factory(),
        "payments": tidelog_topic_factory(),
        "dead_letters": tidelog_topic_factory(),
        "group": tidelog_group_id,
        "transactional_id": tidelog_transactional_id,
    }

    def start() -> Billing:
        return Billing(tidelog_bootstrap, **names)

    start.names = names
    return start
