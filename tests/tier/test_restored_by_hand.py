"""What lies in the remote tier can be put back with a copy command and a text editor's knowledge:
the manifest says which objects a segment has, and their bytes are a Kafka log directory's."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import crc32c

import tidelog
from support.clusters import in_thread, librdkafka, run
from tier.admin import create_topic
from tier.harness import TieredCluster, kv

if TYPE_CHECKING:
    from pathlib import Path

ENDINGS = ("log", "index", "timeindex", "txnindex")


def test_a_lost_partition_is_put_back_from_its_remote_objects(tmp_path: Path) -> None:
    """Another cluster, which knows nothing of the tier, serves the segments from its own disk."""
    store = {"inner": "directory", "dir": str(tmp_path / "tier")}
    data = tmp_path / "data"

    async def test():
        async with TieredCluster(store) as lost:
            await lost.create("t", batches_per_segment=2)
            await lost.produce("t", 0, kv(0, 1, 2, 3, 4))
            await lost.expect_earliest_local("t", 0, 4)
        cluster = tidelog.Cluster(data_dir=str(data))
        async with cluster:
            await create_topic(cluster.bootstrap_servers, "t", {0: [1]}, {})
        await in_thread(put_back, tmp_path / "tier", data / "t-0")
        for checkpoint in data.glob("*-offset-checkpoint"):
            checkpoint.unlink()  # they tell of the empty log that was there
        async with cluster:
            values = await in_thread(read, cluster.bootstrap_servers, 4)
        assert values == [b"v0", b"v1", b"v2", b"v3"]

    run(test)


def put_back(tier: Path, folder: Path) -> None:
    """Every object under the name that it had on the disk, after a look at its checksum."""
    for old in folder.glob("0*"):
        old.unlink()
    for path in sorted(tier.rglob("*.manifest.json")):
        manifest = json.loads(path.read_text())
        base = f"{manifest['startOffset']:020d}"
        for name, facts in manifest["objects"].items():
            content = path.with_name(name).read_bytes()
            assert len(content) == facts["bytes"]
            assert f"{crc32c.crc32c(content):08x}" == facts["crc32c"]
            ending = name.partition(".")[2]
            if ending in ENDINGS:
                shutil.copy(path.with_name(name), folder / f"{base}.{ending}")
            elif ending == "snapshot":
                after = f"{manifest['endOffset'] + 1:020d}"
                shutil.copy(path.with_name(name), folder / f"{after}.snapshot")
            else:  # the last one counts
                shutil.copy(path.with_name(name), folder / "leader-epoch-checkpoint")


def read(servers: str, count: int) -> list[bytes]:
    """The first values of the topic."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(librdkafka(servers, **{"group.id": "by-hand"}))
    try:
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        values: list[bytes] = []
        while len(values) < count:
            for message in consumer.consume(count - len(values), timeout=1):
                assert message.error() is None
                values.append(message.value())
        return values
    finally:
        consumer.close()
