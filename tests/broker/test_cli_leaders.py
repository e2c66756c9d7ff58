"""`tidelog leaders elect --unclean`: a replica that is not in sync leads, and records are lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import tidelog
from tidelog.__main__ import main
from tidelog.embedded.cluster_client import ClusterClient
from tidelog.testing.records import produce, read_all

if TYPE_CHECKING:
    import pytest

SECONDS_MAX = 120.0
NO_LEADER = -1


def until_led(cluster: tidelog.RunningCluster, leader: int, isr: list[int]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        with ClusterClient(cluster.bootstrap_servers) as client:
            (topic,) = client.topics(["t"])
        (partition,) = topic.partitions
        found = (partition.leader_id, list(partition.isr_nodes))
        if found == (leader, isr):
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def test_an_unclean_election_is_held_on_request_only(capsys: pytest.CaptureFixture[str]) -> None:
    with tidelog.run(brokers=3) as cluster:
        cluster.create_topic("t", replication_factor=2)
        with ClusterClient(cluster.bootstrap_servers) as client:
            (topic,) = client.topics(["t"])
        leader_id, behind_id = topic.partitions[0].replica_nodes
        brokers = {broker.node_id: broker for broker in cluster.brokers}
        produce(cluster.bootstrap_servers, "t", ["both have it"])
        brokers[behind_id].stop()
        until_led(cluster, leader_id, [leader_id])
        produce(cluster.bootstrap_servers, "t", ["one has it"])
        brokers[leader_id].stop()
        brokers[behind_id].start()
        until_led(cluster, NO_LEADER, [])  # it is eligible (KIP-966)

        def elect(*words: str) -> tuple[int, str, str]:
            code = main(["leaders", "-b", cluster.bootstrap_servers, "elect", "t", *words])
            return code, *capsys.readouterr()

        code, out, err = elect()
        assert (code, out) == (1, "")
        assert err.startswith("tidelog leaders: t-0: ")
        assert "PREFERRED_LEADER_NOT_AVAILABLE" in err
        assert elect("--unclean") == (0, "t-0: elected\n1 elected, 0 did not need it\n", "")
        until_led(cluster, behind_id, [behind_id])
        assert elect("--unclean")[1] == "0 elected, 1 did not need it\n"
        read = read_all(cluster.bootstrap_servers, "t")
        assert [record.value for record in read] == [b"both have it"]
