"""Clients' metrics (KIP-714): Kafka's tool sets what to push, and the Java client pushes."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING

import pytest

from compat.brokers import Tidelog
from compat.eventually import eventually
from tidelog_bench.peers.address import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compat.jvm import Jvm

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]


@pytest.fixture
def metered(tmp_path: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """The address of a broker with an endpoint, and what reads that."""
    port = free_port()
    broker = Tidelog(tmp_path, {"metrics.prometheus.listener": f"127.0.0.1:{port}"})
    broker.start()

    def scrape() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return answer.read().decode()

    yield broker.bootstrap, scrape
    broker.stop()


def test_kafkas_tool_subscribes_and_the_java_client_pushes(
    java: Jvm, metered: tuple[str, Callable[[], str]], fresh: Callable[[str], str]
) -> None:
    bootstrap, scrape = metered

    def tool(*args: str) -> list[str]:
        result = java.tool("ClientMetricsCommand", "--bootstrap-server", bootstrap, *args)
        assert result.exit == 0, result
        return result.out.splitlines()

    metrics = "org.apache.kafka.consumer.connection,org.apache.kafka.consumer.fetch.manager"
    wanted = ["--metrics", metrics, "--interval", "100"]
    wanted += ["--match", "client_software_name=apache-kafka-java,client_source_port=[0-9]+"]
    altered = tool("--alter", "--name", "basic", *wanted)
    assert altered == ["Altered client metrics config for basic."]
    assert tool("--list") == ["basic"]
    head, *settings = tool("--describe", "--name", "basic")
    assert head == "Client metrics configs for basic are:"
    assert sorted(settings) == [
        "  interval.ms=100",
        "  match=client_software_name=apache-kafka-java,client_source_port=[0-9]+",
        f"  metrics={metrics}",
    ]

    topic, group = fresh("topic"), fresh("group")
    join = {"group": group, "topic": topic, "session_timeout_ms": 10000}
    java.call("join", bootstrap=bootstrap, member="pushes", **join)
    series = "org_apache_kafka_consumer_connection_creation_total{"
    seen = eventually(scrape, lambda text: series in text)
    java.call("leave", bootstrap=bootstrap, member="pushes")
    (line,) = [line for line in seen.splitlines() if line.startswith(series)]
    assert f'group_id="{group}"' in line
    assert 'client_software_name="apache-kafka-java"' in line
    assert float(line.rpartition(" ")[2]) >= 1

    assert tool("--delete", "--name", "basic") == ["Deleted client metrics config for basic."]
    assert tool("--list") == [""]
