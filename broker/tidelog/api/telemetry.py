"""GetTelemetrySubscriptions (71) and PushTelemetry (72): metrics that clients push (KIP-714).

Behaviour. A broker serves both only if it has a receiver, as in Kafka: here that is the endpoint
for Prometheus (`metrics.prometheus.listener`). A client gets an id, the prefixes of the metrics
that subscriptions want of it and the shortest of their intervals. What it pushes is decompressed
and decoded off the loop, within `telemetry.max.bytes`, and served by the endpoint with the client's
labels (`metrics/client_series.py`). Errors are Kafka's: THROTTLING_QUOTA_EXCEEDED before the
interval is over, UNKNOWN_SUBSCRIPTION_ID once the subscriptions have changed,
UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE, INVALID_REQUEST for a reserved id or a push
behind the last one, INVALID_RECORD for bytes that are no metrics.

Left out: histograms and summaries, which no client pushes. With too many pushes waiting to be
decoded, a further one gets THROTTLING_QUOTA_EXCEEDED; Kafka has no such limit.

Version notes. Both have version 0 only.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.metrics.client_instances import (
    RESERVED_IDS,
    ClientInstances,
    PushHead,
    id_text,
)
from tidelog.metrics.client_series import ClientSeries
from tidelog.metrics.meters import Name, Sample
from tidelog.metrics.otlp import decode
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.compression import Codec
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.messages.telemetry import (
    GetTelemetrySubscriptionsResponse,
    PushTelemetryResponse,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.metrics.client_instances import ClientInstance
    from tidelog.metrics.meters import Meters
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog.seams import Runtime
    from tidelog_protocol.messages.telemetry import (
        GetTelemetrySubscriptionsRequest,
        PushTelemetryRequest,
    )

__all__ = ["TelemetryApi"]

log = logging.getLogger("tidelog.api.telemetry")

WAITING_MAX = 32
_CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)  # in Kafka's order


def _name(name: str) -> Name:
    return Name("kafka.server", "client-metrics", name)


THROTTLES = _name("throttle-count")
UNKNOWN_SUBSCRIPTIONS = _name("unknown-subscription-request-count")
EXPORTS = _name("plugin-export-count")
EXPORT_ERRORS = _name("plugin-error-count")
DROPPED_POINTS = _name("dropped-point-count")  # tidelog's own


class TelemetryApi:
    """Handlers of clients' metrics, and their receiver."""

    def __init__(
        self, metadata: MetadataLog, runtime: Runtime, meters: Meters, *, bytes_max: int
    ) -> None:
        """`bytes_max` is telemetry.max.bytes."""
        self._clock = runtime.clock
        self._executor = runtime.executor
        self._meters = meters
        self._bytes_max = bytes_max
        self._waiting = 0
        self._instances = ClientInstances(
            lambda: metadata.image.client_metrics, runtime.rng.uuid, log.warning
        )
        self._series = ClientSeries(runtime.clock.monotonic)
        meters.declare([THROTTLES, UNKNOWN_SUBSCRIPTIONS, EXPORTS, EXPORT_ERRORS, DROPPED_POINTS])
        meters.gauge(
            _name("instance-count"), lambda: [Sample((), self._instances.count(self._now_ms()))]
        )
        meters.pushed.append(self._series.families)

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: self.get_subscriptions,
            ApiKey.PUSH_TELEMETRY: self.push,
        }

    def get_subscriptions(
        self, context: RequestContext, request: GetTelemetrySubscriptionsRequest
    ) -> GetTelemetrySubscriptionsResponse:
        """Answer a GetTelemetrySubscriptions request."""
        given = request.client_instance_id
        instance_id = given if any(given) else self._instances.unused_id()
        now_ms = self._now_ms()
        instance = self._instance(context, instance_id, now_ms)
        code = instance.check_get(now_ms)
        if code is not ErrorCode.NONE:
            self._count(code)
            return GetTelemetrySubscriptionsResponse(error_code=code)
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=list(_CODECS),
            push_interval_ms=instance.wanted.interval_ms,
            telemetry_max_bytes=self._bytes_max,
            delta_temporality=True,
            requested_metrics=list(instance.wanted.metrics),
        )

    def push(
        self, context: RequestContext, request: PushTelemetryRequest
    ) -> PushTelemetryResponse | Coroutine[Any, Any, PushTelemetryResponse]:
        """Check a PushTelemetry request, and take its metrics off the loop."""
        instance_id = request.client_instance_id
        if instance_id in RESERVED_IDS:
            return PushTelemetryResponse(error_code=ErrorCode.INVALID_REQUEST)
        head = PushHead(
            request.subscription_id,
            request.terminating,
            request.compression_type,
            len(request.metrics),
        )
        now_ms = self._now_ms()
        instance = self._instance(context, instance_id, now_ms)
        code = instance.check_push(head, self._bytes_max, now_ms)
        if code is ErrorCode.NONE and head.size and self._waiting >= WAITING_MAX:
            code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if code is not ErrorCode.NONE or not head.size:
            self._count(code)
            return PushTelemetryResponse(error_code=code)
        self._waiting += 1
        return self._export(instance, head.codec, bytes(request.metrics))

    async def _export(
        self, instance: ClientInstance, codec: int, data: bytes
    ) -> PushTelemetryResponse:
        """Decode metrics off the loop and keep them."""
        try:
            pushed = await self._executor.run(decode, codec, data, self._bytes_max)
        except ProtocolError as error:
            log.warning(
                "the metrics of client %s (%s) are dropped: %s",
                instance.attributes.get("client_id", ""),
                id_text(instance.instance_id),
                error,
            )
            self._meters.mark(EXPORT_ERRORS)
            instance.last_error = ErrorCode.INVALID_RECORD
            return PushTelemetryResponse(error_code=ErrorCode.INVALID_RECORD)
        finally:
            self._waiting -= 1
        attributes = instance.attributes
        labels = tuple(
            (name, attributes.get(name, ""))
            for name in ("client_id", "client_instance_id", "client_software_name")
        )
        dropped = pushed.dropped + self._series.take(
            instance.instance_id, labels, pushed.points, instance.kept_ms / 1000
        )
        self._meters.mark(EXPORTS)
        self._meters.mark(DROPPED_POINTS, dropped)
        return PushTelemetryResponse()

    def _instance(self, context: RequestContext, instance_id: bytes, now_ms: int) -> ClientInstance:
        peer = context.peer
        instance, is_new_connection = self._instances.instance(
            instance_id, _attributes(context, instance_id), peer, now_ms
        )
        if is_new_connection:
            peer.at_close(partial(self._instances.closed, peer))
        return instance

    def _now_ms(self) -> int:
        return round(1000 * self._clock.monotonic())

    def _count(self, code: ErrorCode) -> None:
        if code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            self._meters.mark(THROTTLES)
        elif code is ErrorCode.UNKNOWN_SUBSCRIPTION_ID:
            self._meters.mark(UNKNOWN_SUBSCRIPTIONS)


def _attributes(context: RequestContext, instance_id: bytes) -> dict[str, str]:
    """Return what the `match` of a subscription may name."""
    name, version = context.software
    attributes = {
        "client_instance_id": id_text(instance_id),
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": context.client_host,
        "client_source_port": str(context.client_port),
    }
    if context.client_id is not None:
        attributes["client_id"] = context.client_id
    return attributes
