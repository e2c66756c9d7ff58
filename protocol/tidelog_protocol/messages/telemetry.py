"""Tables of clients' metrics (KIP-714): GetTelemetrySubscriptions, PushTelemetry."""

from __future__ import annotations

from tidelog_protocol.schema import (
    Message,
    array,
    boolean,
    bytes_,
    int8,
    int16,
    int32,
    string,
    uuid,
)

__all__ = [
    "GetTelemetrySubscriptionsRequest",
    "GetTelemetrySubscriptionsResponse",
    "PushTelemetryRequest",
    "PushTelemetryResponse",
]


class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions="0", flexible="0+"):
    """Ask which metrics to push. Zero asks for an id of this client instance."""

    client_instance_id: bytes = uuid()


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions="0", flexible="0+"):
    """Prefixes of the metrics to push, and how. No prefix: push nothing; `*`: everything."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)


class PushTelemetryRequest(Message, api_key=72, versions="0", flexible="0+"):
    """A client's metrics: OpenTelemetry's MetricsData v1, compressed perhaps."""

    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = bytes_()


class PushTelemetryResponse(Message, api_key=72, versions="0", flexible="0+"):
    """Whether they were taken."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
