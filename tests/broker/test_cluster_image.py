"""Look-ups in an image."""

from __future__ import annotations

from support.metadata import cluster, topic
from tidelog.cluster.metadata.image import BrokerImage, ClusterImage, is_internal_topic


def test_partitions() -> None:
    image = cluster(topic("a", 1, partitions=2))
    found = image.partition("a", 1)
    assert found is not None
    assert found.partition == 1
    assert image.partition("a", 2) is None
    assert image.partition("a", -1) is None
    assert image.partition("b", 0) is None


def test_topics_by_id() -> None:
    image = cluster(topic("a", 1))
    assert image.topic_by_id((1).to_bytes(16, "big")) is image.topics["a"]
    assert image.topic_by_id(bytes(16)) is None


def test_brokers_alive() -> None:
    image = cluster(
        brokers=[
            BrokerImage(3, "c", 3),
            BrokerImage(2, "b", 2, fenced=True),
            BrokerImage(1, "a", 1),
        ]
    )
    assert [broker.node_id for broker in image.alive_brokers()] == [1, 3]
    assert not image.is_alive(2)
    assert not image.is_alive(-1)
    assert [image.is_active(node_id) for node_id in (1, 2, -1)] == [True, False, False]
    leaving = image.brokers[1]._replace(in_controlled_shutdown=True)
    image = cluster(brokers=[leaving])
    assert image.is_alive(1)
    assert not image.is_active(1)


def test_an_empty_cluster() -> None:
    image = ClusterImage(cluster_id="x")
    assert image.alive_brokers() == []
    assert image.topic_config("a") == {}
    assert image.broker_config(1) == {}
    assert "topics=0" in repr(image)


def test_internal_topics() -> None:
    assert is_internal_topic("__consumer_offsets")
    assert is_internal_topic("__transaction_state")
    assert not is_internal_topic("__cluster_metadata")
    assert not is_internal_topic("__mine")
