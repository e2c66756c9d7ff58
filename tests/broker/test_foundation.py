"""What a broker stands on before it knows anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.broker import BrokerConfig
from tidelog.doors.cluster_settings import node_properties
from tidelog.foundation import open_logs
from tidelog.runtime import system_runtime

if TYPE_CHECKING:
    from pathlib import Path


def test_nodes_with_the_same_voters_agree_on_the_id_of_their_new_cluster(tmp_path: Path) -> None:
    """Of one address in 64 the id would begin with a dash, and was looked for for ever."""
    for port in (9000, 9028):
        one, other = (first_cluster_id(node_id, port, tmp_path) for node_id in (1, 2))
        assert one == other
        assert len(one) == 22
        assert not one.startswith("-")


def first_cluster_id(node_id: int, port: int, tmp_path: Path) -> str:
    properties = node_properties(
        {},
        node_id=node_id,
        voters={1: f"a.example:{port}", 2: f"b.example:{port}"},
        host="127.0.0.1",
        port=0,
        data_dir=str(tmp_path / f"{port}-{node_id}"),
    )
    logs, cluster_id = open_logs(BrokerConfig.from_properties(properties), system_runtime())
    logs.abandon()
    return cluster_id
