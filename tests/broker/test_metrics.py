"""What a broker counts, and the endpoint that tells it to Prometheus."""

from __future__ import annotations

import asyncio
import socket
import threading
import urllib.request
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

import tidelog
from support.clusters import run
from tidelog.cluster.metadata.image import is_of_the_brokers
from tidelog.embedded.cluster_settings import metrics_listener
from tidelog.embedded.ports import Ports
from tidelog.metrics.meters import BROKER_TOPIC_METRICS, DataPathCounts, Meters, Name, Sample, Timer
from tidelog.metrics.prometheus import CONNECTIONS_MAX, PrometheusEndpoint, families, metric_name
from tidelog.runtime import system_runtime
from tidelog.server import StartError

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_mark_counts_for_its_topic_and_for_all() -> None:
    meters = Meters()
    name = Name(*BROKER_TOPIC_METRICS, "RemoteFetchBytesPerSec")
    meters.mark_topic(name.name, "a", 5)
    meters.mark_topic(name.name, "b", 7)
    meters.mark(name, 1)
    assert meters.count(name) == 13
    assert meters.count(name, topic="a") == 5
    assert list(meters.counts()) == [
        (name, [Sample((), 13), Sample((("topic", "a"),), 5), Sample((("topic", "b"),), 7)])
    ]
    meters.forget_topic("a")
    assert meters.count(name, topic="a") == 0
    assert meters.count(name) == 13


def test_declared_metrics_are_shown_before_the_first_count() -> None:
    meters = Meters()
    name = Name(*BROKER_TOPIC_METRICS, "RemoteCopyErrorsPerSec")
    meters.declare([name])
    assert list(meters.counts()) == [(name, [Sample((), 0)])]
    meters.mark(name, topic="t", partition=2)
    meters.declare([name])
    partition = (("partition", "2"), ("topic", "t"))
    assert list(meters.counts()) == [(name, [Sample((), 1), Sample(partition, 1)])]
    meters.forget_topic("t")
    assert list(meters.counts()) == [(name, [Sample((), 1)])]


def test_a_gauge_may_have_several_sources() -> None:
    meters = Meters()
    name = Name("kafka.server", "DelayedOperationPurgatory", "PurgatorySize")
    meters.gauge(name, lambda: [Sample((("delayedOperation", "Produce"),), 2)])
    meters.gauge(name, lambda: [Sample((("delayedOperation", "Fetch"),), 1)])
    (found,) = meters.gauges()
    assert found == (
        name,
        [
            Sample((("delayedOperation", "Fetch"),), 1),
            Sample((("delayedOperation", "Produce"),), 2),
        ],
    )


def test_a_timer_has_the_number_and_duration_of_calls() -> None:
    meters = Meters()
    timer = meters.timer(Name("kafka.log.remote", "RemoteLogManager", "RateAndTimeMs"))
    assert timer.quantile_ms(0.5) == 0
    for took_ms in range(1, 101):
        timer.record(took_ms / 1000)
    assert (timer.count, round(timer.total_ms)) == (100, 5050)
    assert round(timer.quantile_ms(0.5)) == 51
    assert round(timer.quantile_ms(0.999)) == 100
    twice = Timer.merged([timer, timer])
    assert (twice.count, len(twice.recent_ms), round(twice.total_ms)) == (200, 200, 10100)
    summary = list(families(meters))[-1]
    assert summary.name == "kafka_log_remote_remotelogmanager_rateandtimems"
    told = {(sample.name, *sample.labels.values()): sample.value for sample in summary.samples}
    assert told[(f"{summary.name}_count",)] == 100
    assert round(told[(summary.name, "0.5")]) == 51


def test_names_are_those_of_the_usual_jmx_rules() -> None:
    assert (
        metric_name(Name("kafka.server", "BrokerTopicMetrics", "RemoteCopyLagBytes"))
        == "kafka_server_brokertopicmetrics_remotecopylagbytes"
    )
    assert (
        metric_name(Name("kafka.server", "BrokerTopicMetrics", "RemoteFetchErrorsPerSec"))
        == "kafka_server_brokertopicmetrics_remotefetcherrors"
    )


def get(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return answer.read().decode()


def test_the_endpoint_serves_counts_and_current_gauges() -> None:
    async def test():
        meters = Meters()
        size = [1.0]
        meters.gauge(
            Name("kafka.log", "Log", "Size"),
            lambda: [Sample((("topic", "t"), ("partition", "0")), size[0])],
        )
        endpoint = PrometheusEndpoint(meters, "127.0.0.1", 0)
        try:
            first = await asyncio.to_thread(get, endpoint.port)
            meters.mark_topic("RemoteCopyBytesPerSec", "t", 42)
            size[0] = 2.0
            second = await asyncio.to_thread(get, endpoint.port)
        finally:
            await endpoint.stop()
        assert 'kafka_log_log_size{partition="0",topic="t"} 1.0' in first
        assert 'kafka_log_log_size{partition="0",topic="t"} 2.0' in second
        assert 'kafka_server_brokertopicmetrics_remotecopybytes_total{topic="t"} 42.0' in second
        assert "kafka_server_brokertopicmetrics_remotecopybytes_total 42.0" in second

    run(test)


def test_silent_connections_do_not_take_a_thread_each() -> None:
    """Of 200 that said nothing each had a thread, for as long as it lived."""

    async def test():
        meters = Meters()
        meters.mark_topic("RemoteCopyBytesPerSec", "t", 42)
        endpoint = PrometheusEndpoint(meters, "127.0.0.1", 0)
        before = threading.active_count()
        silent = [
            socket.create_connection(("127.0.0.1", endpoint.port))
            for _ in range(5 * CONNECTIONS_MAX)
        ]
        try:
            text = await asyncio.to_thread(get, endpoint.port)  # after all of these
            assert "kafka_server" in text
            for cut in silent[: 4 * CONNECTIONS_MAX]:
                cut.settimeout(30)
                assert await asyncio.to_thread(cut.recv, 1) == b""
            assert len(endpoint._server._open) <= CONNECTIONS_MAX
            assert threading.active_count() - before <= 2 * CONNECTIONS_MAX
        finally:
            for each in silent:
                each.close()
            await endpoint.stop()

    run(test)


def test_a_broker_has_an_endpoint_when_it_is_asked_to() -> None:
    async def test():
        ports = Ports()
        (port,) = await ports.take(system_runtime(), "127.0.0.1", 1)
        ports.release()
        settings = {"metrics.prometheus.listener": f"127.0.0.1:{port}"}
        async with tidelog.Cluster(settings):
            assert isinstance(await asyncio.to_thread(get, port), str)
        with pytest.raises(OSError, match="refused"):
            await asyncio.to_thread(get, port)

    run(test)


def test_each_broker_of_several_has_a_port_of_its_own() -> None:
    listener = "metrics.prometheus.listener"
    settings = {listener: "127.0.0.1:9404"}
    assert [metrics_listener(settings, index)[listener] for index in range(3)] == [
        "127.0.0.1:9404",
        "127.0.0.1:9405",
        "127.0.0.1:9406",
    ]
    assert metrics_listener({listener: "127.0.0.1:0"}, 1) == {}
    assert metrics_listener({}, 1) == {}


@pytest.mark.parametrize("address", ["9404", "host:port", "192.0.2.1:0"])
def test_an_address_that_cannot_be_is_refused_by_its_key(address: str) -> None:
    async def test():
        with pytest.raises(StartError, match=r"^metrics\.prometheus\.listener: "):
            await tidelog.Cluster({"metrics.prometheus.listener": address}).start()

    run(test)


def values_of(text: str) -> dict[str, float]:
    """The series of an answer, with their labels as they are written."""
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _, value in lines}


def test_a_cluster_shows_records_requests_replicas_and_lag_by_kafkas_names() -> None:
    async def test():
        ports = Ports()
        first, *_ = await ports.take(system_runtime(), "127.0.0.1", 1)
        ports.release()
        settings = {
            "metrics.prometheus.listener": f"127.0.0.1:{first}",
            "group.initial.rebalance.delay.ms": 0,
        }
        async with tidelog.Cluster(settings) as cluster:
            servers = cluster.bootstrap_servers
            await cluster.create_topic("t")
            async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
                for _ in range(3):
                    await producer.send_and_wait("t", b"value")
            options = {"bootstrap_servers": servers, "group_id": "g", "enable_auto_commit": False}
            async with AIOKafkaConsumer("t", auto_offset_reset="earliest", **options) as consumer:
                await consumer.getone()
                await consumer.commit({TopicPartition("t", 0): 1})
            found = values_of(await asyncio.to_thread(get, first))
        topic = "kafka_server_brokertopicmetrics_"
        assert found[topic + 'messagesin_total{topic="t"}'] == 3
        assert found[topic + "messagesin_total"] == 3
        assert (
            found[topic + 'bytesin_total{topic="t"}']
            == found['kafka_log_log_size{partition="0",topic="t"}']
        )
        requests = "kafka_network_requestmetrics_"
        assert found[requests + 'totaltimems_count{request="Produce"}'] == 3
        assert any(one.startswith(requests + 'requests_total{request="Fetch"') for one in found)
        for name, value in (("insyncreplicascount", 1), ("underreplicated", 0)):
            assert found[f'kafka_cluster_partition_{name}{{partition="0",topic="t"}}'] == value
        for name in ("underreplicatedpartitions", "isrshrinks_total", "isrexpands_total"):
            assert found[f"kafka_server_replicamanager_{name}"] == 0
        controller = {"activecontroller": 1, "activebroker": 1, "fencedbroker": 0, "globaltopic": 2}
        controller |= {"offlinepartitions": 0, "preferredreplicaimbalance": 0}
        for name, value in controller.items():
            assert found[f"kafka_controller_kafkacontroller_{name}count"] == value
        assert found["kafka_coordinator_group_groupmetadatamanager_numgroups"] == 1
        groups = "kafka_server_group_coordinator_metrics_"
        for protocol, count in (("classic", 1), ("consumer", 0), ("share", 0), ("streams", 0)):
            assert found[f'{groups}group_count{{protocol="{protocol}"}}'] == count
        for protocol in ("consumer", "share", "streams"):
            assert found[f'{groups}{protocol}_group_count{{state="Stable"}}'] == 0
        group = '{consumergroup="g",partition="0",topic="t"}'
        assert found["kafka_consumergroup_current_offset" + group] == 1
        assert found["kafka_consumergroup_lag" + group] == 2
        assert not any("__consumer_offsets" in series for series in found)

    run(test)


def test_series_of_internal_topics_are_left_out_but_counted_in_totals() -> None:
    meters = Meters()
    counts = DataPathCounts(meters)
    counts.messages_in.by_topic["__consumer_offsets"] += 2
    counts.messages_in.by_topic["t"] += 1

    def told(is_hidden: Callable[[str], bool] | None) -> dict[str, float]:
        return {
            sample.labels.get("topic", ""): sample.value
            for family in families(meters, is_hidden)
            for sample in family.samples
            if "messagesin" in sample.name
        }

    assert told(is_of_the_brokers) == {"": 3, "t": 1}
    assert told(None) == {"": 3, "t": 1, "__consumer_offsets": 2}
    counts.forget("t")
    assert told(None) == {"": 3, "__consumer_offsets": 2}
