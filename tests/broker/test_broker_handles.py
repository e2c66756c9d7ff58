"""Handles of single brokers, on one broker as on several: a restart keeps data and ports."""

from __future__ import annotations

import os
from typing import Any

import pytest

import tidelog
from support.clusters import run


@pytest.mark.parametrize("isolated", [False, True])
def test_the_only_broker_has_a_handle_that_restarts_it_in_place(isolated: bool) -> None:
    with tidelog.run({"auto.create.topics.enable": False}, isolated=isolated) as cluster:
        (broker,) = cluster.brokers
        servers = cluster.bootstrap_servers
        assert broker.bootstrap_server == servers
        assert (broker.pid == cluster.pid) == (not isolated)
        cluster.create_topic("t")
        for end in (broker.kill,) if isolated else (broker.kill, broker.stop):
            end()
            assert not broker.is_running
            with pytest.raises(tidelog.ClusterError, match="broker 1 is not running"):
                assert broker.bootstrap_server
            with pytest.raises(tidelog.ClusterError, match="the cluster is not running"):
                assert cluster.bootstrap_servers
            with pytest.raises(tidelog.ClusterError, match="no broker is running; start one"):
                cluster.create_topic("u")
            broker.start()
            assert (broker.is_running, cluster.bootstrap_servers) == (True, servers)
            assert [topic.name for topic in cluster.state().topics] == ["t"]


def test_a_handle_has_the_node_id_of_the_settings() -> None:
    with tidelog.run({"node.id": 5}) as cluster:
        (broker,) = cluster.brokers
        broker.kill()
        broker.start()
        assert broker.node_id == 5
        assert broker.is_running


def test_three_brokers_come_back_at_their_ports_together_or_as_a_majority() -> None:
    """Alone, the first of three waited 30 s for a majority that no call could start."""
    with tidelog.run(brokers=3) as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topic("t")
        for broker in cluster.brokers:
            broker.kill()
        with pytest.raises(
            tidelog.ClusterError, match=r"1 of 3 voters .* start all brokers at once"
        ):
            cluster.brokers[0].start()
        cluster.start_brokers()
        assert cluster.bootstrap_servers == servers
        cluster.kill()
        cluster.start()
        assert cluster.bootstrap_servers == servers
        assert len(cluster.state().partition("t").replicas) == 3


def test_nodes_have_the_same_properties() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=2) as cluster:
            first, second = cluster.brokers
            assert first.pid == os.getpid()
            assert first.is_voter
            await first.kill()
            await second.kill()
            with pytest.raises(tidelog.ClusterError, match="broker 1 is not running"):
                assert first.pid
            for _ in range(2):  # all run already the second time
                await cluster.start_brokers()
                assert [node.is_running for node in cluster.brokers] == [True, True]

    run(test)


@pytest.mark.parametrize(
    ("arguments", "text"), [({"brokers": 2, "port": [1, 2, 3]}, "3 ports for 2 brokers")]
)
def test_wrong_ports_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(tidelog.ClusterError, match=text):
        tidelog.Cluster(**arguments)
