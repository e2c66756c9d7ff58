"""Kafka's tools on a quorum whose log names the voters (KIP-853): Apache Kafka formats the first
controller, tidelog the second, and `kafka-metadata-quorum` adds and removes them."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from compat.brokers import READY, Tidelog
from compat.eventually import eventually
from tidelog.__main__ import main
from tidelog_bench.peers.address import free_ports

if TYPE_CHECKING:
    from pathlib import Path

    from compat.jvm import Jvm, ToolResult

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class Controller:
    """`tidelog broker` on a file of properties."""

    def __init__(self, folder: Path, node_id: int, ports: list[int]) -> None:
        self.config = folder / f"{node_id}.properties"
        self.bootstrap = f"127.0.0.1:{ports[node_id - 1]}"
        self.process: subprocess.Popen[bytes] | None = None
        self.controller = f"127.0.0.1:{ports[1 + node_id]}"
        lines = {
            "node.id": node_id,
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{self.controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{ports[2]}",
            "log.dirs": folder / str(node_id),
        }
        self.config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    @property
    def directory_id(self) -> str:
        """That of its metadata log."""
        meta = (self.config.parent / self.config.stem / "meta.properties").read_text()
        (found,) = re.findall(r"^directory.id=(\S+)$", meta, re.MULTILINE)
        return str(found)

    def start(self) -> None:
        command = [sys.executable, "-m", "tidelog", "broker", "--config", str(self.config)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().decode().startswith(READY)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()


def test_controllers_are_formatted_added_and_removed(java: Jvm, tmp_path: Path) -> None:
    ports = free_ports(4)
    first, second = (Controller(tmp_path, node_id, ports) for node_id in (1, 2))

    def storage(*args: str) -> ToolResult:
        return java.tool("kafka.tools.StorageTool", *args)

    def quorum(node: Controller, *args: str) -> ToolResult:
        return java.tool("MetadataQuorumCommand", "--bootstrap-server", node.bootstrap, *args)

    def shown(node: Controller, what: str) -> str:
        (text,) = re.findall(rf"{what}:\s+(.*)", quorum(node, "describe", "--status").out)
        return str(text)

    formatted = storage("format", "-t", CLUSTER_ID, "--standalone", "-c", str(first.config))
    assert formatted.exit == 0, formatted
    own: list[Any] = ["format", "-t", CLUSTER_ID, "-N", "--config", second.config]
    assert main([str(word) for word in own]) == 0
    info = storage("info", "-c", str(second.config))
    assert info.exit == 0, info
    assert f"directory.id={second.directory_id}" in info.out
    try:
        first.start()
        second.start()
        voter = f'"id": 1, "directoryId": "{first.directory_id}"'
        assert voter in shown(second, "CurrentVoters")
        assert second.directory_id in shown(second, "CurrentObservers")
        added = quorum(first, "--command-config", str(second.config), "add-controller")
        assert added.exit == 0, added
        endpoint = f"CONTROLLER://127.0.0.1:{ports[3]}"
        said = f"Added controller 2 with directory id {second.directory_id} and endpoints: "
        assert said + endpoint in added.out
        again = quorum(first, "--command-config", str(second.config), "add-controller")
        assert again.exit == 1
        assert "is already part of the set of voters" in again.out + again.err
        for node in (first, second):  # of which one is the active controller
            _controllers_are_asked(java, node.controller, [first.controller, second.controller])
        key = ["--controller-id", "1", "--controller-directory-id", first.directory_id]
        removed = quorum(second, "remove-controller", *key)
        assert removed.exit == 0, removed
        voters = eventually(
            lambda: shown(second, "CurrentVoters"), lambda text: '"id": 1' not in text
        )
        assert second.directory_id in voters
        missing = quorum(second, "remove-controller", *key)
        assert "Cannot remove voter ReplicaKey(id=1," in missing.out + missing.err, missing
    finally:
        for node in (first, second):
            node.stop()
    log = tmp_path / "2" / "__cluster_metadata-0" / "00000000000000000000.log"
    dumped = java.tool("DumpLogSegments", "--cluster-metadata-decoder", "--files", str(log))
    assert dumped.out.count("KRaftVoters {") == 3, dumped


def _controllers_are_asked(java: Jvm, asked: str, controllers: list[str]) -> None:
    """Tools go through one controller to the active one (KIP-919)."""
    to = ["--bootstrap-controller", asked]
    status = java.tool("MetadataQuorumCommand", *to, "describe", "--status")
    assert [f"CONTROLLER://{each}" in status.out for each in controllers] == [True, True], status
    endpoints = java.tool("ClusterTool", "list-endpoints", *to)
    rows = [line.split() for line in endpoints.out.splitlines()[1:]]
    assert [(f"{host}:{port}", kind) for _, host, port, _, kind in rows] == [
        (each, "controller") for each in controllers
    ]
    entity = ["--entity-type", "brokers", "--entity-default"]
    value = "compression.type=" + ("zstd" if asked == controllers[0] else "lz4")
    altered = java.tool("kafka.admin.ConfigCommand", *to, *entity, "--alter", "--add-config", value)
    assert altered.exit == 0, altered
    shown = java.tool("kafka.admin.ConfigCommand", *to, *entity, "--describe")
    assert value in shown.out, shown


@pytest.mark.nightly
def test_static_voters_go_into_the_log(java: Jvm, tmp_path: Path) -> None:
    """`kafka-features` upgrades `kraft.version`; after it, voters can be added and removed."""
    broker = Tidelog(tmp_path, has_controller_listener=True)
    broker.start()
    to = ["--bootstrap-server", broker.bootstrap]

    def level() -> str:
        described = java.tool("FeatureCommand", *to, "describe")
        (found,) = re.findall(r"kraft.version.*FinalizedVersionLevel: (\d)", described.out)
        return str(found)

    def status() -> str:
        return java.tool("MetadataQuorumCommand", *to, "describe", "--status").out

    try:
        assert level() == "0"
        wanted = ["upgrade", "--feature", "kraft.version=1"]
        tried = java.tool("FeatureCommand", *to, *wanted, "--dry-run")
        assert (tried.exit, level()) == (0, "0"), tried
        done = java.tool("FeatureCommand", *to, *wanted)
        assert (done.exit, level()) == (0, "1"), done
        assert "kraft.version was upgraded to 1." in done.out
        assert re.search(r'CurrentVoters:\s+\[\{"id": 1, "directoryId": "', status())
        lowered = java.tool("FeatureCommand", *to, "downgrade", "--feature", "kraft.version=0")
        assert (lowered.exit, level()) == (1, "1"), lowered
        broker.stop()
        broker.start()
        assert level() == "1"
    finally:
        broker.stop()
