"""A week passes in a moment: what the job does when it was away for longer than records live."""

from __future__ import annotations

import json

import pytest
from kafka import KafkaProducer
from report import report

WEEK_MS = 7 * 24 * 3600 * 1000


@pytest.fixture
def servers(tidelog_cluster):
    """A broker with the topic `sales`, whose records live for a week; empty after the test."""
    config = {"retention.ms": WEEK_MS, "message.timestamp.type": "LogAppendTime"}
    tidelog_cluster.create_topic("sales", partitions=2, config=config)
    yield tidelog_cluster.bootstrap_servers
    tidelog_cluster.reset()


def sell(servers: str, article: str, count: int = 1) -> None:
    producer = KafkaProducer(bootstrap_servers=servers)
    sale = json.dumps({"article": article, "count": count}).encode()
    producer.send("sales", sale, key=article.encode()).get(timeout=30)
    producer.close()


def test_each_run_reports_what_is_new(servers):
    sell(servers, "tea", 2)
    sell(servers, "cups")
    assert report(servers) == {"tea": 2, "cups": 1}
    assert report(servers) == {}
    sell(servers, "tea", 5)
    assert report(servers) == {"tea": 5}


def test_a_job_that_was_away_too_long_goes_on_with_what_is_left(servers, tidelog_clock):
    """Its offset is out of range: `auto_offset_reset` says where it goes on."""
    sell(servers, "tea")
    assert report(servers) == {"tea": 1}
    sell(servers, "cups")  # never reported: retention deletes it first
    tidelog_clock.advance(days=8)
    sell(servers, "milk", 3)
    assert report(servers) == {"milk": 3}


def test_a_report_that_fails_is_made_again(servers, tidelog_faults):
    """The offset is committed after the work: nothing is reported as done that is not."""
    sell(servers, "tea")
    fault = tidelog_faults.on("OffsetCommit", group="report").once()
    fault = fault.error("GROUP_AUTHORIZATION_FAILED")
    with pytest.raises(Exception, match="GroupAuthorizationFailed"):
        report(servers)
    assert report(servers) == {"tea": 1}
    assert fault.wait(1).calls == 2
