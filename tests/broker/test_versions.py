"""ApiVersions, beside what Apache Kafka 4.3.1 sent (`vectors/apiversions-*.hex`)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.handler_calls import make_context
from support.memory_transport import MemoryTransport
from support.wire_client import response_of
from tidelog.api.versions import VersionsApi
from tidelog.cluster.metadata.features import ELIGIBLE_FEATURE, initial_levels, supported_levels
from tidelog.cluster.metadata.image import ClusterImage
from tidelog.network.connections import Connections
from tidelog.network.dispatch import Dispatcher
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse

VECTORS = Path(__file__).parent / "vectors"
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"


def vector(name: str) -> tuple[bytes, bytes]:
    """Request and response frames, without their sizes."""
    lines = dict(
        line.split() for line in (VECTORS / f"apiversions-{name}.hex").read_text().splitlines()
    )
    return bytes.fromhex(lines["request"]), bytes.fromhex(lines["response"])


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


BETWEEN_BROKERS = {52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82}
"""Raft's APIs and the controller's, which no broker lists to its clients."""


NOT_SERVED = {71, 72}
"""The codec knows them, but a broker serves them only if asked to: clients' metrics."""
SERVED = sorted(API.keys() - BETWEEN_BROKERS - NOT_SERVED)


FEATURES = list(supported_levels())


def api() -> VersionsApi:
    levels = {**initial_levels(), ELIGIBLE_FEATURE: 1}
    image = ClusterImage(CLUSTER_ID, features=levels, offset=17)
    return VersionsApi(served=SERVED, cluster_id=CLUSTER_ID, node_id=1, image=lambda: image)


def answer(frame: bytes) -> bytes:
    """What a broker that serves all we have for clients answers."""

    async def ask() -> bytes:
        connections = Connections()
        connections.open(Dispatcher(api().handlers()))
        transport = MemoryTransport(connections.factory())
        transport.feed(framed(frame))
        connections.stop()
        return bytes(transport.received)

    return asyncio.run(ask())


@pytest.mark.parametrize("version", range(5))
def test_the_form_is_kafkas(version: int) -> None:
    """Kafka's answer with its own APIs and features replaced by ours is our answer."""
    request, response = vector(f"v{version}")
    _, message = response_of(ApiVersionsRequest(), version, response)
    ranges = {entry.api_key: entry for entry in message.api_keys}
    for entry in message.api_keys:
        if entry.api_key in API:
            entry.min_version = API[entry.api_key].advertised_min_version
            # Kafka 4.3; ours are those of 4.4
            assert entry.max_version <= API[entry.api_key].max_version
            entry.max_version = API[entry.api_key].max_version
    assert not ranges.keys() & BETWEEN_BROKERS
    message.api_keys = [ranges[key] for key in SERVED]
    for features in (message.supported_features, message.finalized_features):
        features[:] = [feature for feature in features if feature.name in FEATURES]
        features.sort(key=lambda feature: FEATURES.index(feature.name))  # Kafka's have no order
    if version >= 3:
        message.finalized_features_epoch = 17
    expected = API[18].response_codec(version).encode(message)
    assert answer(request) == framed(response[:4] + expected)


@pytest.mark.parametrize("name", ["v3-badname"])
def test_refusals_are_kafkas(name: str) -> None:
    request, response = vector(name)
    assert answer(request) == framed(response)


def test_an_unknown_version_is_answered_as_kafka_does() -> None:
    request, response = vector("v99")
    ours = answer(request)[4:]
    # Kafka 4.3 ends at version 4, we at 5: the last byte.
    assert (ours[:-1], ours[-1]) == (response[:-1], 5)


def ask(version: int, **fields: Any) -> tuple[ApiVersionsResponse, Any]:
    context = make_context(ApiKey.API_VERSIONS, version)
    request = ApiVersionsRequest(**fields)
    return api().api_versions(context, request), context.peer


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("a", True),
        ("apache-kafka-java", True),
        ("3.9.1-SNAPSHOT", True),
        ("a-.b", True),
        ("", False),
        ("-a", False),
        ("a.", False),
        ("a b", False),
        ("a_b", False),
        ("ä", False),
        ("٣", False),
    ],
)
def test_software_names(text: str, good: bool) -> None:
    for fields in (
        {"client_software_name": text, "client_software_version": "1"},
        {"client_software_name": "n", "client_software_version": text},
    ):
        response, peer = ask(3, **fields)
        assert response.error_code == (ErrorCode.NONE if good else ErrorCode.INVALID_REQUEST)
        assert bool(response.api_keys) == good
        assert (peer.software != ("unknown", "unknown")) == good
    assert ask(2)[0].error_code == ErrorCode.NONE  # no such fields yet


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "good"),
    [
        (None, -1, True),
        (CLUSTER_ID, 1, True),
        (CLUSTER_ID, -1, True),
        (None, 1, True),
        ("another", 1, False),
        (CLUSTER_ID, 2, False),
    ],
)
def test_a_client_led_astray_is_sent_to_bootstrap(
    cluster_id: str | None, node_id: int, good: bool
) -> None:
    software = {"client_software_name": "n", "client_software_version": "1"}
    response, _ = ask(5, cluster_id=cluster_id, node_id=node_id, **software)
    assert response.error_code == (ErrorCode.NONE if good else ErrorCode.REBOOTSTRAP_REQUIRED)


def test_only_served_apis_are_listed_in_order() -> None:
    versions = VersionsApi(
        served=[ApiKey.FETCH, ApiKey.PRODUCE],
        cluster_id="c",
        node_id=1,
        image=lambda: ClusterImage("c"),
    )
    response = versions.api_versions(make_context(18, 0), ApiVersionsRequest())
    assert [(e.api_key, e.min_version) for e in response.api_keys] == [(0, 0), (1, 4), (18, 0)]
