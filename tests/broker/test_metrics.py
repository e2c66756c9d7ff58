"""What a broker counts, and the endpoint that tells it to Prometheus."""

from __future__ import annotations

import asyncio
import urllib.request

import pytest

import tidelog
from support.clusters import run
from tidelog.embedded.cluster_settings import metrics_listener
from tidelog.embedded.ports import Ports
from tidelog.metrics.meters import BROKER_TOPIC_METRICS, Meters, Name, Sample
from tidelog.metrics.prometheus import PrometheusEndpoint, families, metric_name
from tidelog.runtime import system_runtime
from tidelog.server import StartError


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
