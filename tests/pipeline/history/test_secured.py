"""Reads and writes of secured clusters, with the options that Spark's Kafka source takes."""

from __future__ import annotations

import pickle

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")
pytest.importorskip("cryptography", reason="the security extra is not installed")

from confluent_kafka import Producer

import tidelog
from tidelog.embedded.cluster_settings import ClusterError
from tidelog_pipeline.history import HistoryOptions, plan, read_split
from tidelog_pipeline.operations import OperationError, Source
from tidelog_pipeline.operations.lanes import Lane, LaneRows, Target, replay_lane

COUNT = 40


@pytest.fixture(scope="module", params=["mtls", "sasl_ssl"])
def cluster(request: pytest.FixtureRequest):
    with tidelog.run(security=request.param) as cluster:
        producer = Producer(cluster.client_config("confluent-kafka"))
        for number in range(COUNT):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(30) == 0
        yield request.param, cluster


def read(given: dict[str, str]) -> int:
    splits, settings = plan(HistoryOptions.parse({**given, "subscribe": "orders"}))
    settings = pickle.loads(pickle.dumps(settings))  # it goes to a task
    return sum(one.num_rows for split in splits for one in read_split(split, settings, ["offset"]))


def test_each_way_to_authenticate(cluster) -> None:
    kind, brokers = cluster
    mechanisms = ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"] if kind == "sasl_ssl" else [None]
    for mechanism in mechanisms:
        wish = {} if mechanism is None else {"mechanism": mechanism}
        assert read(brokers.client_config("spark", **wish)) == COUNT


def test_refusals_are_one_line_without_secrets(cluster) -> None:
    kind, brokers = cluster
    with pytest.raises(ClusterError, match="certificate is not trusted: certificate has expired"):
        read(brokers.client_config("spark", certificate="expired"))
    if kind == "sasl_ssl":
        with pytest.raises(ClusterError, match="not authenticated") as caught:
            read(brokers.client_config("spark", password="hush-hush"))
        assert "hush-hush" not in str(caught.value)
    else:
        # With TLS 1.3 the broker refuses after the client's handshake: its alert may be lost.
        with pytest.raises(ClusterError, match=r"no answer from|certificate required"):
            read(brokers.client_config("spark", client_certificate="none"))
    plain = brokers.client_config("spark")["kafka.bootstrap.servers"]
    with pytest.raises(ClusterError, match="no answer from"):
        read({"kafka.bootstrap.servers": plain})


def test_secrets_are_in_no_representation(cluster) -> None:
    kind, brokers = cluster
    given = brokers.client_config("spark", **({"password": "hush-hush"} if kind != "mtls" else {}))
    secrets = [text for name, text in given.items() if "password" in name or "jaas" in name]
    options = HistoryOptions.parse({**given, "subscribe": "orders"})
    source = Source(given["kafka.bootstrap.servers"], "orders", given)
    for secret in (*secrets, "hush-hush"):
        assert secret not in repr(options)
        assert secret not in repr(source)


def test_a_replay_writes_to_a_secured_topic(cluster) -> None:
    _, brokers = cluster
    given = brokers.client_config("spark")
    servers = given["kafka.bootstrap.servers"]
    source, target = (Source(servers, name, given) for name in ("orders", "again"))
    brokers.create_topic("again")
    lane = Lane("again-0", 0, 0, COUNT)
    aim = Target(target, 1, keeps_partitions=True, batch_bytes=1000)
    assert replay_lane(lane, aim, LaneRows(source, lane)) == COUNT
    with pytest.raises(OperationError, match="no answer from"):
        Source(servers, "orders").ranges(None, "latest")
