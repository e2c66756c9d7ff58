"""The pytest kit's fixtures and helpers say the same of tidelog and, nightly, of Apache Kafka.

So the tests of users do, which `--tidelog-bootstrap` runs against another Kafka.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compat.jvm import require_jars
from compat.reference import ApacheKafka
from tidelog_bench.peers.tiered import EAGER, kafkas_tier

pytestmark = [pytest.mark.compat, pytest.mark.timeout(600)]

HELPERS = """
import time

import pytest
from confluent_kafka import Consumer, Producer

from tidelog.testing.records import (
    TopicRecord, assert_records, produce, produce_json_lines, read_all,
)
from tidelog.testing.waits import wait_for_lag, wait_until_tiered

pytestmark = pytest.mark.tidelog(tiered=True)


def test_records(tidelog_bootstrap, tidelog_topic_factory):
    topic = tidelog_topic_factory(partitions=3, config={"cleanup.policy": "compact"})
    full = TopicRecord(b"2", b"k", (("h", b"x"), ("n", None)), partition=2, timestamp=17)
    placed = produce(tidelog_bootstrap, topic, [TopicRecord(b"1", b"k"), full])
    assert read_all(tidelog_bootstrap, topic) == placed
    assert_records(tidelog_bootstrap, topic, [full, TopicRecord(b"1", b"k")], in_order=False)
    with pytest.raises(AssertionError, match="record 0 is"):
        assert_records(tidelog_bootstrap, topic, [full, full])


def test_json_lines(tidelog_bootstrap, tidelog_topic):
    lines = ['{"value": {"id": 1}, "key": "a", "headers": {"h": "x"}}', '{"value": null}']
    assert produce_json_lines(tidelog_bootstrap, lines, tidelog_topic) == 2
    first = TopicRecord(b'{"id": 1}', b"a", (("h", b"x"),))
    assert_records(tidelog_bootstrap, tidelog_topic, [first, None], timeout_s=60)


def test_transactions(tidelog_bootstrap, tidelog_topic, tidelog_transactional_id):
    options = {"bootstrap.servers": tidelog_bootstrap, "transactional.id": tidelog_transactional_id}
    producer = Producer(options)
    producer.init_transactions(30)
    for value, end in (
        (b"kept", producer.commit_transaction), (b"gone", producer.abort_transaction)
    ):
        producer.begin_transaction()
        producer.produce(tidelog_topic, value)
        producer.flush(30)
        end(30)
    assert_records(tidelog_bootstrap, tidelog_topic, [b"kept"], timeout_s=60)
    raw = read_all(tidelog_bootstrap, tidelog_topic, committed=False, control=True)
    assert [one.control or one.value for one in raw] == [b"kept", "COMMIT", b"gone", "ABORT"]


def test_lag(tidelog_bootstrap, tidelog_topic, tidelog_group_id):
    produce(tidelog_bootstrap, tidelog_topic, ["1", "2", "3"])
    with pytest.raises(TimeoutError, match="has lag 3"):
        wait_for_lag(tidelog_bootstrap, tidelog_group_id, tidelog_topic, timeout_s=0)
    options = {"bootstrap.servers": tidelog_bootstrap, "group.id": tidelog_group_id}
    consumer = Consumer({**options, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([tidelog_topic])
    _, second = consumer.consume(2, 60)
    consumer.commit(second, asynchronous=False)
    consumer.close()
    assert wait_for_lag(tidelog_bootstrap, tidelog_group_id, tidelog_topic, 1) == 1


def test_tier(tidelog_bootstrap, tidelog_topic_factory):
    config = {"remote.storage.enable": True, "segment.ms": 100, "retention.ms": 3600000}
    topic = tidelog_topic_factory(config=config)
    with pytest.raises(TimeoutError, match="offset 0 is not in the remote tier"):
        wait_until_tiered(tidelog_bootstrap, topic, 0, timeout_s=0)
    produce(tidelog_bootstrap, topic, ["1"])
    time.sleep(0.2)
    produce(tidelog_bootstrap, topic, ["2"])  # it seals the segment before
    wait_until_tiered(tidelog_bootstrap, topic, 0, timeout_s=60)


def test_errors(tidelog_bootstrap):
    from tidelog import ClusterError

    with pytest.raises(ClusterError, match="topic absent: UNKNOWN_TOPIC_OR_PARTITION"):
        read_all(tidelog_bootstrap, "absent")
"""
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "order-service"


def run(folder: Path, *more: str) -> str:
    """Run the tests of a folder as a user does; return the last line."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    ended = subprocess.run(
        [*command, *more], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.splitlines()[-1]


def test_helpers_with_tidelog(tmp_path: Path) -> None:
    (tmp_path / "test_helpers.py").write_text(HELPERS)
    assert run(tmp_path).startswith("6 passed")


@pytest.mark.reference
@pytest.mark.nightly
def test_helpers_and_the_demo_suite_with_apache_kafka(tmp_path: Path) -> None:
    require_jars()
    tier = {**kafkas_tier(tmp_path / "kafka"), **EAGER}
    broker = ApacheKafka(tmp_path / "broker", {**tier, "auto.create.topics.enable": "false"})
    tests, demo = tmp_path / "tests", tmp_path / "demo"
    tests.mkdir()
    (tests / "test_helpers.py").write_text(HELPERS)
    shutil.copytree(EXAMPLE, demo)
    broker.start()
    try:
        other = f"--tidelog-bootstrap={broker.bootstrap}"
        assert run(tests, other).startswith("6 passed")
        assert run(demo, other).startswith("10 passed, 22 skipped")
    finally:
        broker.stop()
