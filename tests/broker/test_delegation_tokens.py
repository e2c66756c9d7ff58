"""Delegation tokens: what the controller decides, who may ask, and a client that has one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from support.clusters import run, until
from support.handler_calls import RecordingPeer, make_context
from support.turns import counting_turns
from support.wire_client import WireClient
from tidelog.api.delegation_tokens import DelegationTokensApi, gated
from tidelog.cluster.controller.delegation_tokens import Asking, alter_tokens, expired
from tidelog.cluster.metadata.image import ClusterImage
from tidelog.config.broker import BrokerConfig
from tidelog.network.wide_requests import PART_MAX
from tidelog.security.delegation_tokens import token_hmac, token_logins
from tidelog.security.principal import ANONYMOUS, Principal
from tidelog.security.scram import SCRAM
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.metadata_records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)
from tidelog_protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tidelog_protocol.messages.tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NOW = 1_000_000
ID = bytes(range(16))
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
SETTINGS = {
    "node.id": "1",
    "delegation.token.secret.key": "key",
    "delegation.token.max.lifetime.ms": "1000",
    "delegation.token.expiry.time.ms": "100",
    "listeners": "PLAIN://:1,TLS://:2,SASL://:3",
    "listener.security.protocol.map": "PLAIN:PLAINTEXT,TLS:SSL,SASL:SASL_PLAINTEXT",
}
CONFIG = BrokerConfig.from_properties(SETTINGS)
LEVELS = {"metadata.version": 30}
TOKEN = DelegationTokenRecord(
    owner="User:alice",
    requester="User:bob",
    renewers=["User:carol"],
    issue_timestamp=NOW - 50,
    max_timestamp=NOW + 950,
    expiration_timestamp=NOW + 50,
    token_id="t",
)
KNOWN = ClusterImage(cluster_id="c", features=LEVELS, delegation_tokens={"t": TOKEN})
HMAC = token_hmac("key", "t")


def create(
    lifetime_ms: int = -1, *, renewers: tuple[Principal, ...] = (), owner: Any = None
) -> Any:
    return CreateDelegationTokenRequest(
        owner_principal_type=owner and owner.type,
        owner_principal_name=owner and owner.name,
        renewers=[
            CreateDelegationTokenRequest.CreatableRenewers(
                principal_type=each.type, principal_name=each.name
            )
            for each in renewers
        ],
        max_lifetime_ms=lifetime_ms,
    )


def decided(
    request: Any,
    principal: Principal = ALICE,
    *,
    now_ms: int = NOW,
    image: ClusterImage = KNOWN,
    config: BrokerConfig = CONFIG,
) -> tuple[list[Any], Any]:
    records, response = alter_tokens(image, config, request, Asking(principal, now_ms, lambda: ID))
    return list(records), response


def test_a_token_is_for_the_caller_or_for_the_owner_it_names() -> None:
    (token,), response = decided(create(renewers=(BOB,)))
    assert (token.owner, token.requester, token.renewers) == (
        "User:alice",
        "User:alice",
        ["User:bob"],
    )
    assert (token.max_timestamp, token.expiration_timestamp) == (NOW + 1000, NOW + 100)
    assert response.error_code == 0
    assert response.hmac == token_hmac("key", token.token_id)
    (token,), response = decided(create(50, owner=BOB))
    assert (token.owner, token.requester) == ("User:bob", "User:alice")
    assert (token.max_timestamp, token.expiration_timestamp) == (NOW + 50, NOW + 50)
    assert (response.principal_name, response.token_requester_principal_name) == ("bob", "alice")


@pytest.mark.parametrize(
    ("request_", "end"),
    [
        (RenewDelegationTokenRequest(hmac=HMAC, renew_period_ms=70), NOW + 70),
        (RenewDelegationTokenRequest(hmac=HMAC, renew_period_ms=-1), NOW + 100),
        (RenewDelegationTokenRequest(hmac=HMAC, renew_period_ms=101), NOW + 100),
        (ExpireDelegationTokenRequest(hmac=HMAC, expiry_time_period_ms=0), NOW),
        (ExpireDelegationTokenRequest(hmac=HMAC, expiry_time_period_ms=700), NOW + 700),
        (ExpireDelegationTokenRequest(hmac=HMAC, expiry_time_period_ms=2**63 - 1), NOW + 950),
    ],
)
@pytest.mark.parametrize("name", ["alice", "carol"])
def test_owners_and_renewers_move_the_end(request_: Any, end: int, name: str) -> None:
    (token,), response = decided(request_, Principal("User", name))
    assert (response.error_code, response.expiry_timestamp_ms) == (0, end)
    assert (token.token_id, token.expiration_timestamp) == ("t", end)
    assert (token.owner, token.issue_timestamp) == (TOKEN.owner, TOKEN.issue_timestamp)


def test_a_negative_period_removes_a_token() -> None:
    for now_ms in (NOW, NOW + 5000):
        records, response = decided(
            ExpireDelegationTokenRequest(hmac=HMAC, expiry_time_period_ms=-1), now_ms=now_ms
        )
        assert records == [RemoveDelegationTokenRecord(token_id="t")]
        assert (response.error_code, response.expiry_timestamp_ms) == (0, now_ms)


@pytest.mark.parametrize(
    ("request_", "principal", "now_ms", "code"),
    [
        (create(renewers=(Principal("Group", "g"),)), ALICE, NOW, "INVALID_PRINCIPAL_TYPE"),
        (RenewDelegationTokenRequest(hmac=b"x"), ALICE, NOW, "DELEGATION_TOKEN_NOT_FOUND"),
        (ExpireDelegationTokenRequest(hmac=b""), ALICE, NOW, "DELEGATION_TOKEN_NOT_FOUND"),
        (RenewDelegationTokenRequest(hmac=HMAC), BOB, NOW, "DELEGATION_TOKEN_OWNER_MISMATCH"),
        (ExpireDelegationTokenRequest(hmac=HMAC), BOB, NOW, "DELEGATION_TOKEN_OWNER_MISMATCH"),
        (RenewDelegationTokenRequest(hmac=HMAC), ALICE, NOW + 51, "DELEGATION_TOKEN_EXPIRED"),
        (ExpireDelegationTokenRequest(hmac=HMAC), ALICE, NOW + 51, "DELEGATION_TOKEN_EXPIRED"),
    ],
)
def test_refusals(request_: Any, principal: Principal, now_ms: int, code: str) -> None:
    records, response = decided(request_, principal, now_ms=now_ms)
    assert records == []
    assert ErrorCode(response.error_code).name == code
    assert response.expiry_timestamp_ms == 0


@pytest.mark.parametrize("request_", [create(), RenewDelegationTokenRequest(hmac=HMAC)])
def test_without_a_secret_or_at_an_old_level_there_are_none(request_: Any) -> None:
    plain = BrokerConfig.from_properties({"node.id": "1"})
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert decided(request_, config=plain)[1].error_code == disabled
    old = KNOWN._replace(features={"metadata.version": 13})
    assert decided(request_, image=old)[1].error_code == ErrorCode.UNSUPPORTED_VERSION


def test_expired_tokens_are_removed() -> None:
    assert expired(KNOWN, NOW + 50) == []
    assert expired(KNOWN, NOW + 51) == [RemoveDelegationTokenRecord(token_id="t")]


# ---- who may ask


@pytest.mark.parametrize(
    ("listener", "principal", "is_served"),
    [
        ("PLAIN", ANONYMOUS, False),
        ("TLS", ANONYMOUS, False),
        ("TLS", ALICE, True),
        ("SASL", ALICE, True),
        ("SASL", Principal("User", "alice", is_of_token=True), False),
    ],
)
def test_who_may_ask(listener: str, principal: Principal, is_served: bool) -> None:
    served = {key: lambda *_: "served" for key in API if API[key].module == "tokens"}
    peer = RecordingPeer()
    peer.listener, peer.principal = listener, principal
    handlers = gated(served, CONFIG, None)
    for key, handler in handlers.items():
        answer = handler(make_context(key, 1, peer=peer), API[key].request())
        if is_served:
            assert answer == "served"
            peer.listener = "PLAIN"  # between brokers
            peer.is_forwarded = True
            assert handler(make_context(key, 1, peer=peer), API[key].request()) == "served"
            peer.listener, peer.is_forwarded = listener, False
        else:
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_an_owner_without_a_type_is_refused_as_in_kafka() -> None:
    served = {key: lambda *_: "served" for key in API if API[key].module == "tokens"}
    peer = RecordingPeer()
    peer.listener, peer.principal = "SASL", ALICE
    handler = gated(served, CONFIG, None)[ApiKey.CREATE_DELEGATION_TOKEN]
    request = create(owner=BOB)
    request.owner_principal_type = None
    answer = handler(make_context(ApiKey.CREATE_DELEGATION_TOKEN, 3, peer=peer), request)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert answer.principal_name == answer.token_requester_principal_name == "ANONYMOUS"


# ---- descriptions


def tokens_api(tokens: Iterable[DelegationTokenRecord]) -> DelegationTokensApi:
    image = KNOWN._replace(delegation_tokens={each.token_id: each for each in tokens})
    metadata: Any = SimpleNamespace(image=image)
    return DelegationTokensApi(metadata, None, None, "key")  # type: ignore[arg-type]


def described(owners: list[Principal] | None) -> Any:
    return DescribeDelegationTokenRequest(
        owners=None
        if owners is None
        else [
            DescribeDelegationTokenRequest.DescribeDelegationTokenOwner(
                principal_type=each.type, principal_name=each.name
            )
            for each in owners
        ]
    )


def test_types_and_names_may_be_empty_as_in_kafka() -> None:
    nobody, untyped = Principal("User", ""), Principal("", "x")
    (token,), response = decided(create(renewers=(nobody,), owner=untyped))
    assert (response.error_code, token.owner, token.renewers) == (0, ":x", ["User:"])
    api, context = tokens_api([token]), make_context(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3)
    for owners in (None, [untyped], [nobody, ALICE]):
        answer: Any = api.describe(context, described(owners))
        (found,) = answer.tokens
        assert (found.principal_type, found.principal_name) == ("", "x")
        assert [(each.principal_type, each.principal_name) for each in found.renewers] == [
            ("User", "")
        ]
    answer = api.describe(context, described([ALICE]))
    assert answer.tokens == []
    logins = token_logins(lambda: {token.token_id: token}, "key", bytes)
    login = logins(token.token_id, SCRAM["SCRAM-SHA-256"])
    assert login is not None
    assert login.owner == "x"


def test_the_slow_part_of_a_login_is_computed_once() -> None:
    salts: list[int] = []

    def draw(count: int) -> bytes:
        salts.append(count)
        return bytes([len(salts)]) * count

    token = token_of("User:x")
    known = {token.token_id: token}
    logins = token_logins(lambda: known, "key", draw)
    first, again = (logins(token.token_id, SCRAM["SCRAM-SHA-512"]) for _ in range(2))
    assert first == again
    assert logins(token.token_id, SCRAM["SCRAM-SHA-256"]) != first
    assert len(salts) == 2
    known.clear()  # a removed token is none any more
    assert logins(token.token_id, SCRAM["SCRAM-SHA-512"]) is None


def test_many_owners_are_looked_up_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A description makes as many texts as there are owners, not as many as owners times tokens."""
    texts = 0
    real = Principal.__str__

    def counted(principal: Principal) -> str:
        nonlocal texts
        texts += 1
        return real(principal)

    monkeypatch.setattr(Principal, "__str__", counted)
    api = tokens_api(token_of(f"User:u{n}") for n in range(50))
    owners = [Principal("User", f"o{n}") for n in range(100)]
    answer: Any = api.describe(
        make_context(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3), described([*owners, ALICE])
    )
    assert (answer.tokens, texts) == ([], 101)


def test_thousands_of_tokens_are_described_in_parts() -> None:
    api = tokens_api(token_of(f"User:u{n}") for n in range(3 * PART_MAX))
    context = make_context(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3)
    answer, turns = counting_turns(api.describe, context, described(None))
    assert turns >= 2
    assert len(answer.tokens) == 3 * PART_MAX


def token_of(owner: str) -> DelegationTokenRecord:
    return DelegationTokenRecord(owner=owner, requester=owner, renewers=[], token_id=owner)


# ---- several brokers


async def logged_in(client: WireClient, login: Mapping[str, str]) -> WireClient:
    await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = f"\0{login['sasl.username']}\0{login['sasl.password']}".encode()
    answer = await client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
    assert answer.error_code == 0
    return client


def test_each_broker_of_a_cluster_makes_tokens_that_expire() -> None:
    settings = {
        "delegation.token.secret.key": "key",
        "delegation.token.expiry.check.interval.ms": "20",
    }

    async def test() -> None:
        async with tidelog.Cluster(settings, brokers=2, security="sasl_plaintext") as cluster:
            login = cluster.client_config("confluent-kafka")
            images = [lambda each=each: each.server.metadata.image for each in cluster.brokers]
            tokens = []
            for address in cluster.bootstrap_servers.split(","):
                async with await WireClient.connect(address) as client:
                    await logged_in(client, login)
                    tokens.append(await client.ask(create(), 3))
                    [owned] = (
                        await client.ask(DescribeDelegationTokenRequest(owners=None), 3)
                    ).tokens[-1:]
                    assert owned.hmac == tokens[-1].hmac
                    assert owned.principal_name == login["sasl.username"]
            await until(lambda: all(len(image().delegation_tokens) == 2 for image in images))
            async with await WireClient.connect(address) as client:
                await logged_in(client, login)
                for each in tokens:
                    expire = ExpireDelegationTokenRequest(hmac=each.hmac, expiry_time_period_ms=0)
                    assert (await client.ask(expire, 2)).error_code == 0
            await until(lambda: not any(image().delegation_tokens for image in images))

    run(test)
