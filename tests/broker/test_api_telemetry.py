"""GetTelemetrySubscriptions and PushTelemetry: answers, limits, and librdkafka's pushes."""

from __future__ import annotations

import asyncio
import inspect
import urllib.request
from types import SimpleNamespace
from typing import Any

from confluent_kafka import Producer

import tidelog
from support.clusters import librdkafka, run
from support.handler_calls import RecordingPeer, make_context
from support.metadata import CountedRng, FixedClock, StepExecutor
from support.otlp import counter, gauge, metrics_data
from support.wire_client import WireClient
from tidelog.api import telemetry
from tidelog.api.telemetry import TelemetryApi
from tidelog.embedded.ports import Ports
from tidelog.metrics.meters import Meters
from tidelog.metrics.prometheus import families
from tidelog.runtime import system_runtime
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.compression import Codec, compress
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster import ApiVersionsRequest
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest
from tidelog_protocol.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    PushTelemetryRequest,
)

GET, PUSH = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY
DATA = metrics_data(gauge("a.b", 2.5, topic="t"), counter("c", 3.0))
BYTES_MAX = 1000
CLIENT_METRICS = 16


class Broker:
    """The handlers of a broker with one subscription, asked over the codecs."""

    def __init__(self) -> None:
        self.clock = FixedClock()
        self.executor = StepExecutor()
        self.meters = Meters()
        self.image = SimpleNamespace(
            client_metrics={"s": {"metrics": "a.,c", "interval.ms": "1000"}}
        )
        runtime: Any = SimpleNamespace(clock=self.clock, rng=CountedRng(), executor=self.executor)
        metadata: Any = SimpleNamespace(image=self.image)
        self.api = TelemetryApi(metadata, runtime, self.meters, bytes_max=BYTES_MAX)
        self.peer = RecordingPeer()

    async def call(self, key: ApiKey, request: Any) -> Any:
        codecs = API[key].request_codec(0), API[key].response_codec(0)
        asked = codecs[0].decode(codecs[0].encode(request))
        answer = self.api.handlers()[key](make_context(key, 0, peer=self.peer), asked)
        response = await answer if inspect.isawaitable(answer) else answer
        return codecs[1].decode(codecs[1].encode(response))

    async def get(self, instance_id: bytes = bytes(16)) -> Any:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)
        return await self.call(GET, request)

    async def push(self, known: Any, metrics: bytes = DATA, codec: int = 0, **more: Any) -> int:
        request = PushTelemetryRequest(
            client_instance_id=known.client_instance_id,
            subscription_id=known.subscription_id,
            compression_type=codec,
            metrics=metrics,
            **more,
        )
        code: int = (await self.call(PUSH, request)).error_code
        return code

    def shown(self) -> dict[str, float]:
        """The series that an endpoint shows, without the labels of the client."""
        found = {}
        for family in families(self.meters):
            for one in family.samples:
                labels = {name: text for name, text in one.labels.items() if "client" not in name}
                found[one.name + (str(labels) if labels else "")] = one.value
        return found

    def counted(self, name: str) -> float:
        return self.shown()[f"kafka_server_client_metrics_{name}"]


def test_a_client_learns_what_to_push() -> None:
    async def test() -> None:
        response = await Broker().get()
        assert response.error_code == ErrorCode.NONE
        assert response.client_instance_id == (2).to_bytes(16, "big")
        assert response.requested_metrics == ["a.", "c"]
        assert response.accepted_compression_types == [4, 3, 1, 2]
        assert (response.push_interval_ms, response.telemetry_max_bytes) == (1000, BYTES_MAX)
        assert response.delta_temporality

    run(test)


def test_what_a_client_pushes_is_served_with_its_labels() -> None:
    async def test() -> None:
        broker = Broker()
        known = await broker.get()
        assert await broker.push(known, compress(Codec.ZSTD, DATA), Codec.ZSTD) == ErrorCode.NONE
        broker.clock.wall += 1000
        assert await broker.push(known) == ErrorCode.NONE
        shown = broker.shown()
        assert shown["a_b{'topic': 't'}"] == 2.5
        assert shown["c_total"] == 6
        assert broker.counted("plugin_export_count_total") == 2
        assert broker.counted("instance_count") == 1
        (sample,) = next(one for one in families(broker.meters) if one.name == "a_b").samples
        assert sample.labels == {
            "topic": "t",
            "client_id": "test",
            "client_instance_id": "AAAAAAAAAAAAAAAAAAAAAg",
            "client_software_name": "unknown",
        }

    run(test)


def test_an_instance_ends_with_its_connection_and_its_series_later() -> None:
    async def test() -> None:
        broker = Broker()
        await broker.push(await broker.get())
        (closed,) = broker.peer.callbacks
        closed()
        assert broker.counted("instance_count") == 0
        assert broker.shown()["c_total"] == 3
        broker.clock.wall += 60_001
        assert "c_total" not in broker.shown()

    run(test)


def test_no_client_changes_what_the_broker_says_of_itself() -> None:
    async def test() -> None:
        broker = Broker()
        count = "kafka.server.client.metrics.plugin.export.count"
        data = metrics_data(counter(count, 99.0), gauge(count, 99.0), gauge("own", 1.0))
        assert await broker.push(await broker.get(), data) == ErrorCode.NONE
        assert broker.counted("plugin_export_count_total") == 1
        assert broker.shown()["own"] == 1
        assert 99 not in broker.shown().values()

    run(test)


def test_refused_requests() -> None:
    async def test() -> None:
        broker = Broker()
        known = await broker.get()
        known.client_instance_id = bytes(15) + b"\x01"
        assert await broker.push(known) == ErrorCode.INVALID_REQUEST
        known = await broker.get()
        throttled = await broker.get(known.client_instance_id)
        assert throttled.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert throttled.client_instance_id == bytes(16)
        assert await broker.push(known, bytes(BYTES_MAX + 1)) == ErrorCode.TELEMETRY_TOO_LARGE
        assert await broker.push(known) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert broker.counted("throttle_count_total") == 2
        broker.clock.wall += 1000
        known.subscription_id += 1
        assert await broker.push(known) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        assert broker.counted("unknown_subscription_request_count_total") == 1
        assert broker.executor.runs == 0

    run(test)


def test_bytes_that_are_no_metrics_are_invalid_records() -> None:
    async def test() -> None:
        broker = Broker()
        for data, codec in ((b"\x0b", 0), (DATA, Codec.GZIP), (compress(4, bytes(1001)), 4)):
            assert await broker.push(await broker.get(), data, codec) == ErrorCode.INVALID_RECORD
        assert broker.counted("plugin_error_count_total") == 3
        assert await broker.push(await broker.get(), b"") == ErrorCode.NONE

    run(test)


def test_only_so_many_pushes_wait_to_be_decoded(monkeypatch: Any) -> None:
    monkeypatch.setattr(telemetry, "WAITING_MAX", 1)

    async def test() -> None:
        broker = Broker()
        broker.executor.hold()
        first = asyncio.create_task(broker.push(await broker.get()))
        await asyncio.sleep(0)
        second = await broker.get()
        assert await broker.push(second) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        broker.executor.release()
        assert await first == ErrorCode.NONE
        broker.clock.wall += 1000
        assert await broker.push(second) == ErrorCode.NONE

    run(test)


# -- a broker --------------------------------------------------------------------------------------


async def subscribe(bootstrap: str, name: str, **settings: str) -> None:
    """Set a subscription of clients' metrics."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=CLIENT_METRICS,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=key.replace("_", "."), config_operation=0, value=value
            )
            for key, value in settings.items()
        ],
    )
    async with await WireClient.connect(bootstrap) as client:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (result,) = (await client.ask(request, 1)).responses
        assert (result.error_code, result.error_message) == (0, None)


async def listed(bootstrap: str) -> set[int]:
    async with await WireClient.connect(bootstrap) as client:
        return {one.api_key for one in (await client.ask(ApiVersionsRequest(), 0)).api_keys}


def test_librdkafka_pushes_to_a_broker_with_an_endpoint() -> None:
    async def test() -> None:
        ports = Ports()
        (port,) = await ports.take(system_runtime(), "127.0.0.1", 1)
        ports.release()

        def scrape() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                return answer.read().decode()

        settings = {"metrics.prometheus.listener": f"127.0.0.1:{port}"}
        async with tidelog.Cluster(settings) as cluster:
            bootstrap = cluster.bootstrap_servers
            assert {GET, PUSH} <= await listed(bootstrap)
            await subscribe(
                bootstrap, "s", metrics="*", interval_ms="100", match="client_id=app-[0-9]+"
            )
            producer = Producer(librdkafka(bootstrap, client_id="app-7"))
            producer.produce("t", b"value")
            await asyncio.to_thread(producer.flush, 30)
            series = 'org_apache_kafka_producer_connection_creation_total{client_id="app-7"'
            seen = ""
            for _ in range(600):
                if series in (seen := await asyncio.to_thread(scrape)):
                    break
                await asyncio.sleep(0.05)
            assert series in seen
            assert 'client_software_name="confluent-kafka-python"' in seen

    run(test)


def test_a_broker_without_an_endpoint_lists_neither() -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            assert not {GET, PUSH} & await listed(cluster.bootstrap_servers)

    run(test)
