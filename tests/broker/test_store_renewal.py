"""Key and trust stores of open listeners are exchanged by AlterConfigs, or refused, as in Kafka
4.3.1 (SslFactory, KIP-226)."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from support.altered import alter_configs
from support.certificates import PASSWORD, Authority, Pair, authority, der_of, jks
from support.clusters import run
from support.metadata import broker_config, cluster
from support.wire_client import WireClient
from tidelog.cluster.controller.configs import SET, Change, Resource
from tidelog.config.broker import DEVELOPER_PROFILE, BrokerConfig, ConfigError
from tidelog.security.renewal import check_certificates, identity_of
from tidelog_protocol.messages.cluster import ApiVersionsRequest
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

OWN = "listener.name.ssl."
BROKER = 4


def settings_of(**more: str) -> Any:
    given = {**DEVELOPER_PROFILE, "listeners": "SSL://:1", **more}
    return BrokerConfig.from_properties(given).listener_settings("SSL")


def pem(pair: Pair) -> bytes:
    return pair.chain_pem.encode()


@pytest.mark.parametrize(
    ("name", "at", "text"),
    [
        (
            "ssl.keystore.location",
            "1",
            "These security configs can be dynamically updated only per-listener using the listener"
            " prefix: [ssl.keystore.location]",
        ),
        (
            f"{OWN}ssl.keystore.location",
            "",
            "Cannot update these configs at default cluster level, broker id must be specified:"
            f" [{OWN}ssl.keystore.location]",
        ),
        (f"{OWN}max.connections", "", None),
    ],
)
def test_whose_settings_of_a_listener_may_be(name: str, at: str, text: str | None) -> None:
    change = Change(name, SET, "7")
    resource = Resource(BROKER, at, [change], replaces=False)
    _, (result,) = alter_configs(cluster(), broker_config(), [resource])
    assert result.message == text


def test_a_certificate_has_a_subject_and_alternative_names() -> None:
    one, two = (authority().sign("brö,ker", hosts=hosts) for hosts in (("a", "::1"), ("::1", "a")))
    found = identity_of(pem(one))
    assert found is not None
    assert found.subject == "CN=brö\\,ker,OU=tests"
    assert len(found.names) == 2
    assert found == identity_of(pem(two))
    assert identity_of(b"") is None
    assert identity_of(pem(one)[:300]) is None


def test_a_new_certificate_is_for_whom_the_old_one_was() -> None:
    old, same = (
        authority().sign("a"),
        Authority("other").sign("A", hosts=("localhost", "127.0.0.1")),
    )
    more = authority().sign("a", hosts=("localhost", "127.0.0.1", "more"))
    check_certificates(pem(old), pem(same), settings_of())
    check_certificates(pem(old), pem(more), settings_of())
    less, renamed = authority().sign("a", hosts=("localhost",)), authority().sign("b")
    for new, key, text in (
        (less, "ssl.allow.san.changes", "SubjectAltNames do not match"),
        (renamed, "ssl.allow.dn.changes", "DistinguishedName does not match"),
    ):
        with pytest.raises(ConfigError, match=text):
            check_certificates(pem(old), pem(new), settings_of())
        check_certificates(pem(old), pem(new), settings_of(**{key: "true"}))


def unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Listener:
    """A running broker's only listener, and files of stores."""

    def __init__(self, cluster: tidelog.Cluster) -> None:
        self.at = cluster.bootstrap_servers

    async def alter(self, changes: Mapping[str, str | None]) -> str | None:
        """Change the listener's own settings; the error."""
        config = IncrementalAlterConfigsRequest.AlterableConfig
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=BROKER,
            resource_name="1",
            configs=[
                config(name=OWN + name, config_operation=int(value is None), value=value)
                for name, value in changes.items()
            ],
        )
        async with await self.connect() as client:
            request = IncrementalAlterConfigsRequest(resources=[resource])
            message: str | None = (await client.ask(request, 1)).responses[0].error_message
            return message

    async def connect(self) -> WireClient:
        return await WireClient.connect(self.at, unchecked())

    async def shows(self, pair: Pair) -> bool:
        """Whether new connections get this certificate."""
        async with await self.connect() as client:
            tls = client.writer.get_extra_info("ssl_object")
            return bool(tls.getpeercert(binary_form=True) == der_of(pair.chain_pem))

    async def comes_to_show(self, pair: Pair) -> None:
        async with asyncio.timeout(60):
            while not await self.shows(pair):
                pass


def stores(kind: str, folder: Path, name: str, pair: Pair) -> dict[str, str]:
    """The settings of a key store of this kind."""
    if kind == "inline":
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": pair.key_pem,
            "ssl.keystore.certificate.chain": pair.chain_pem,
        }
    path = folder / f"{name}.{kind}"
    if kind == "PEM":
        path.write_text(pair.key_pem + pair.chain_pem)
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}
    path.write_bytes(jks(pair) if kind == "JKS" else pair.pkcs12())
    return {
        "ssl.keystore.type": kind,
        "ssl.keystore.location": str(path),
        "ssl.keystore.password": PASSWORD,
    }


@pytest.mark.parametrize("kind", ["PEM", "inline", "PKCS12", "JKS"])
def test_stores_of_each_kind_are_exchanged_while_connections_go_on(
    kind: str, tmp_path: Path
) -> None:
    first, second, third = (authority().sign("broker") for _ in range(3))
    renamed = authority().sign("other")

    async def test() -> None:
        own = stores(kind, tmp_path, "first", first)
        settings = {f"{OWN}{name}": text for name, text in own.items()}
        async with tidelog.Cluster({"listeners": "SSL://127.0.0.1:0", **settings}) as cluster:
            listener = Listener(cluster)
            async with await listener.connect() as open_all_the_time:
                assert await listener.shows(first)
                assert await listener.alter(stores(kind, tmp_path, "second", second)) is None
                await listener.comes_to_show(second)
                if kind != "inline":  # the same file has another certificate
                    again = stores(kind, tmp_path, "second", third)
                    assert await listener.alter(again) is None
                    await listener.comes_to_show(third)
                shown = second if kind == "inline" else third
                refused = await listener.alter(stores(kind, tmp_path, "renamed", renamed))
                assert "Keystore DistinguishedName does not match" in (refused or "")
                for wrong in WRONG[kind]:
                    refused = await listener.alter(wrong)
                    assert refused is not None
                    assert "Invalid dynamic configuration" in refused
                    assert PASSWORD not in refused
                assert await listener.shows(shown)
                assert (await open_all_the_time.ask(ApiVersionsRequest(), 0)).error_code == 0

    run(test)


WRONG: Mapping[str, list[dict[str, str | None]]] = {
    "PEM": [
        {"ssl.keystore.location": "/none"},
        {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority().pem},
    ],
    "inline": [{"ssl.keystore.key": "?"}, {"ssl.keystore.certificate.chain": None}],
    "PKCS12": [{"ssl.keystore.password": "wrong"}, {"ssl.keystore.type": "PEM"}],
    "JKS": [{"ssl.keystore.password": "wrong"}],
}
