"""Apache Kafka's own tools read the snapshots of the metadata that tidelog writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.controller_cluster import TOPIC_ID, broker, image_of, partition
from tidelog.cluster.metadata.snapshots import write_snapshot
from tidelog_protocol.messages.metadata_records import RegisterControllerRecord
from tidelog_protocol.primitives import uuid_to_str
from tidelog_storage.os_files import OsFileSystem

if TYPE_CHECKING:
    from pathlib import Path

    from compat.jvm import Jvm

pytestmark = [pytest.mark.reference, pytest.mark.timeout(400)]

SHELL = "org.apache.kafka.shell.MetadataShell"
TRIES_MAX = 10


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    image = image_of(
        partition((1, 2, 3), isr=(), leader=-1, eligible_leader_replicas=(2,)),
        brokers=[
            broker(1, endpoints=(("PLAINTEXT", "127.0.0.1", 9091, 0),)),
            broker(2, fenced=True, endpoints=(("PLAINTEXT", "127.0.0.1", 9092, 0),)),
        ],
        topic_config={"retention.ms": "7"},
        features={"eligible.leader.replicas.version": 1},
    )._replace(controllers={7: RegisterControllerRecord(controller_id=7, incarnation_id=TOPIC_ID)})
    made = write_snapshot(OsFileSystem(), str(tmp_path), image, 1_700_000_000_000)
    return str(tmp_path / made.file_name)


def test_kafka_dump_log(java: Jvm, snapshot: str) -> None:
    dump = java.tool("DumpLogSegments", "--cluster-metadata-decoder", "--files", snapshot)
    assert dump.exit == 0, dump.err
    for text in (
        '"name":"metadata.version","featureLevel":30',
        '"type":"REGISTER_BROKER_RECORD","version":4',
        f'"name":"t","topicId":"{uuid_to_str(TOPIC_ID)}"',
        '"type":"REGISTER_CONTROLLER_RECORD","version":0,"data":{"controllerId":7',
        '"type":"PARTITION_RECORD","version":2',
        '"eligibleLeaderReplicas":[2]',
        '"name":"retention.ms","value":"7"',
    ):
        assert text in dump.out, text
    assert "isvalid: true" in dump.out
    assert "Exception" not in dump.out + dump.err


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["ls", "/image/topics/byName"], "t"),
        (["ls", "/image/cluster/brokers"], "2"),
        (["ls", "/image/cluster/controllers"], "7"),
    ],
)
def test_kafka_metadata_shell(java: Jvm, snapshot: str, command: list[str], expected: str) -> None:
    # It waits for ever (exit -1 here) if it applies the last records before it has read the end of
    # the file: MetadataLoader.maybePublishMetadata of 4.3.1 then notes no offset. It finds nothing
    # if it applies them before its publisher is known.
    for number in range(1, TRIES_MAX + 1):  # each with more patience: the machine may be busy
        result = java.tool(SHELL, "--snapshot", snapshot, *command, timeout_s=5 * number)
        if result.exit == 0 and expected in result.out.split():
            break
    assert result.exit == 0, result
    assert expected in result.out.split(), result
