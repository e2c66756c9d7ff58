"""`security=...`: what is made, who may read it, and what is refused in one line."""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509

import tidelog
from support.clusters import run
from support.wire_client import WireClient
from tidelog.config.broker import DEVELOPER_PROFILE, BrokerConfig
from tidelog.control.credentials import tokens
from tidelog.control.credentials.folder import BAD_CERTIFICATES, Credentials
from tidelog.control.credentials.kinds import kind_of
from tidelog.control.credentials.state import SecurityState
from tidelog.control.credentials.wishes import client_of
from tidelog.control.http_client import HttpControl
from tidelog.embedded.cluster_client import opened
from tidelog.embedded.security import Security
from tidelog.embedded.settings_pipe import read_settings, settings_bytes
from tidelog.security.tls import server_context
from tidelog.testing.records import assert_records, produce
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_protocol.messages.configs import DescribeConfigsRequest
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from tidelog.control.credentials.wishes import Wishes


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Credentials]:
    folder = tmp_path_factory.mktemp("credentials")
    kinds = ("ssl", "mtls", "sasl_plaintext", "sasl_ssl")
    return {kind: Credentials.make(f"{folder}/{kind}", kind_of(kind), []) for kind in kinds}


def refused(credentials: Credentials | None, **wishes: Any) -> str:
    with pytest.raises(tidelog.ClusterError) as caught:
        client_of(credentials, "h:1", {"expired": "h:2"}, wishes)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_a_kind_has_not_is_refused(credentials: dict[str, Credentials]) -> None:
    assert refused(None, user="alice") == "clients of a cluster without security have no user"
    assert "of security ssl have no password" in refused(credentials["ssl"], password="x")
    assert "have no certificate" in refused(credentials["sasl_plaintext"], certificate="expired")
    assert "have no client_certificate" in refused(
        credentials["sasl_ssl"], client_certificate="none"
    )
    assert "no listeners" in refused(credentials["ssl"], certificate="wrong-host")
    assert "none of expired, wrong-host" in refused(credentials["ssl"], certificate="odd")
    assert "none of PLAIN" in refused(credentials["sasl_ssl"], mechanism="GSSAPI")
    for wish in ({"password": "x", "mechanism": "OAUTHBEARER"}, {"password": "x", "token": "y"}):
        assert refused(credentials["sasl_ssl"], **wish) == "OAUTHBEARER takes no password"
    assert "PLAIN takes no token" in refused(credentials["sasl_ssl"], token="y", mechanism="plain")
    assert "no user 'eve' but admin, alice, bob" in refused(credentials["sasl_ssl"], user="eve")
    with pytest.raises(TypeError, match="no argument 'phrase'"):
        client_of(None, "h:1", {}, {"phrase": "x"})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(tidelog.ClusterError, match="security 'tls' is none of ssl, mtls"):
        tidelog.Cluster(security="tls")
    with pytest.raises(tidelog.ClusterError, match="listeners: is set by security ssl"):
        tidelog.Cluster({"listeners": "PLAINTEXT://:0"}, security="ssl")


def test_only_the_owner_may_read_and_no_text_has_a_secret(
    credentials: dict[str, Credentials],
) -> None:
    one = credentials["mtls"]
    one.client_file("alice", "expired", "p12")
    folder = Path(one.path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = list(folder.iterdir())
    assert len(files) > 8
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    secrets = {one.store_password, *one.passwords.values()}
    client = client_of(credentials["sasl_ssl"], "h:1", {}, {})
    texts = (repr(one), repr(client), repr(SecurityState("h:1", "mtls", one.path)))
    assert not any(secret in text for secret in secrets for text in texts)


def test_a_folder_is_used_again(tmp_path: Path) -> None:
    first = Credentials.make(str(tmp_path), kind_of("sasl_ssl"), ["a"])
    authority = (tmp_path / "authority.pem").read_bytes()
    again = Credentials.make(str(tmp_path), kind_of("mtls"), ["b"])
    assert again.passwords == first.passwords
    assert (tmp_path / "authority.pem").read_bytes() == authority
    assert Credentials.read(str(tmp_path)).kind.name == "mtls"
    (tmp_path / "secrets.json").write_text("?")
    with pytest.raises(tidelog.ClusterError, match="no credentials of tidelog"):
        Credentials.make(str(tmp_path), kind_of("ssl"), [])


def damages(data: bytes, other: bytes) -> dict[str, bytes | None]:
    """A file's content after each damage; None: it is gone."""
    found: dict[str, bytes | None] = {
        "cut": data[: len(data) * 2 // 3],
        "empty": b"",
        "gone": None,
        "swapped": other,
        "a list": b"[1]",
        "deep": b"[" * 100_000,
    }
    for place in range(0, len(data), len(data) // 30):
        found[f"flipped at {place}"] = bytes([*data[:place], data[place] ^ 1, *data[place + 1 :]])
    return found


def what_a_start_and_a_new_user_say(folder: Path) -> str:
    """What refuses them, or nothing."""
    security = Security("mtls", folder)
    given = {**DEVELOPER_PROFILE, "listeners": "PLAINTEXT://127.0.0.1:1"}
    try:
        security.make("", "127.0.0.1")
        config = BrokerConfig.from_properties(security.secured(given, 1, [2, 3, 4]))
        for listener in ("SSL", "EXPIRED"):
            server_context(config.listener_settings(listener))
        made = Path(Credentials.read(str(folder)).client_file("bob", None, "crt")).read_bytes()
        authority = (folder.parent / "whole" / "authority.pem").read_bytes()
        x509.load_pem_x509_certificate(made).verify_directly_issued_by(
            x509.load_pem_x509_certificate(authority)
        )
    except (tidelog.ClusterError, ConfigError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("name", "harmless"),
    [
        ("secrets.json", "flipped at"),  # in a password
        ("authority-key.pem", "flipped at"),  # in bits of no meaning
        ("authority.pem", "flipped at"),  # in the signature
        ("authority.p12", "*"),  # clients read it
        ("broker.pem", "flipped at"),
        ("broker-expired.pem", "flipped at"),
    ],
)
def test_a_damaged_file_refuses_the_start_or_a_client_and_is_named(
    name: str, harmless: str, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    Credentials.make(str(whole), kind_of("mtls"), [])
    assert what_a_start_and_a_new_user_say(whole) == ""
    (whole / "client-bob.p12").unlink()
    other = "broker.pem" if name == "secrets.json" else "secrets.json"
    all_said = {}
    for damage, data in damages((whole / name).read_bytes(), (whole / other).read_bytes()).items():
        folder = tmp_path / damage
        shutil.copytree(whole, folder)
        (folder / name).unlink()
        if data is not None:
            (folder / name).write_bytes(data)
        said = all_said[damage] = what_a_start_and_a_new_user_say(folder)
        assert "\n" not in said
        if not (said or harmless == "*" or (harmless and damage.startswith(harmless))):
            pytest.fail(f"nothing is said of a file that is {damage}")
        if said:
            assert str(folder) in said
            assert name in said or "ssl." in said or "credentials" in said
    if harmless != "*":
        assert sum(map(bool, all_said.values())) > 6, all_said


def test_a_start_that_was_cut_short_is_continued(tmp_path: Path) -> None:
    """After each file that the first start writes."""
    whole = tmp_path / "whole"
    Credentials.make(str(whole), kind_of("ssl"), [])
    names = ["secrets.json", "authority-key.pem", "authority.pem", "authority.p12", "broker.pem"]
    known = json.loads((whole / "secrets.json").read_bytes())
    del known["hosts"]
    for count in range(len(names) + 1):
        folder = tmp_path / str(count)
        folder.mkdir()
        for name in names[:count]:
            shutil.copy(whole / name, folder)
        if count:
            (folder / "secrets.json").write_text(json.dumps(known))
        Credentials.make(str(folder), kind_of("ssl"), [])
        assert {each.name for each in folder.iterdir()} == {each.name for each in whole.iterdir()}


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("cryptography"):
            raise ModuleNotFoundError(name=name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(tidelog.ClusterError) as caught:
        Credentials.make(str(tmp_path), kind_of("ssl"), [])
    wanted = "security ssl: needs cryptography (pip install 'tidelog[security]')"
    assert str(caught.value) == wanted
    assert Credentials.make(str(tmp_path), kind_of("sasl_plaintext"), []).passwords


def test_settings_pass_a_pipe_with_nothing_behind_them_read() -> None:
    reader, writer = os.pipe()
    settings = {"a": "ü" * 40_000 + "\n"}
    data = settings_bytes(settings)
    os.write(writer, data[:3])
    os.write(writer, data[3:50_000])
    assert len(data) > 65536 - 3
    import threading

    rest = threading.Thread(target=lambda: os.write(writer, data[50_000:] + b"{call}\n"))
    rest.start()
    assert read_settings(reader) == settings
    rest.join()
    assert os.read(reader, 100) == b"{call}\n"
    os.close(writer)
    with pytest.raises(EOFError):
        read_settings(reader)
    os.close(reader)


async def brokers_of(cluster: tidelog.Cluster, **wishes: Any) -> int:
    """How many brokers a client of TLS sees."""
    config = cluster.client_config("aiokafka", **wishes)
    first = config["bootstrap_servers"].split(",")[0]
    async with await WireClient.connect(first, config["ssl_context"]) as client:
        answer = await client.ask(MetadataRequest(topics=[]), 9)
        return len(answer.brokers)


def test_one_and_three_brokers_with_tls_in_this_loop(tmp_path: Path) -> None:
    async def test() -> None:
        async with tidelog.Cluster(security="ssl", data_dir=tmp_path / "one") as one:
            assert await brokers_of(one) == 1
            assert one.security.folder == str(tmp_path / "one" / "security")
            for bad in BAD_CERTIFICATES:
                with pytest.raises(OSError, match="certificate verify failed"):
                    await brokers_of(one, certificate=bad)
        kept = (tmp_path / "one" / "security" / "authority.pem").read_bytes()
        several = tidelog.Cluster(
            security=Security("mtls", tmp_path / "one/security"), brokers=3, data_dir=tmp_path
        )
        async with several as three:
            assert await brokers_of(three) == 3
            with pytest.raises((OSError, EOFError)):
                await brokers_of(three, client_certificate="none")
        assert (tmp_path / "one" / "security" / "authority.pem").read_bytes() == kept

    run(test)


def test_without_security_clients_need_the_address_alone() -> None:
    state = SecurityState("h:1,h:2")
    from tidelog.control.credentials.state import client_config

    assert client_config(state, "confluent-kafka", {})["bootstrap.servers"] == "h:1,h:2"
    assert client_config(state, "kafkajs", {}) == {"brokers": ["h:1", "h:2"]}
    assert client_config(state, "franz-go", {}) == {"seeds": ["h:1", "h:2"]}
    with pytest.raises(tidelog.ClusterError, match="client 'sarama' is none of aiokafka"):
        client_config(state, "sarama", {})


def test_java_texts_escape_what_they_must(credentials: dict[str, Credentials]) -> None:
    from tidelog.control.credentials.clients import configuration

    odd: Wishes = {"user": "a b", "password": 'x"\\'}
    client = client_of(credentials["sasl_ssl"], "h:1", {}, odd)
    text = configuration("java", client)
    assert 'username="a b" password="x\\\\"\\\\\\\\";\n' in text
    assert configuration("spark", client)["kafka.sasl.jaas.config"].endswith('password="x\\"\\\\";')
    assert configuration("kcat", client).endswith('sasl.password=x"\\\n')


def test_clients_of_java_read_a_token_from_a_file(credentials: dict[str, Credentials]) -> None:
    from tidelog.control.credentials.clients import configuration
    from tidelog.embedded.client_security import ClientSecurity

    given = client_of(credentials["sasl_ssl"], "h:1", {}, {"token": tokens.new("eve")})
    assert given.mechanism == "OAUTHBEARER"
    with pytest.raises(tidelog.ClusterError, match="makes its tokens itself"):
        configuration("kcat", given)
    for prefix, name in (("", "tidelog"), ("kafka.", "spark")):
        config = configuration(name, given)
        url = config[f"{prefix}sasl.oauthbearer.token.endpoint.url"]
        file = Path(url.removeprefix("file://"))
        assert file.read_text() == given.token()
        assert file.stat().st_mode & 0o777 == 0o600
    keywords = ClientSecurity(configuration("tidelog", given)).aiokafka_config()
    assert asyncio.run(keywords["sasl_oauth_token_provider"].token()) == given.token()
    expired = client_of(credentials["sasl_ssl"], "h:1", {}, {"token": "expired"})
    assert "unsecuredLoginLifetimeSeconds" in configuration("java", expired)
    assert configuration("kafkajs", given)["sasl"]["token"] == given.token()


def test_bad_certificates_have_the_ports_that_are_asked_for(tmp_path: Path) -> None:
    security = Security("ssl", tmp_path / "s", bad_port=9192)
    security.make("", "0.0.0.0")
    given = {
        "listeners": "PLAINTEXT://0.0.0.0:9093",
        "advertised.listeners": "PLAINTEXT://away:1",
    }
    made = security.secured(given, 1, [])
    ports = "EXPIRED://{0}:9195,WRONG_HOST://{0}:9196,SELF_SIGNED://{0}:9197"
    assert made["listeners"] == f"SSL://0.0.0.0:9093,{ports.format('0.0.0.0')}"
    assert made["advertised.listeners"] == f"SSL://away:1,{ports.format('away')}"


def test_a_folder_of_the_data_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    """Its mode would change, and secrets come there. A folder that the user names may be a link."""
    (elsewhere := tmp_path / "elsewhere").mkdir()
    mode = elsewhere.stat().st_mode
    (tmp_path / "data").mkdir()
    (link := tmp_path / "data" / "security").symlink_to(elsewhere)
    with pytest.raises(tidelog.ClusterError, match=f"{link} is a symbolic link"):
        Security("sasl_plaintext").make(f"{tmp_path}/data", "localhost")
    assert list(elsewhere.iterdir()) == []
    assert elsewhere.stat().st_mode == mode
    Security("sasl_plaintext", link).make(f"{tmp_path}/data", "localhost")
    assert (elsewhere / "secrets.json").exists()


def test_new_folders_above_the_credentials_are_the_owners_alone(tmp_path: Path) -> None:
    """The first of them is the folder of the data."""
    before = tmp_path.stat().st_mode
    Credentials.make(f"{tmp_path}/data/x/security", kind_of("sasl_plaintext"), ())
    for name in ("data", "data/x", "data/x/security"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700
    assert tmp_path.stat().st_mode == before


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_argument_of_a_process_has_a_secret() -> None:
    """Over the pipe and over HTTP the configurations are the same."""
    secret = {"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "87654321"}
    options: Any = {"brokers": 2, "isolated": True, "security": "sasl_plaintext"}
    with tidelog.run(secret, **options) as cluster:
        passwords = [cluster.client_config("java", user=each) for each in ("admin", "alice")]
        words = [
            Path(f"/proc/{pid}/cmdline").read_text()
            for pid in (cluster.pid, *(broker.pid for broker in cluster.brokers))
        ]
        assert len({*passwords}) == 2
        known = cluster.client_config("aiokafka")
        for text in words:
            assert "87654321" not in text
            assert "sasl.jaas.config" not in text
        assert known["sasl_plain_password"] not in "".join((*words, cluster.log))
        assert HttpControl.client_config is tidelog.RunningCluster.client_config


def test_the_helpers_of_tests_write_and_read_a_secured_cluster() -> None:
    with tidelog.run(security="sasl_ssl") as cluster:
        cluster.create_topic("t")
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            client = cluster.client_config("tidelog", mechanism=mechanism)
            produce(client, "t", [mechanism])
        assert_records(client, "t", ["PLAIN", "SCRAM-SHA-256"])
        with pytest.raises(tidelog.ClusterError, match="Invalid username or password"):
            produce(cluster.client_config("tidelog", password="wrong"), "t", ["x"])
        with pytest.raises(tidelog.ClusterError, match="expired"):
            produce(cluster.client_config("tidelog", certificate="expired"), "t", ["x"])


def test_descriptions_of_settings_hide_secrets() -> None:
    async def test() -> None:
        async with tidelog.Cluster(security="sasl_plaintext") as cluster:
            config = cluster.client_config("tidelog", user="admin")
            password = cluster.client_config("aiokafka", user="admin")["sasl_plain_password"]

            def described() -> str:
                resource = DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=4, resource_name="1", configuration_keys=None
                )
                request = DescribeConfigsRequest(resources=[resource])
                with opened(config) as client:
                    return str(client.broker(1).ask(request))

            text = await asyncio.to_thread(described)
            assert "sasl.jaas.config" in text
            assert password not in text
            assert password not in repr(cluster.brokers[0].config)

    run(test)
