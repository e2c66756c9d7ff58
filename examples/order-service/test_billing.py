"""Orders are billed once each (confluent-kafka): transactions, and what can go wrong in them."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from orders import Order

from tidelog.testing.records import assert_records, produce, read_all

several = pytest.mark.tidelog(brokers=3, tiered=True, settings={"min.insync.replicas": 2})


def numbers(servers: str, topic: str) -> list[str]:
    return [Order.from_bytes(record.value).number for record in read_all(servers, topic)]


def test_each_order_is_billed_once(tidelog_bootstrap, billing, order):
    names = billing.names
    produce(tidelog_bootstrap, names["orders"], [order(n).to_bytes() for n in range(5)])
    with billing() as one:
        assert [one.bill() for _ in range(5)] == [True] * 5
    with billing() as another:
        assert not another.bill(timeout_s=0.5)  # it goes on where the first one ended
    assert numbers(tidelog_bootstrap, names["payments"]) == list("01234")


def test_what_is_no_order_goes_to_the_dead_letters(tidelog_bootstrap, billing, order):
    names = billing.names
    produce(tidelog_bootstrap, names["orders"], [b"{", order(1).to_bytes()])
    with billing() as one:
        assert (one.bill(), one.bill()) == (True, True)
    assert_records(tidelog_bootstrap, names["dead_letters"], [b"{"])
    assert numbers(tidelog_bootstrap, names["payments"]) == ["1"]


def test_a_payment_is_not_visible_before_its_commit(tidelog_bootstrap, billing, order):
    payments = billing.names["payments"]
    produce(tidelog_bootstrap, billing.names["orders"], [order(1).to_bytes()])
    with billing() as one:
        one.begin()
        assert read_all(tidelog_bootstrap, payments) == []
        assert len(read_all(tidelog_bootstrap, payments, committed=False)) == 1
        one.commit()
    shown = read_all(tidelog_bootstrap, payments, control=True)
    assert [record.control for record in shown] == [None, "COMMIT"]


def test_a_crash_before_the_commit_bills_again_but_once(
    tidelog_cluster, tidelog_bootstrap, billing, order
):
    names = billing.names
    produce(tidelog_bootstrap, names["orders"], [order(1).to_bytes()])
    with billing() as crashed:
        crashed.begin()
        tidelog_cluster.groups.expire(names["group"])  # as if its heartbeats had stopped
        with billing() as next_one:
            assert next_one.bill()
    shown = read_all(tidelog_bootstrap, names["payments"], committed=False, control=True)
    assert [one.control for one in shown] == [None, "ABORT", None, "COMMIT"]
    assert numbers(tidelog_bootstrap, names["payments"]) == ["1"]


def test_a_zombie_cannot_commit(tidelog_cluster, tidelog_bootstrap, billing, order):
    produce(tidelog_bootstrap, billing.names["orders"], [order(1).to_bytes()])
    with billing() as zombie:
        zombie.begin()
        with billing(), pytest.raises(KafkaException, match="_FENCED"):
            zombie.commit()
    assert numbers(tidelog_bootstrap, billing.names["payments"]) == []


def test_a_transaction_that_hangs_ends_by_its_timeout(
    tidelog_cluster, tidelog_clock, tidelog_bootstrap, billing, order
):
    """`transaction.timeout.ms` is a minute for librdkafka: the test lets two pass."""
    payments = billing.names["payments"]
    produce(tidelog_bootstrap, billing.names["orders"], [order(1).to_bytes()])
    with billing() as one:
        one.begin()
        assert tidelog_cluster.state().partition(payments).log().last_stable_offset == 0
        tidelog_clock.advance(minutes=2, expire_sessions=True)
        tidelog_cluster.wait_for(
            lambda state: state.partition(payments).log().last_stable_offset == 2
        )
    assert numbers(tidelog_bootstrap, payments) == []


def test_a_commit_whose_answer_is_lost_commits_once(
    tidelog_bootstrap, tidelog_faults, tidelog_transactional_id, billing, order
):
    fault = tidelog_faults.on("EndTxn", transactional_id=tidelog_transactional_id).once()
    lost = fault.drop_connection(after_work=True)
    produce(tidelog_bootstrap, billing.names["orders"], [order(1).to_bytes()])
    with billing() as one:
        assert one.bill()
    assert lost.wait(1).hits == 1
    assert numbers(tidelog_bootstrap, billing.names["payments"]) == ["1"]


@several
def test_coordinators_move_while_it_works(tidelog_cluster, tidelog_bootstrap, billing, order):
    names = billing.names
    produce(tidelog_bootstrap, names["orders"], [order(n).to_bytes() for n in range(3)])
    with billing() as one:
        assert one.bill()
        group = tidelog_cluster.state().group(names["group"])
        tidelog_cluster.groups.move(names["group"], 1 + group.coordinator % 3)
        assert one.bill()
        id_ = names["transactional_id"]
        coordinator = tidelog_cluster.state().transaction(id_).coordinator
        tidelog_cluster.transactions.move(id_, 1 + coordinator % 3)
        assert one.bill()
    assert numbers(tidelog_bootstrap, names["payments"]) == list("012")


@several
def test_a_broker_stops_for_an_update(tidelog_cluster, tidelog_bootstrap, billing, order):
    """In order: the others lead before it goes.

    It does not coordinate the group, for which librdkafka would wait: see `Billing.begin`.
    """
    names = billing.names
    produce(tidelog_bootstrap, names["orders"], [order(n).to_bytes() for n in range(2)])
    with billing() as one:
        assert one.bill()
        coordinator = tidelog_cluster.state().group(names["group"]).coordinator
        leader, other = (1 + (coordinator + n) % 3 for n in range(2))
        tidelog_cluster.topics.move(names["payments"], 0, [leader, other, coordinator])
        tidelog_cluster.topics.elect(names["payments"], 0)
        tidelog_cluster.brokers[leader - 1].stop()
        assert one.bill()
    assert numbers(tidelog_cluster.bootstrap_servers, names["payments"]) == list("01")
