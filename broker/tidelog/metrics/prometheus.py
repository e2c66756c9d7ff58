"""The broker's meters as an HTTP endpoint for Prometheus.

Names are those that the JMX exporter's usual rules for Kafka make of its MBeans, so that existing
dashboards fit: `kafka.server:type=BrokerTopicMetrics,name=RemoteFetchBytesPerSec,topic=t` is
`kafka_server_brokertopicmetrics_remotefetchbytes_total{topic="t"}`. The application is
prometheus-client's, on threads of its own; the values are read on the broker's loop, which has a
turn behind each meter of thousands of partitions.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from functools import partial
from socketserver import ThreadingMixIn
from threading import Thread  # noqa: TID251 - the servers of the standard library block
from typing import TYPE_CHECKING, Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from tidelog.metrics.meters import Family, Labels, Meters, Name, Sample, Timer

    IsHidden = Callable[[str], bool] | None

__all__ = ["PrometheusEndpoint"]

READ_SECONDS_MAX = 5.0  # a loop that is busy for longer returns no values
CONNECTIONS_MAX = 16
SILENT_SECONDS_MAX = 10.0
WIDTH_AT_ONCE = 1000  # samples
_QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)  # Kafka's


class PrometheusEndpoint:
    """The endpoint of one broker: from its construction until `stop`."""

    def __init__(self, meters: Meters, host: str, port: int, is_hidden: IsHidden = None) -> None:
        """Listen; `port` 0 takes a free one. OSError when the address is taken. The series of
        topics that are hidden are left out."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_LoopCollector(meters, asyncio.get_running_loop(), is_hidden))
        self._server = _Server(host, port)
        self._server.set_app(make_wsgi_app(registry))
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is bound."""
        return int(self._server.server_port)

    async def stop(self) -> None:
        """Stop serving. The loop must still run, because a pending response may need it."""
        await asyncio.to_thread(self._server.shutdown)
        self._server.server_close()
        await asyncio.to_thread(self._thread.join)


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, up to a limit. Above it the oldest connection is cut off."""

    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = infos[0][0]
        self._open: dict[Any, None] = {}  # sockets of connections, the oldest first
        super().__init__((host, port), _RequestHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection's request on a thread of its own."""
        if len(self._open) >= CONNECTIONS_MAX:
            for oldest in list(self._open)[:1]:  # other threads remove those that end
                self._open.pop(oldest, None)
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
        self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection; called on its thread at its end."""
        self._open.pop(request, None)
        super().shutdown_request(request)


class _RequestHandler(WSGIRequestHandler):
    """Answers one request without a line in the log; a silent client is dropped."""

    timeout = SILENT_SECONDS_MAX

    def handle(self) -> None:
        """Read the request and answer it."""
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, *_args: object) -> None:
        """Log nothing."""


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

        async def read() -> list[_Reading]:
            readings = []
            for reading in _readings(self._meters, self._is_hidden):
                readings.append(reading)
                if reading.width > WIDTH_AT_ONCE:
                    await asyncio.sleep(0)
            return readings

        reading = asyncio.run_coroutine_threadsafe(read(), self._loop)
        return [each.metric() for each in reading.result(READ_SECONDS_MAX)]


class _Reading(NamedTuple):
    """What was read of a meter. Any thread may make the metric of it."""

    metric: Callable[[], Metric]
    width: int


def families(meters: Meters, is_hidden: IsHidden = None) -> Iterable[Metric]:
    """Return Prometheus' metric families of these meters, without topics that are hidden."""
    return (reading.metric() for reading in _readings(meters, is_hidden))


def _readings(meters: Meters, is_hidden: IsHidden) -> Iterator[_Reading]:
    def shown(samples: list[Sample]) -> list[Sample]:
        if is_hidden is None:
            return samples
        return [one for one in samples if not is_hidden(dict(one.labels).get("topic", ""))]

    own: set[str] = set()
    for name, samples in meters.counts():
        own.add(metric_name(name))
        made = partial(_filled, CounterMetricFamily, name, shown(samples))
        yield _Reading(made, len(samples))
    for name, samples in meters.gauges():
        own.add(metric_name(name))
        made = partial(_filled, GaugeMetricFamily, name, shown(samples))
        yield _Reading(made, len(samples))
    for name, timers in meters.timers():
        own.add(metric_name(name))
        yield _Reading(partial(_same, _summary(name, timers)), 0)
    for read in meters.pushed:
        for pushed in read():
            # No client may spoil what the broker says of itself.
            if own.isdisjoint((pushed.name, pushed.name.removesuffix("_total"))):
                yield _Reading(partial(_same, _pushed(pushed)), 0)


def _same(metric: Metric) -> Metric:
    return metric


def _pushed(family: Family) -> Metric:
    text = "Pushed by clients (KIP-714)."
    if family.is_counter:
        return _with(CounterMetricFamily(family.name, text), family.samples)
    return _with(GaugeMetricFamily(family.name, text), family.samples)


def metric_name(name: Name) -> str:
    """Return an MBean's name for Prometheus, without `_total`."""
    last = name.name.removesuffix("PerSec")
    return "_".join((*name.domain.split("."), name.kind, last)).lower().replace("-", "_")


def _filled(
    family: type[CounterMetricFamily | GaugeMetricFamily], name: Name, samples: list[Sample]
) -> Metric:
    return _with(family(metric_name(name), str(name)), samples)


def _with(made: CounterMetricFamily | GaugeMetricFamily, samples: list[Sample]) -> Metric:
    suffix = "_total" if isinstance(made, CounterMetricFamily) else ""
    for sample in samples:
        made.add_sample(made.name + suffix, dict(sample.labels), sample.value)
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
