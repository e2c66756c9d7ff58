"""Sessions on the metadata of a cluster: its snapshots, and the voters of its quorum."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

from compat.console.console import TOOLS
from compat.console.sessions import session
from compat.console.sessions_cluster import STEADY
from compat.eventually import eventually

if TYPE_CHECKING:
    from compat.console.console import Console

SNAPSHOT = "00000000000000000100-0000000001.checkpoint"


def status_of(console: Console) -> dict[str, str]:
    """What kafka-metadata-quorum tells."""
    at = ["--bootstrap-server", console.bootstrap]
    result = console.jvm.tool(TOOLS["kafka-metadata-quorum"], *at, "describe", "--status")
    return dict(re.findall(r"(\w+):\s+(.*)", result.out))


def keep_snapshot(console: Console) -> None:
    """Copy the newest one, which has all there is."""
    end = int(status_of(console)["HighWatermark"])

    def newest() -> str:
        found = console.folder.glob("broker/**/__cluster_metadata-0/*.checkpoint")
        path = max(found, key=lambda each: each.name, default=None)
        if path is None or int(path.name.partition("-")[0]) < end:
            return ""
        shutil.copy(path, console.folder / SNAPSHOT)
        return path.name

    eventually(newest, bool)


@session({"metadata.log.max.record.bytes.between.snapshots": "1"})
def metadata_shell(console: Console) -> None:
    """kafka-metadata-shell on a snapshot of the broker."""
    console.run("kafka-topics --create --topic t --partitions 2 --config retention.ms=7")
    console.run("kafka-topics --create --topic u --partitions 1")
    for change in (
        "--entity-type users --entity-name u --add-config producer_byte_rate=1024",
        "--entity-type brokers --entity-default --add-config message.max.bytes=2000000",
        "--entity-type client-metrics --entity-name m --add-config interval.ms=10000",
        "--entity-type groups --entity-name g --add-config share.auto.offset.reset=earliest",
    ):
        console.run(f"kafka-configs --alter {change}")
    keep_snapshot(console)
    for command in (
        "ls /",
        "ls /image",
        "ls /image/topics/byName",
        "find /image/topics/byName/t",
        "cat /image/topics/byName/t/name",
        "tree /image/configs",
        "tree /image/clientQuotas",
        "find /image/cluster",
        "cat /image/cluster/brokers/1/isFenced",
        "tree /image/features",
        "tree /image/producerIds",
        "ls /image/acls /image/scram /image/delegationToken",
        "ls /image/none",
        "pwd",
        "bad",
    ):
        at = f"--snapshot {{folder}}/{SNAPSHOT}"
        console.run(f"kafka-metadata-shell {at} {command}")


@session(STEADY, brokers=3)
def voters(console: Console) -> None:
    """kafka-metadata-quorum removes a voter that is not the leader, and adds it again."""
    console.run("kafka-features upgrade --feature kraft.version=1")
    status = status_of(console)
    rows: list[dict[str, Any]] = json.loads(status["CurrentVoters"])
    other = next(row for row in rows if row["id"] != int(status["LeaderId"]))
    (console.folder / "node").mkdir()
    console.file(
        "node/meta.properties",
        f"version=1\ncluster.id={status['ClusterId']}\nnode.id={other['id']}\n"
        f"directory.id={other['directoryId']}\n",
    )
    console.file(
        "node.properties",
        f"node.id={other['id']}\nprocess.roles=controller\nlisteners={other['endpoints'][0]}\n"
        "controller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers={other['endpoints'][0].partition('//')[2]}\n"
        f"log.dirs={console.folder}/node\n",
    )
    console.bind(id=other["id"], directory=other["directoryId"])
    remove = "remove-controller --controller-id {id} --controller-directory-id"
    add = "kafka-metadata-quorum --command-config {folder}/node.properties add-controller"
    for command in (
        add,
        f"kafka-metadata-quorum {remove} AAAAAAAAAAAAAAAAAAAAAQ",
        f"kafka-metadata-quorum {remove} {{directory}} --dry-run",
        f"kafka-metadata-quorum {remove} {{directory}}",
        "kafka-metadata-quorum describe --status",
        f"kafka-metadata-quorum {remove} {{directory}}",
        f"{add} --dry-run",
        add,
        "kafka-metadata-quorum describe --status",
        "kafka-features downgrade --feature kraft.version=0",
        "kafka-features describe",
    ):
        console.run(command, numbers=True)
