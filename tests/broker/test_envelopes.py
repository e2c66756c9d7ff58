"""Clients' requests in Envelopes (KIP-590): bytes, refusals, what a controller sees."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.clusters import controller_of, image_of, run, until
from support.handler_calls import make_context
from support.secured import SecuredCluster, plain_jaas
from support.wire_client import WireClient
from tidelog.api.envelope import EnvelopeApi
from tidelog.cluster.envelopes import Enveloped, enveloped, principal_of, unsealed
from tidelog.network.dispatch import Dispatcher, RequestContext
from tidelog.security.principal import Principal
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.frames import RequestHeader
from tidelog_protocol.messages.admin import CreateTopicsRequest, CreateTopicsResponse
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_protocol.messages.controller import EnvelopeRequest, EnvelopeResponse
from tidelog_protocol.messages.quotas import AlterClientQuotasRequest
from tidelog_protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

if TYPE_CHECKING:
    from tidelog.embedded.nodes import Node

# Of Kafka's DefaultKafkaPrincipalBuilder.
ALICE = bytes.fromhex("0000055573657206616c6963650000")
VERSION = 7


def creation(*names: str) -> CreateTopicsRequest:
    Topic = CreateTopicsRequest.CreatableTopic  # noqa: N806 - a class
    topics = [Topic(name=name, num_partitions=2, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=60_000)


HEADER = RequestHeader(ApiKey.CREATE_TOPICS, VERSION, 9, "her client")


def envelope(
    request: Any = None, header: RequestHeader = HEADER, host: str = "192.0.2.1"
) -> EnvelopeRequest:
    """As the broker of a client named alice sends it."""
    alice = Principal("User", "alice")
    return enveloped(Enveloped(header, request or creation("t"), alice, host))


class Controller:
    """A controller's listener with one API."""

    def __init__(self, *, fails: bool = False, waits: bool = False) -> None:
        self.fails, self.waits = fails, waits
        self.asked: list[RequestContext] = []
        self.dispatcher = Dispatcher({ApiKey.CREATE_TOPICS: self.create})
        self.api = EnvelopeApi(lambda: self.dispatcher)

    def create(self, context: RequestContext, request: CreateTopicsRequest) -> Any:
        self.asked.append(context)
        if self.fails:
            context.close()
            return None
        Result = CreateTopicsResponse.CreatableTopicResult  # noqa: N806 - a class
        results = [Result(name=each.name) for each in request.topics]
        response = CreateTopicsResponse(topics=results)
        return self._late(response) if self.waits else response

    async def _late(self, response: Any) -> Any:
        await asyncio.sleep(0)
        return response

    async def answer(self, request: EnvelopeRequest) -> EnvelopeResponse:
        context = make_context(ApiKey.ENVELOPE, 0)
        response = self.api.envelope(context, request)
        if isinstance(response, EnvelopeResponse):
            return response
        peer: Any = context.peer
        await until(lambda: peer.responses)
        (found,) = peer.responses
        assert isinstance(found, EnvelopeResponse)
        return found


def test_the_bytes_are_kafkas() -> None:
    sent = envelope()
    assert sent.request_principal == ALICE
    assert sent.client_host_address == bytes([192, 0, 2, 1])
    assert principal_of(sent) == Principal("User", "alice")
    token = Enveloped(HEADER, creation("t"), Principal("User", "a", is_of_token=True), "::1")
    assert principal_of(enveloped(token)).is_of_token
    for wrong in (None, b"", b"\0\1" + ALICE[2:], ALICE[:-4]):
        sent.request_principal = wrong
        with pytest.raises(ProtocolError):
            principal_of(sent)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1"])
@pytest.mark.parametrize("version", [2, 4, VERSION])
def test_a_controller_sees_the_client(waits: bool, host: str, version: int) -> None:
    header = HEADER._replace(api_version=version)

    async def test() -> None:
        controller = Controller(waits=waits)
        answer = await controller.answer(envelope(header=header, host=host))
        (seen,) = controller.asked
        assert (str(seen.principal), seen.client_host) == ("User:alice", host)
        assert (seen.client_id, seen.api_version) == ("her client", version)
        response = unsealed(header, answer)
        assert [each.name for each in response.topics] == ["t"]

    run(test)


METADATA_HEADER = RequestHeader(ApiKey.METADATA, 9, 9, None)
CUT = envelope().request_data


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\x01\0\0"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"client_host_address": b"123"}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b""}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": CUT[:5]}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": CUT[:-5]}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": CUT[:2] + b"\0\x63" + CUT[4:]}, ErrorCode.UNSUPPORTED_VERSION),
        (
            {"request_data": envelope(MetadataRequest(topics=[]), METADATA_HEADER).request_data},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_what_is_wrong_is_refused(wrong: dict[str, Any], code: ErrorCode) -> None:
    async def test() -> None:
        sent = envelope()
        for name, value in wrong.items():
            setattr(sent, name, value)
        answer = await Controller().answer(sent)
        assert ErrorCode(answer.error_code) is code
        with pytest.raises(ProtocolError, match=code.name):
            unsealed(HEADER, answer)

    run(test)


def test_a_request_that_closes_its_connection_leaves_the_brokers() -> None:
    async def test() -> None:
        answer = await Controller(fails=True).answer(envelope())
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    run(test)


async def logged_in(node: Node[Any], user: str) -> WireClient:
    client = await WireClient.connect(node.bootstrap_server)
    await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = await client.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0x".encode()), 2)
    assert answer.error_code == ErrorCode.NONE
    return client


def test_a_users_quota_of_created_partitions_holds_for_any_broker() -> None:
    Entry = AlterClientQuotasRequest.EntryData  # noqa: N806 - a class
    limit = Entry(
        entity=[Entry.EntityData(entity_type="user", entity_name="alice")],
        ops=[Entry.OpData(key="controller_mutation_rate", value=0.2)],
    )
    jaas = plain_jaas("broker", "x", broker="x", alice="x")
    names = ("sasl_plaintext", "controller")
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        **{f"listener.name.{one}.plain.sasl.jaas.config": jaas for one in names},
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:broker;User:alice",
    }

    async def test() -> None:
        async with SecuredCluster("SASL_PLAINTEXT", settings) as cluster:
            other = next(node for node in cluster.brokers if node is not controller_of(cluster))
            async with await logged_in(other, "broker") as client:
                assert (await client.ask(AlterClientQuotasRequest(entries=[limit]), 1)).entries
                await until(lambda: all(image_of(each).client_quotas for each in cluster.brokers))
                answer = await client.ask(creation("a", "b", "c"), 7)
                assert [each.error_code for each in answer.topics] == [0, 0, 0]
            async with await logged_in(other, "alice") as client:
                answer = await client.ask(creation("d", "e", "f"), 7)
                codes = [each.error_code for each in answer.topics]
                assert codes == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]

    run(test)
