"""Real clients and clusters with `security`: each client with each kind, and what each refuses.

CI has a sample; the rest runs at night.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from compat.conformance.sasl.doors import KafkaSasl
from compat.jvm import require_jars
from compat.refusals import AUTHORIZER, REFUSALS, CommandLine, topics_of, unlike
from compat.secured_clients import JAVA, THROUGH, through_java
from tidelog.__main__ import main
from tidelog.control.credentials import tokens
from tidelog.control.credentials.clients import configuration
from tidelog.control.credentials.wishes import Client, Wishes
from tidelog.embedded.running import RunningCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat.jvm import Jvm, ToolResult

pytestmark = [
    pytest.mark.compat,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("secured"),  # one process has the clusters
]

CLIENTS = (*THROUGH, JAVA)
KINDS: dict[str, tuple[str, Wishes]] = {
    "tls": ("ssl", {}),
    "mtls": ("mtls", {"user": "bob"}),
    "plain": ("sasl_ssl", {}),
    "scram-256": ("sasl_ssl", {"mechanism": "SCRAM-SHA-256"}),
    "scram-512": ("sasl_ssl", {"mechanism": "SCRAM-SHA-512", "user": "bob"}),
    "token": ("sasl_ssl", {"mechanism": "OAUTHBEARER"}),
    "without-tls": ("sasl_plaintext", {"mechanism": "SCRAM-SHA-512"}),
}
IN_CI = {
    ("confluent-kafka", "mtls"),
    ("confluent-kafka", "token"),
    ("confluent-kafka", "scram-256"),
    ("aiokafka", "scram-512"),
    ("kafka-python", "plain"),
    ("franz-go", "mtls"),
}

REFUSALS_IN_CI = {("confluent-kafka", kind) for kind in REFUSALS}


class Secured:
    """The clusters of this module, each started when it is first used."""

    def __init__(self) -> None:
        self._clusters: dict[str, RunningCluster] = {}

    def of(self, security: str) -> RunningCluster:
        if security not in self._clusters:
            self._clusters[security] = tidelog.run(security=security).start()
        return self._clusters[security]

    def stop(self) -> None:
        for cluster in self._clusters.values():
            cluster.stop()


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    clusters = Secured()
    yield clusters
    clusters.stop()


Through = Callable[[str, RunningCluster, Wishes, str], str]


@pytest.fixture
def through(request: pytest.FixtureRequest, tmp_path: Path) -> Through:
    def call(client: str, cluster: RunningCluster, wishes: Wishes, topic: str) -> str:
        if client == JAVA:
            return through_java(request.getfixturevalue("java"), tmp_path, cluster, wishes, topic)
        return THROUGH[client](cluster, wishes, topic)

    return call


def table(pairs: set[tuple[str, str]], names: Any) -> list[Any]:
    return [
        pytest.param(*(client, name), marks=() if (client, name) in pairs else pytest.mark.nightly)
        for client in CLIENTS
        for name in names
    ]


@pytest.mark.parametrize(("client", "kind"), table(IN_CI, KINDS))
def test_a_client_writes_and_reads(
    client: str, kind: str, secured: Secured, through: Through
) -> None:
    security, wishes = KINDS[kind]
    cluster = secured.of(security)
    topic = f"{client}-{kind}"
    cluster.create_topic(topic)
    assert through(client, cluster, wishes, topic) == client


@pytest.mark.parametrize(("client", "wrong"), table(REFUSALS_IN_CI, REFUSALS))
def test_a_client_refuses_or_is_refused(
    client: str, wrong: str, secured: Secured, through: Through
) -> None:
    wishes, said = REFUSALS[wrong]
    cluster = secured.of("sasl_ssl")
    topic = f"{client}-refused"
    answer = through(client, cluster, wishes, topic)
    assert answer.startswith("error:")
    assert said[client] in answer


class ExpiredTokens:
    """The configurations of clients whose tokens have expired, for a broker without TLS."""

    def __init__(self, address: str) -> None:
        self._address = address

    def client_config(self, client: str, **_: Any) -> Any:
        expired = Client(
            self._address,
            "SASL_PLAINTEXT",
            mechanism="OAUTHBEARER",
            token=partial(tokens.new, "alice", is_expired=True),
            is_expired=True,
        )
        return configuration(client, expired)


@pytest.mark.reference
@pytest.mark.nightly  # a Kafka of its own
def test_apache_kafka_makes_clients_say_the_same_of_a_token(tmp_path: Path) -> None:
    require_jars()
    kafka = KafkaSasl(tmp_path)
    kafka.start()
    wishes, said = REFUSALS["token"]
    try:
        door: Any = ExpiredTokens(kafka.addresses["SASL"])
        for client in ("confluent-kafka", "aiokafka", "franz-go", "kafkajs"):
            answer = THROUGH[client](door, wishes, "t")
            assert answer.startswith("error:")
            assert said[client] in answer
    finally:
        kafka.stop()


@pytest.mark.nightly
@pytest.mark.tidelog(security="sasl_ssl", settings=AUTHORIZER)
def test_all_that_may_be_wrong_at_the_door_of_pytest(tidelog_cluster: RunningCluster) -> None:
    clients = ("confluent-kafka", "aiokafka", "kafkajs")
    for topic in topics_of(clients):
        tidelog_cluster.create_topic(topic)
    assert unlike(tidelog_cluster, clients) == {}


@pytest.mark.nightly
def test_all_that_may_be_wrong_at_the_door_of_the_command_line(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """As `tidelog serve` and `tidelog client-config` print them."""
    folder = str(tmp_path / "security")
    command = [sys.executable, "-m", "tidelog", "serve", "--port", "0", "--security", "sasl_ssl"]
    command += ["--security-dir", folder, "--bad-certificates"]
    for name, value in AUTHORIZER.items():
        command += ["--set", f"{name}={str(value).lower() if value is False else value}"]

    def java(door: Any, wishes: Wishes, topic: str) -> str:
        return through_java(request.getfixturevalue("java"), tmp_path, door, wishes, topic)

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serve:
        assert serve.stdout is not None
        try:
            servers = serve.stdout.readline().split("bootstrap.servers=")[1].split()[0]
            door = CommandLine(servers, folder)
            file = tmp_path / "admin.properties"
            file.write_text(door.client_config(JAVA, user="admin"))
            clients = ("franz-go", "kafkajs", JAVA)
            for topic in topics_of(clients):
                assert main(["topics", "create", topic, "--command-config", str(file)]) == 0
            assert unlike(door, clients, {JAVA: java}) == {}
        finally:
            serve.terminate()


def test_brokers_authenticate_to_each_other_and_users_have_the_rights_of_acls() -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    def create(user: str, topic: str) -> None:
        config = cluster.client_config("confluent-kafka", user=user, mechanism="SCRAM-SHA-256")
        admin = AdminClient(config)
        made = admin.create_topics([NewTopic(topic, 2, 2)], operation_timeout=60)
        made[topic].result(60)

    with tidelog.run(AUTHORIZER, brokers=2, security="sasl_ssl") as cluster:
        create("admin", "allowed")
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            create("alice", "denied")
        cluster.wait_for(
            lambda state: all(len(one.isr) == 2 for one in state.topic("allowed").partitions)
        )


@pytest.mark.nightly
def test_kafka_configs_sets_users_of_a_secured_cluster(
    secured: Secured, java: Jvm, tmp_path: Path
) -> None:
    """A user that kafka-configs sets lists topics until it is removed."""
    cluster = secured.of("sasl_ssl")
    cluster.create_topic("of-the-tools")

    def run(main: str, *words: str, **wishes: Any) -> ToolResult:
        file = tmp_path / "client.properties"
        file.write_text(cluster.client_config("java", **wishes))
        place = ("--bootstrap-server", cluster.bootstrap_servers, "--command-config", str(file))
        return java.tool(main, *words, *place)

    new = {"user": "carol", "password": "carols", "mechanism": "SCRAM-SHA-256"}
    assert "Exception" in run("TopicCommand", "--list", **new).err
    of_carol = ("--entity-type", "users", "--entity-name", "carol")
    configs = "kafka.admin.ConfigCommand"
    change = ("--alter", "--add-config", "SCRAM-SHA-256=[password=carols]")
    done = run(configs, *of_carol, *change, user="admin")
    assert done.out.strip() == "Completed updating config for user carol."
    described = run(configs, *of_carol, "--describe", user="admin")
    assert described.out.strip() == (
        "SCRAM credential configs for user-principal 'carol' are SCRAM-SHA-256=iterations=4096"
    )
    listed = run("TopicCommand", "--list", **new)
    assert "of-the-tools" in listed.out.split(), listed
    removed = ("--alter", "--delete-config", "SCRAM-SHA-256")
    assert run(configs, *of_carol, *removed, user="admin").exit == 0
    assert "Exception" in run("TopicCommand", "--list", **new).err
