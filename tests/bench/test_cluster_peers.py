"""The door of measured clusters, on three real tidelog nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidelog_bench.peers.address import active_controller, live_brokers
from tidelog_bench.peers.apache_kafka import ApacheKafkaCluster
from tidelog_bench.peers.tidelog import TidelogCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODES = frozenset({1, 2, 3})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TidelogCluster]:
    made = TidelogCluster(tmp_path, {"broker.session.timeout.ms": "1500"})
    yield made
    made.remove()


def test_nodes_start_end_and_come_back_one_by_one(cluster: TidelogCluster) -> None:
    assert cluster.start() > 0
    addresses = [node.bootstrap for node in cluster.nodes.values()]
    assert cluster.bootstrap.split(",") == addresses
    assert [live_brokers(address) for address in addresses] == [NODES] * 3
    assert active_controller(addresses[0]) in NODES
    spent = cluster.cpu_seconds()
    assert spent > 0

    cluster.kill(2)
    assert not cluster.nodes[2].is_running
    with pytest.raises(OSError, match="refused"):
        live_brokers(addresses[1])
    cluster.start(2)
    assert 2 in live_brokers(addresses[1])

    assert cluster.stop(3) == 0
    cluster.check()
    assert cluster.stop() == 0
    assert not any(node.is_running for node in cluster.nodes.values())


def test_a_node_that_ended_on_its_own_is_reported(cluster: TidelogCluster) -> None:
    node = cluster.nodes[1]
    child = node.launch()
    cluster.nodes[2].port = node.port  # cannot listen: the first node does, or will have
    other = cluster.nodes[2].launch()

    def watch() -> None:
        while True:
            child.check()
            other.check()

    with pytest.raises(RuntimeError, match="ended: 1"):
        watch()


def test_kafka_nodes_have_places_of_their_own_in_one_quorum(tmp_path: Path) -> None:
    nodes = ApacheKafkaCluster(tmp_path).nodes
    assert frozenset(nodes) == NODES
    assert len({node.bootstrap for node in nodes.values()}) == 3
    assert len({node.folder for node in nodes.values()}) == 3
