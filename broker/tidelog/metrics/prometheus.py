"""The broker's meters as an HTTP endpoint for Prometheus.

Names are those that the JMX exporter's usual rules for Kafka make of its MBeans, so that existing
dashboards fit: `kafka.server:type=BrokerTopicMetrics,name=RemoteFetchBytesPerSec,topic=t` is
`kafka_server_brokertopicmetrics_remotefetchbytes_total{topic="t"}`. The server is
prometheus-client's, on its own thread; the values are read on the broker's loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.metrics_core import Metric

    from tidelog.metrics.meters import Labels, Meters, Name, Sample, Timer

    IsHidden = Callable[[str], bool] | None

__all__ = ["PrometheusEndpoint"]

READ_SECONDS_MAX = 5.0  # a loop that is busy for longer returns no values
_QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)  # Kafka's


class PrometheusEndpoint:
    """The endpoint of one broker: from its construction until `stop`."""

    def __init__(self, meters: Meters, host: str, port: int, is_hidden: IsHidden = None) -> None:
        """Listen; `port` 0 takes a free one. OSError when the address is taken. The series of
        topics that are hidden are left out."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_LoopCollector(meters, asyncio.get_running_loop(), is_hidden))
        self._server, self._thread = start_http_server(port, host, registry)

    @property
    def port(self) -> int:
        """The port that is bound."""
        return int(self._server.server_port)

    async def stop(self) -> None:
        """Stop serving. The loop must still run, because a pending response may need it."""
        await asyncio.to_thread(self._server.shutdown)
        self._server.server_close()
        await asyncio.to_thread(self._thread.join)


class _LoopCollector(Collector):
    """Reads the meters on the loop that writes them, from any thread."""

    def __init__(
        self, meters: Meters, loop: asyncio.AbstractEventLoop, is_hidden: IsHidden
    ) -> None:
        self._meters = meters
        self._loop = loop
        self._is_hidden = is_hidden

    def collect(self) -> Iterable[Metric]:
        """Return all meters."""

        async def read() -> list[Metric]:
            return list(families(self._meters, self._is_hidden))

        return asyncio.run_coroutine_threadsafe(read(), self._loop).result(READ_SECONDS_MAX)


def families(meters: Meters, is_hidden: IsHidden = None) -> Iterable[Metric]:
    """Return Prometheus' metric families of these meters, without topics that are hidden."""

    def shown(samples: list[Sample]) -> list[Sample]:
        if is_hidden is None:
            return samples
        return [one for one in samples if not is_hidden(dict(one.labels).get("topic", ""))]

    for name, samples in meters.counts():
        yield _filled(CounterMetricFamily, name, shown(samples))
    for name, samples in meters.gauges():
        yield _filled(GaugeMetricFamily, name, shown(samples))
    for name, timers in meters.timers():
        yield _summary(name, timers)


def metric_name(name: Name) -> str:
    """Return an MBean's name for Prometheus, without `_total`."""
    last = name.name.removesuffix("PerSec")
    return "_".join((*name.domain.split("."), name.kind, last)).lower().replace("-", "_")


def _filled(
    family: type[CounterMetricFamily | GaugeMetricFamily], name: Name, samples: list[Sample]
) -> Metric:
    made = family(metric_name(name), str(name))
    for sample in samples:
        made.add_sample(
            made.name + ("_total" if family is CounterMetricFamily else ""),
            dict(sample.labels),
            sample.value,
        )
    return made


def _summary(name: Name, timers: list[tuple[Labels, Timer]]) -> Metric:
    made = SummaryMetricFamily(metric_name(name), str(name))
    for labels, timer in timers:
        own = dict(labels)
        made.add_sample(made.name + "_count", own, timer.count)
        made.add_sample(made.name + "_sum", own, timer.total_ms)
        for part in _QUANTILES:
            made.add_sample(made.name, {**own, "quantile": str(part)}, timer.quantile_ms(part))
    return made
