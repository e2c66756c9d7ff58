"""The console tools with `--command-config`: brokers that ask for TLS and SASL."""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from tidelog.__main__ import main
from tidelog.embedded.cluster_client import opened
from tidelog_protocol.messages.tokens import CreateDelegationTokenRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SMALL = {
    "delegation.token.secret.key": "a secret of all brokers",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def cluster(data_dir: Path) -> Iterator[tidelog.RunningCluster]:
    with tidelog.run(SMALL, security="sasl_ssl", data_dir=data_dir) as running:
        running.create_topic("t")
        yield running


@pytest.fixture
def config(cluster: tidelog.RunningCluster, tmp_path: Path) -> Callable[..., str]:
    """Write a file of properties; returns its path."""

    def write(**wishes: Any) -> str:
        path = tmp_path / "client.properties"
        path.write_text(cluster.client_config("java", **wishes))
        return str(path)

    return write


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command; returns its exit code, output and errors."""

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def wrote(topic: str, lines: str, config: str) -> tuple[int, str]:
    words = [sys.executable, "-m", "tidelog", "produce", topic, "--command-config", config]
    ended = subprocess.run(
        words, input=lines, capture_output=True, text=True, timeout=120, check=False
    )
    return ended.returncode, ended.stderr


def read(tool: Any, topic: str, config: str, *more: str) -> str:
    words = ["consume", topic, "--until-end", "--command-config", config, *more]
    code, out, err = tool(*words)
    assert (code, err) == (0, "")
    return str(out)


def test_all_tools_reach_brokers_that_ask_for_security(
    config: Callable[..., str], tool: Any
) -> None:
    """The address is that of the file."""
    file = ("--command-config", config())
    assert tool("topics", *file, "create", "made") == (0, "made: created\n", "")
    assert json.loads(tool("topics", "list", *file, "--json")[1])[0]["name"] == "made"
    assert wrote("made", "a\nb\n", file[1]) == (0, "2 records written to made\n")
    assert read(tool, "made", file[1], "--group", "g", "--from-beginning") == "a\nb\n"
    (row,) = json.loads(tool("groups", "describe", "g", *file, "--json")[1])
    assert (row["topic"], row["lag"]) == ("made", 0)
    assert tool("groups", *file, "reset", "g", "--to", "earliest")[0] == 0
    assert tool("configs", "describe", "topic", "made", *file)[0] == 0
    assert tool("configs", *file, "describe", "broker", "1")[0] == 0
    assert tool("leaders", "elect", "made", *file)[0] == 0
    assert tool("transactions", "list", *file)[0] == 0
    assert tool("tiers", "made", *file)[0] == 0
    assert tool("records", "delete", "made", "--before", "1", *file)[0] == 0
    assert tool("topics", "delete", "made", *file)[0] == 0


def test_a_broker_named_by_the_arguments_goes_first(
    cluster: tidelog.RunningCluster, config: Callable[..., str], tool: Any
) -> None:
    file = config()
    assert tool("verify", cluster.bootstrap_servers, "--command-config", file)[0] == 0
    told = tool("topics", "list", "-b", "127.0.0.1:1", "--command-config", file)
    assert told[:2] == (1, "")
    assert told[2].startswith("tidelog topics: no broker at 127.0.0.1:1: ")


def test_a_delegation_token(
    cluster: tidelog.RunningCluster, config: Callable[..., str], tool: Any
) -> None:
    request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
    with opened(cluster.client_config("tidelog")) as client:
        made = client.ask(request)
    login = {"user": made.token_id, "password": base64.b64encode(made.hmac).decode()}
    file = Path(config(mechanism="SCRAM-SHA-256", **login))
    file.write_text(file.read_text().replace('";', '" tokenauth="true";'))
    words = ("topics", "list", "--command-config", str(file))
    while tool(*words)[0]:  # the broker knows the token a little later
        time.sleep(0.05)
    told = tool("consume", "t", "--command-config", str(file))[2]
    assert told.endswith("sasl.jaas.config: tokenauth=true is not known to aiokafka\n")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism(mechanism: str, config: Callable[..., str], tool: Any) -> None:
    file = config(mechanism=mechanism)
    assert tool("topics", "list", "--command-config", file)[0] == 0
    assert read(tool, "t", file, "--from-beginning") == ""


def test_what_is_wrong_is_one_line_without_secrets(
    cluster: tidelog.RunningCluster, config: Callable[..., str], tool: Any, tmp_path: Path
) -> None:
    secret = cluster.client_config("aiokafka")["sasl_plain_password"]

    def failed(path: str, *words: str) -> str:
        code, out, err = tool(*(words or ("topics", "list")), "--command-config", path)
        assert (code, out) == (1, "")
        assert err.count("\n") == 1
        assert secret not in err
        return str(err)

    assert "Invalid username or password" in failed(config(password="wrong"))
    assert "invalid_token" in failed(config(mechanism="OAUTHBEARER", token="expired"))
    assert "expired" in failed(config(certificate="expired"))
    assert failed("none.properties") == (
        "tidelog topics: none.properties: No such file or directory\n"
    )
    assert "certificate" in failed(config(certificate="self-signed"), "consume", "t")
    file = tmp_path / "odd.properties"
    kept = cluster.client_config("java").replace("PlainLoginModule required", "PlainLoginModule")
    file.write_text(kept)
    assert "sasl.jaas.config: " in failed(str(file))
    file.write_text("security.protocol=TLS\n")
    assert "security.protocol: 'TLS' is none of PLAINTEXT" in failed(str(file))


def test_a_certificate_of_the_client(tmp_path: Path, tool: Any) -> None:
    file = tmp_path / "client.properties"
    with tidelog.run(SMALL, security="mtls") as cluster:
        cluster.create_topic("t")
        file.write_text(cluster.client_config("java"))
        assert tool("topics", "list", "--command-config", str(file))[1].split()[2:] == ["t", "1"]
        assert wrote("t", "a\n", str(file)) == (0, "1 record written to t\n")
        file.write_text(cluster.client_config("java", client_certificate="none"))
        code, _, err = tool("topics", "list", "--command-config", str(file))
        assert (code, err.count("\n")) == (1, 1)


def test_configurations_are_printed(
    cluster: tidelog.RunningCluster, data_dir: Path, tool: Any, tmp_path: Path
) -> None:
    words = ("--security-dir", str(data_dir / "security"), "-b", cluster.bootstrap_servers)
    for name in ("java", "kcat"):
        wanted = cluster.client_config(name, user="bob")
        assert tool("client-config", name, *words, "--user", "bob") == (0, wanted, "")
    scram = ("--mechanism", "SCRAM-SHA-512")
    printed = json.loads(tool("client-config", "confluent-kafka", *words, *scram)[1])
    assert printed == cluster.client_config("confluent-kafka", mechanism="SCRAM-SHA-512")
    bearer = ("--mechanism", "OAUTHBEARER")
    told = tool("client-config", "confluent-kafka", *words, *bearer)
    assert told[2] == "tidelog client-config: confluent-kafka takes its tokens from a function\n"
    told = tool("client-config", "java", *words, "--user", "eve")
    assert "there is no user 'eve' but admin, alice, bob" in told[2]
    told = tool("client-config", "java", "--security-dir", str(tmp_path / "none"))
    assert told[:2] == (1, "")
    assert told[2].endswith("none: no such folder\n")


@pytest.mark.parametrize(
    "wish",
    [
        {"certificate": "expired"},
        {"certificate": "wrong-host"},
        {"certificate": "self-signed"},
        {"password": "wrong"},
        {"token": "expired"},
        {"token": "e30.e30."},
    ],
    ids=lambda wish: "-".join(*wish.items()),
)
def test_what_is_wrong_on_request_is_printed(
    wish: dict[str, str], cluster: tidelog.RunningCluster, data_dir: Path, tool: Any, tmp_path: Path
) -> None:
    words = ["--security-dir", str(data_dir / "security"), "-b", cluster.bootstrap_servers]
    (name, value), file = next(iter(wish.items())), tmp_path / "client.properties"
    wanted = cluster.client_config("java", **wish)  # type: ignore[arg-type]
    printed = tool("client-config", "java", *words, f"--{name}", value)
    assert printed == (0, wanted, "")
    file.write_text(printed[1])
    code, _, err = tool("topics", "list", "--command-config", str(file))
    assert (code, err.count("\n")) == (1, 1)


def test_serve_says_how_clients_get_their_configuration(tool: Any) -> None:
    command = [sys.executable, "-m", "tidelog", "serve", "--port", "0", "--security"]
    with subprocess.Popen([*command, "sasl_plaintext"], stdout=subprocess.PIPE, text=True) as serve:
        assert serve.stdout is not None
        try:
            ready, need = serve.stdout.readline(), serve.stdout.readline()
            said, *words = shlex.split(need.removeprefix("clients need: "))
            assert said == "tidelog"
            code, printed, _ = tool(*words)
        finally:
            serve.terminate()
    assert (code, serve.returncode) == (0, 0)
    assert f"bootstrap.servers={ready.partition('=')[2]}" in printed
    assert "sasl.jaas.config" in printed
