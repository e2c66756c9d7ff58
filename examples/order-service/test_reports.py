"""Reports over old records (kafka-python): compaction, retention, time and the remote tier."""

from __future__ import annotations

import time

import pytest
from reports import sold_cents, stock

from tidelog.testing.records import TopicRecord, produce, produce_json_lines, read_all
from tidelog.testing.waits import wait_until_tiered

several = pytest.mark.tidelog(brokers=3, tiered=True, settings={"min.insync.replicas": 2})
COMPACTED = {"cleanup.policy": "compact"}
DAY_MS = 24 * 3600 * 1000


def counts(*pairs: tuple[str, int]) -> list[TopicRecord]:
    return [TopicRecord(str(count).encode(), key=item.encode()) for item, count in pairs]


def test_the_stock_is_the_same_before_and_after_compaction(
    tidelog_cluster, tidelog_bootstrap, tidelog_topic_factory
):
    topic = tidelog_topic_factory(config=COMPACTED)
    produce(tidelog_bootstrap, topic, counts(("lamp", 3), ("chair", 1), ("lamp", 2)))
    assert stock(tidelog_bootstrap, topic) == {"lamp": 2, "chair": 1}
    assert tidelog_cluster.topics.compact(topic) == 1
    assert [one.offset for one in read_all(tidelog_bootstrap, topic)] == [1, 2]
    assert stock(tidelog_bootstrap, topic) == {"lamp": 2, "chair": 1}


def test_an_item_that_is_given_up_leaves_the_stock(
    tidelog_cluster, tidelog_bootstrap, tidelog_topic_factory
):
    topic = tidelog_topic_factory(config=COMPACTED)
    produce(tidelog_bootstrap, topic, counts(("lamp", 3), ("chair", 1)))
    tidelog_cluster.topics.make_tombstones(topic, ["lamp"])
    tidelog_cluster.topics.compact(topic)
    assert stock(tidelog_bootstrap, topic) == {"chair": 1}


def test_orders_of_last_month_are_deleted_today(
    tidelog_cluster, tidelog_clock, tidelog_bootstrap, tidelog_topic_factory, order
):
    topic = tidelog_topic_factory(config={"retention.ms": 30 * DAY_MS})
    produce(tidelog_bootstrap, topic, [order(1).to_bytes()])
    tidelog_clock.advance(days=31)
    assert sold_cents(tidelog_bootstrap, topic) == 0
    assert tidelog_cluster.state().partition(topic).log().log_start_offset == 1


def test_a_report_since_a_time(tidelog_bootstrap, tidelog_topic):
    now_ms = int(time.time() * 1000)
    lines = [
        f'{{"value": {{"number": "{n}", "customer": "ada", "item": "lamp", "cents": {n}}},'
        f' "timestamp": {now_ms - (10 - n) * DAY_MS}}}'
        for n in range(10)
    ]
    assert produce_json_lines(tidelog_bootstrap, lines, tidelog_topic) == 10
    assert sold_cents(tidelog_bootstrap, tidelog_topic, now_ms - 3 * DAY_MS) == 7 + 8 + 9


def test_two_tests_do_not_see_each_other(tidelog_cluster_factory, order):
    """Each has its cluster, or one is as new after `reset()`, in some hundredths of a second."""
    one, other = tidelog_cluster_factory(), tidelog_cluster_factory()
    for cluster in (one, other):
        cluster.create_topic("orders")
    produce(one.bootstrap_servers, "orders", [order(1, cents=5).to_bytes()])
    assert sold_cents(one.bootstrap_servers, "orders") == 5
    assert sold_cents(other.bootstrap_servers, "orders") == 0
    one.reset()
    one.create_topic("orders")
    assert sold_cents(one.bootstrap_servers, "orders") == 0


@several
def test_history_is_read_from_the_remote_tier(tidelog_cluster, tidelog_topic_factory, order):
    servers = tidelog_cluster.bootstrap_servers
    topic = tidelog_topic_factory(config={"local.retention.bytes": 0})
    produce(servers, topic, [order(n).to_bytes() for n in range(5)])
    tidelog_cluster.tier.copy(topic)
    wait_until_tiered(servers, topic, 4)
    tidelog_cluster.topics.retain(topic)
    log = tidelog_cluster.state().partition(topic).log()
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 5)
    assert sold_cents(servers, topic) == 500


@several
def test_history_outlives_its_leader(tidelog_cluster, tidelog_topic_factory, order):
    topic = tidelog_topic_factory(config={"local.retention.bytes": 0})
    produce(tidelog_cluster.bootstrap_servers, topic, [order(n).to_bytes() for n in range(5)])
    tidelog_cluster.tier.copy(topic)
    tidelog_cluster.topics.retain(topic)
    leader = tidelog_cluster.state().partition(topic).leader
    tidelog_cluster.brokers[leader - 1].stop()
    assert sold_cents(tidelog_cluster.bootstrap_servers, topic) == 500


@several
def test_a_store_that_fails_loses_nothing(
    tidelog_cluster, tidelog_devices, tidelog_topic_factory, order
):
    servers = tidelog_cluster.bootstrap_servers
    topic = tidelog_topic_factory(config={"local.retention.bytes": 0})
    leader = tidelog_cluster.state().partition(topic).leader
    tidelog_devices.fail_store(leader, "copies")
    produce(servers, topic, [order(n).to_bytes() for n in range(5)])
    tidelog_cluster.topics.roll(topic)
    tidelog_cluster.topics.retain(topic)
    log = tidelog_cluster.state().partition(topic).log()
    assert log.local_log_start_offset == 0  # not copied, so it stays
    tidelog_devices.heal()
    tidelog_cluster.tier.copy(topic)
    tidelog_cluster.topics.retain(topic)
    log = tidelog_cluster.state().partition(topic).log()
    assert log.local_log_start_offset == 5
    assert sold_cents(servers, topic) == 500
