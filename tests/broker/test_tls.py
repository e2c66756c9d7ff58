"""TLS of listeners: key stores, clients' certificates, what is refused, renewal."""

from __future__ import annotations

import ssl
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from support.certificates import PASSWORD, Authority, authority
from support.clusters import run
from support.metadata import broker_config
from support.wire_client import WireClient
from tidelog.config.broker import DEVELOPER_PROFILE, BrokerConfig, ConfigError
from tidelog.security.tls import client_context, server_context
from tidelog_protocol.messages.cluster import ApiVersionsRequest, MetadataRequest

if TYPE_CHECKING:
    from pathlib import Path

SSL = {"listeners": "SSL://127.0.0.1:0"}


def context(settings: dict[str, str], listener: str = "SSL") -> ssl.SSLContext:
    given = {**DEVELOPER_PROFILE, "listeners": "SSL://:1,SASL_SSL://:2", **settings}
    return server_context(BrokerConfig.from_properties(given).listener_settings(listener))


def refusal(settings: dict[str, str]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        context(settings)
    assert caught.value.key in caught.value.message
    assert "\n" not in caught.value.message
    return caught.value


def client(**files: str) -> ssl.SSLContext:
    made = ssl.create_default_context(cadata=authority().pem)
    made.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    if files:
        made.load_cert_chain(files["certificate"], files["key"])
    return made


async def principal(cluster: tidelog.Cluster, tls: ssl.SSLContext) -> str:
    """What the broker takes a client for."""
    server: Any = cluster.brokers[0].server
    async with await WireClient.connect(cluster.bootstrap_servers, tls) as one:
        await one.ask(ApiVersionsRequest(), 0)
        return str(server.connections[-1].principal)


def test_pem_pkcs12_and_files_are_key_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pair = authority().sign("broker")
    (tmp_path / "own.pem").write_text(pair.key_pem_with("k") + pair.chain_pem)
    (tmp_path / "own.p12").write_bytes(pair.pkcs12())
    (tmp_path / "trust.p12").write_bytes(authority().truststore())
    pem = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "own.pem"),
        "ssl.key.password": "k",
    }
    store = {
        "ssl.keystore.location": str(tmp_path / "own.p12"),  # of type JKS, as in Java
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(tmp_path / "trust.p12"),
        "ssl.truststore.password": PASSWORD,
    }
    assert context(pem).get_ca_certs() == []
    assert len(context(store).get_ca_certs()) == 1
    assert context({**pem, "ssl.client.auth": "required"}).verify_mode == ssl.CERT_REQUIRED
    # For SASL_SSL it counts only if it is the listener's own (KIP-684).
    assert context({**pem, "ssl.client.auth": "required"}, "SASL_SSL").verify_mode == ssl.CERT_NONE
    own = {**pem, "listener.name.sasl_ssl.ssl.client.auth": "requested"}
    assert context(own, "SASL_SSL").verify_mode == ssl.CERT_OPTIONAL
    assert list(tmp_path.glob("**/tidelog-*")) == []


def test_a_weak_certificate_of_its_own_is_served_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in Kafka: the clients decide. Else the security level of the machine's OpenSSL stays."""
    settings = authority().listener("broker")
    usual = context(settings)
    if usual.security_level < 2:
        pytest.skip("this OpenSSL is built to take keys of 1,024 bits as any other")
    weak = authority().sign("broker", rsa_bits=1024)
    settings["ssl.keystore.key"] = weak.key_pem
    settings["ssl.keystore.certificate.chain"] = weak.chain_pem
    assert not caplog.messages
    made = context(settings)
    (warning,) = caplog.messages
    assert warning.startswith("ssl.keystore.key: ")
    assert "EE_KEY_TOO_SMALL" in warning
    assert made.security_level == 0 < usual.security_level
    assert names(made) == names(usual)

    async def test() -> None:
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.set_ciphers("DEFAULT:@SECLEVEL=0")
        trusting.load_verify_locations(cadata=authority().pem)
        async with tidelog.Cluster({**SSL, **settings}) as cluster:
            assert await principal(cluster, trusting) == "User:ANONYMOUS"
            with pytest.raises(ssl.SSLCertVerificationError, match="too weak"):
                await WireClient.connect(cluster.bootstrap_servers, client())

    run(test)


def names(made: ssl.SSLContext) -> list[str]:
    return [cipher["name"] for cipher in made.get_ciphers()]


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    good = authority().listener("broker")
    (tmp_path / "own.p12").write_bytes(authority().sign("broker").pkcs12())
    store = {"ssl.keystore.location": str(tmp_path / "own.p12"), "ssl.keystore.password": "wrong"}
    missing = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / "none")}
    assert refusal({}).key == "ssl.keystore.location"
    assert "No such file" in refusal(missing).message
    assert "password is wrong" in refusal(store).message
    assert refusal({"ssl.keystore.location": "f"}).key == "ssl.keystore.location"
    key_alone = {name: text for name, text in good.items() if not name.endswith("chain")}
    assert refusal(key_alone).key == "ssl.keystore.certificate.chain"
    other = {**good, "ssl.keystore.key": authority().sign("other").key_pem}
    assert refusal(other).key == "ssl.keystore.key"
    locked = {**good, "ssl.keystore.key": authority().sign("broker").key_pem_with("k")}
    assert "ssl.key.password" in refusal(locked).message
    no_trust = refusal({**good, "ssl.truststore.certificates": "?"})
    assert no_trust.key == "ssl.truststore.certificates"
    assert refusal({**good, "ssl.enabled.protocols": "SSLv3"}).key == "ssl.enabled.protocols"
    assert refusal({**good, "ssl.cipher.suites": "TLS_NONE"}).key == "ssl.cipher.suites"
    assert refusal({**good, "ssl.protocol": "SSLv3"}).key == "ssl.protocol"
    name_check = "ssl.endpoint.identification.algorithm"
    assert refusal({**good, name_check: "http"}).key == name_check
    chain = "ssl.keystore.certificate.chain"
    assert refusal({**good, chain: "?"}).key == chain
    (tmp_path / "key.pem").write_text(good["ssl.keystore.key"])
    no_chain = refusal({**missing, "ssl.keystore.location": str(tmp_path / "key.pem")})
    assert "no certificate" in no_chain.message
    password = refusal({**missing, "ssl.keystore.password": "k"})
    assert password.key == "ssl.keystore.password"
    own = {**good, "listener.name.ssl.ssl.enabled.protocols": "SSLv3"}
    assert refusal(own).key == "listener.name.ssl.ssl.enabled.protocols"


def test_clients_of_public_authorities_are_known_without_a_trust_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "public.pem").write_text(authority().pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "public.pem"))
    own = {k: v for k, v in authority().listener("broker").items() if "truststore" not in k}
    assert context(own).get_ca_certs() == []
    assert len(context({**own, "ssl.client.auth": "requested"}).get_ca_certs()) >= 1


def test_versions_and_suites() -> None:
    old = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    good = authority().listener("broker")
    made = context({**good, "ssl.cipher.suites": old})
    assert made.maximum_version == ssl.TLSVersion.TLSv1_2
    assert "ECDHE-ECDSA-AES128-GCM-SHA256" in {each["name"] for each in made.get_ciphers()}
    made = context({**good, "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"})
    assert made.minimum_version == ssl.TLSVersion.TLSv1_3


def test_our_own_clients_check_the_name_unless_it_is_empty() -> None:
    settings = {"listeners": "SSL://:1", **authority().listener("broker")}
    config = BrokerConfig.from_properties({**DEVELOPER_PROFILE, **settings})
    assert client_context(config.listener_settings("SSL")).check_hostname
    empty = {**DEVELOPER_PROFILE, **settings, "ssl.endpoint.identification.algorithm": ""}
    config = BrokerConfig.from_properties(empty)
    assert not client_context(config.listener_settings("SSL")).check_hostname


def test_a_certificate_names_the_principal(tmp_path: Path) -> None:
    files = authority().client_files(tmp_path, "Alice")
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=(.*?),OU=tests$/$1/L, DEFAULT"}

    async def test() -> None:
        asked = {**SSL, **authority().listener("broker", ssl_client_auth="requested")}
        async with tidelog.Cluster(asked) as cluster:
            assert await principal(cluster, client()) == "User:ANONYMOUS"
            assert await principal(cluster, client(**files)) == "User:CN=Alice,OU=tests"
        asked["ssl.client.auth"] = "required"
        async with tidelog.Cluster({**asked, **rules}) as cluster:
            assert await principal(cluster, client(**files)) == "User:alice"
            with pytest.raises((ssl.SSLError, OSError, EOFError)):
                await principal(cluster, client())

    run(test)


def test_large_answers_and_requests_pass() -> None:
    """Back-pressure works as without TLS: a slow reader gets all of many large answers."""

    async def test() -> None:
        names = [f"n{number:04}" + "x" * 240 for number in range(2000)]
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        async with (
            tidelog.Cluster({**SSL, **authority().listener("broker")}) as cluster,
            await WireClient.connect(cluster.bootstrap_servers, client()) as one,
        ):
            for _ in range(20):
                one.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 4)
            for _ in range(20):
                assert len((await one.receive()).topics) == 2000

    run(test)


def test_plain_bytes_are_refused_and_others_go_on() -> None:
    async def test() -> None:
        async with tidelog.Cluster({**SSL, **authority().listener("broker")}) as cluster:
            async with await WireClient.connect(cluster.bootstrap_servers) as plain:
                plain.send(ApiVersionsRequest(), 0)
                with pytest.raises((EOFError, OSError, AssertionError)):
                    await plain.receive()
            assert await principal(cluster, client()) == "User:ANONYMOUS"

    run(test)


def test_certificates_are_renewed_while_it_runs() -> None:
    new = Authority("new")

    async def test() -> None:
        settings = {**SSL, **authority().listener("broker")}
        async with tidelog.Cluster(settings) as cluster:
            server: Any = cluster.brokers[0].server
            own = new.listener("broker")
            given = {f"listener.name.ssl.{key}": text for key, text in own.items()}
            server._listeners.reconfigure(server.config.with_dynamic(given))
            broken = {**given, "listener.name.ssl.ssl.keystore.key": "?"}
            server._listeners.reconfigure(server.config.with_dynamic(broken))
            with pytest.raises(ssl.SSLCertVerificationError):
                await principal(cluster, client())
            trusting = ssl.create_default_context(cadata=new.pem)
            assert await principal(cluster, trusting) == "User:ANONYMOUS"

    run(test)


def test_a_secret_is_not_shown() -> None:
    config = broker_config(ssl_keystore_password="hush")
    assert "hush" not in repr(config)
