"""Topics by control calls: created and deleted, with the errors of Kafka."""

from __future__ import annotations

from typing import Any

import pytest

import tidelog
from support.clusters import image_of, run
from tidelog.control.errors import ControlError


def test_a_created_topic_is_served_by_all_brokers_at_once() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            await cluster.create_topic("t", partitions=6, config={"retention.ms": 1000})
            for node in cluster.brokers:
                topic = image_of(node).topics["t"]
                assert [len(each.replicas) for each in topic.partitions] == [3] * 6
                assert image_of(node).topic_config("t") == {"retention.ms": "1000"}
            await cluster.topics.create("one", replication_factor=1, config={"preallocate": False})
            with pytest.raises(tidelog.ClusterError, match="Topic 't' already exists"):
                await cluster.create_topic("t")
            await cluster.delete_topic("t")
            assert all("t" not in image_of(node).topics for node in cluster.brokers)
            await cluster.delete_topic("t", missing_ok=True)

    run(test)


def test_without_a_majority_of_voters_the_answer_comes_at_once() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            await cluster.create_topic("kept")
            for broker in cluster.brokers[1:]:
                await broker.kill()
            for attempt in (
                cluster.create_topic("t"),
                cluster.delete_topic("kept"),
                cluster.topics.elect("kept", 0),
                cluster.topics.move("kept", 0, [1]),
                cluster.reset(),
            ):
                with pytest.raises(tidelog.TidelogError, match=r"1 of 3 voters .* start"):
                    await attempt
            await cluster.start_brokers()
            await cluster.create_topic("t")

    run(test)


@pytest.mark.parametrize(
    ("arguments", "field", "status"),
    [
        ({"name": "t", "partitions": 0}, "partitions", 400),
        ({"name": "t", "partitions": 2**31}, "partitions", 400),
        ({"name": "t", "partitions": "2"}, "partitions", 400),
        ({"name": "t", "replication_factor": 4}, "replication_factor", 400),
        ({"name": "t", "replication_factor": 2**15}, "replication_factor", 400),
        ({"name": "a/b"}, "name", 400),
        ({"name": "t", "config": {"retention.mz": 1}}, "config", 400),
        ({"name": "t", "config": {"retention.ms": None}}, "config.retention.ms", 400),
        ({"name": "t", "factor": 1}, "factor", 400),
        ({}, "name", 400),
    ],
)
def test_a_refused_topic_names_the_field(
    arguments: dict[str, Any], field: str, status: int, cluster: tidelog.RunningCluster
) -> None:
    with pytest.raises(ControlError) as raised:
        cluster.ask("topics.create", arguments)
    assert (raised.value.field, raised.value.status) == (field, status)


def test_an_unknown_topic_is_not_deleted(cluster: tidelog.RunningCluster) -> None:
    with pytest.raises(ControlError, match="does not host this topic") as raised:
        cluster.topics.delete("none")
    assert (raised.value.field, raised.value.status) == ("name", 404)


@pytest.fixture(scope="module")
def cluster() -> Any:
    with tidelog.run() as running:
        yield running
