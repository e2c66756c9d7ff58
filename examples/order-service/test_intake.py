"""Orders come in (confluent-kafka): requests fail on purpose, the same way each time."""

from __future__ import annotations

import pytest
from intake import Intake
from orders import Order, OrderRefusedError

from tidelog.testing.records import TopicRecord, assert_records, read_all


def numbers(servers: str, topic: str) -> list[str]:
    return [Order.from_bytes(record.value).number for record in read_all(servers, topic)]


def test_an_order_is_stored_as_the_next_service_reads_it(tidelog_bootstrap, tidelog_topic, order):
    assert Intake(tidelog_bootstrap, tidelog_topic).place(order(1)) == (0, 0)
    value = b'{"number": "1", "customer": "ada", "item": "lamp", "cents": 100}'
    stored = TopicRecord(value, key=b"ada", headers=(("source", b"intake"),))
    assert_records(tidelog_bootstrap, tidelog_topic, [stored])


def test_orders_of_a_customer_stay_in_order(tidelog_bootstrap, tidelog_topic_factory, order):
    topic = tidelog_topic_factory(partitions=3)
    intake = Intake(tidelog_bootstrap, topic)
    places = [intake.place(order(n, customer=f"customer-{n % 4}")) for n in range(12)]
    assert len({partition for partition, _ in places}) > 1
    for customer in range(4):
        own = places[customer::4]
        assert own == sorted(own)
        assert len({partition for partition, _ in own}) == 1


def test_too_few_replicas_for_a_moment_are_waited_for(
    tidelog_bootstrap, tidelog_topic, tidelog_faults, order
):
    fault = tidelog_faults.on("Produce", topic=tidelog_topic).times(2).error("NOT_ENOUGH_REPLICAS")
    Intake(tidelog_bootstrap, tidelog_topic).place(order(1))
    assert (fault.wait(2).hits, numbers(tidelog_bootstrap, tidelog_topic)) == (2, ["1"])


def test_a_lost_answer_stores_nothing_twice(
    tidelog_bootstrap, tidelog_topic, tidelog_faults, order
):
    fault = (
        tidelog_faults.on("Produce", topic=tidelog_topic).once().drop_connection(after_work=True)
    )
    Intake(tidelog_bootstrap, tidelog_topic).place(order(1))
    assert fault.wait(1).hits == 1
    assert numbers(tidelog_bootstrap, tidelog_topic) == ["1"]


def test_it_would_without_idempotence(tidelog_bootstrap, tidelog_topic, tidelog_faults, order):
    """The fault above is a real one: this is the setting that helps."""
    tidelog_faults.on("Produce", topic=tidelog_topic).once().drop_connection(after_work=True)
    Intake(tidelog_bootstrap, tidelog_topic, enable_idempotence=False).place(order(1))
    assert numbers(tidelog_bootstrap, tidelog_topic) == ["1", "1"]


def test_a_broker_that_is_too_slow_is_an_error_for_the_customer(
    tidelog_bootstrap, tidelog_topic, tidelog_faults, order
):
    tidelog_faults.on("Produce", topic=tidelog_topic).delay(5)
    with pytest.raises(OrderRefusedError, match="_MSG_TIMED_OUT"):
        Intake(tidelog_bootstrap, tidelog_topic, message_timeout_ms=300).place(order(1))


def test_an_order_that_is_too_large_is_refused(tidelog_bootstrap, tidelog_topic_factory, order):
    topic = tidelog_topic_factory(config={"max.message.bytes": 1000})
    intake = Intake(tidelog_bootstrap, topic)
    with pytest.raises(OrderRefusedError, match="order 1: MSG_SIZE_TOO_LARGE"):
        intake.place(order(1, item="x" * 2000))


def test_a_topic_that_is_not_there_is_refused(tidelog_bootstrap, order):
    with pytest.raises(OrderRefusedError, match="UNKNOWN_TOPIC"):
        Intake(tidelog_bootstrap, "not-there").place(order(1))


@pytest.mark.tidelog(brokers=3, tiered=True, settings={"min.insync.replicas": 2})
def test_a_leader_that_is_killed_loses_no_order(tidelog_cluster, tidelog_topic, order):
    """A SIGKILL for `isolated` brokers; here the brokers of one process."""
    intake = Intake(tidelog_cluster.bootstrap_servers, tidelog_topic, acks="all")
    intake.place(order(1))
    leader = tidelog_cluster.state().partition(tidelog_topic).leader
    tidelog_cluster.brokers[leader - 1].kill()
    intake.place(order(2))
    tidelog_cluster.brokers[leader - 1].start()
    assert numbers(tidelog_cluster.bootstrap_servers, tidelog_topic) == ["1", "2"]
