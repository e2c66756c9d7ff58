"""A replica whose log is gone: it neither leads nor counts with an empty one."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from broker.test_server import produce
from support.clusters import run, until
from support.data_path import NOW_MS, DataPath, batch, topic_id
from support.wire_client import WireClient
from tidelog.__main__ import main
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.image import ClusterImage, PartitionImage, TopicImage
from tidelog.replication.directory_assignment import LOST_DIRECTORY
from tidelog.start_error import StartError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_storage.checkpoints import read_meta_properties
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidelog.embedded.nodes import Node
    from tidelog.server import BrokerServer


class Disk:
    """Lives of one broker, which has no other, on two directories."""

    def __init__(self, folder: Path) -> None:
        self.dirs = [folder / "one", folder / "two"]
        self.path = DataPath(folder, log_dirs=[str(one) for one in self.dirs])
        self.folder = folder
        self.path.create("t", 4)
        for index in range(4):
            self.path.produce("t", index, batch(3))

    def restart(self, *, killed: bool = False, lost: Sequence[str] = ()) -> DataPath:
        """Remove these and start again on what the metadata said."""
        old, image = self.path.logs, self.path.image
        if killed:
            old.upkeep.prepare_checkpoints()()
            old.abandon()
        else:
            old.shutdown(NOW_MS)
        for name in lost:
            shutil.rmtree(self.folder / name)
        self.path = DataPath(
            self.folder, log_dirs=[str(one) for one in self.dirs], apply_first=False
        )
        self.path.image = image
        self.path.replicas.apply(MetadataDelta(None, image), image)
        return self.path

    def ends(self) -> list[int | ErrorCode]:
        """Where each log ends, or what is answered."""
        found = [self.path.replicas.partition("t", index) for index in range(4)]
        return [one if isinstance(one, ErrorCode) else one.log.log_end_offset for one in found]

    def where(self, index: int) -> str:
        """Folder of a partition, below the disk's."""
        log_dir = self.path.logs.log_dir(TopicPartition("t", index))
        return f"{log_dir.rpartition('/')[2]}/t-{index}"


GONE = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@pytest.mark.parametrize("killed", [False, True])
def test_a_removed_folder_does_not_come_back_empty(
    disk: Disk, killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk.restart(killed=killed, lost=[disk.where(1)])
    assert disk.ends() == [3, GONE, 3, 3]
    assert any(text.startswith("t-1 is offline: its log is gone") for text in caplog.messages)
    for again in (True, False):
        disk.restart(killed=again)
        assert disk.ends() == [3, GONE, 3, 3], "it is remembered"
    disk.path.logs.abandon()


def test_a_replaced_directory_does_not_come_back_empty(disk: Disk) -> None:
    lost = [index for index in range(4) if disk.where(index).startswith("two/")]
    expected = [GONE if index in lost else 3 for index in range(4)]
    assert len(lost) == 2
    disk.restart(lost=["two"])
    assert disk.ends() == expected
    disk.restart()
    assert disk.ends() == expected, "the directory is not new any more"
    disk.path.logs.abandon()


def test_a_folder_that_is_put_back_is_served(disk: Disk) -> None:
    where = disk.where(2)
    disk.path.logs.shutdown(NOW_MS)
    shutil.copytree(disk.folder / where, disk.folder / "kept")
    disk.path.logs.open(now_ms=NOW_MS, cluster_id="test-cluster-id-000000", node_id=1)
    disk.restart(lost=[where])
    disk.path.logs.shutdown(NOW_MS)
    shutil.copytree(disk.folder / "kept", disk.folder / where)
    disk.path.logs.open(now_ms=NOW_MS, cluster_id="test-cluster-id-000000", node_id=1)
    disk.restart()
    assert disk.ends() == [3, 3, 3, 3]
    disk.path.logs.abandon()


def test_a_lost_replica_outside_the_isr_begins_with_an_empty_log(disk: Disk) -> None:
    path = disk.restart(lost=[disk.where(0)])
    path.change("t", 0, replicas=(1, 2), isr=(2,), leader=2, leader_epoch=1)
    assert disk.ends() == [0, 3, 3, 3]
    path.change("t", 0, isr=(2, 1))
    disk.restart()
    assert disk.ends() == [0, 3, 3, 3], "it has what it was given since"
    disk.path.logs.abandon()


@pytest.mark.parametrize(
    "known", [{"eligible_leader_replicas": (1,)}, {"last_known_eligible_leader_replicas": (1,)}]
)
@pytest.mark.parametrize("lost", ["folder", "directory"])
def test_what_eligible_replicas_lost_does_not_come_back_empty(
    disk: Disk, known: dict[str, tuple[int, ...]], lost: str
) -> None:
    """An eligible replica, or the last leader, leads because of its log (KIP-966)."""
    disk.path.change("t", 1, isr=(), leader=-1, leader_epoch=1, **known)
    where = disk.where(1)
    disk.restart(lost=[where if lost == "folder" else where.partition("/")[0]])
    assert disk.ends()[1] == GONE
    others = dict.fromkeys(known, ())
    disk.path.change("t", 1, replicas=(1, 2), isr=(2,), leader=2, leader_epoch=2, **others)
    assert disk.ends()[1] == 0
    disk.path.logs.abandon()


def test_unclean_elections_prefer_an_empty_log_to_none(disk: Disk) -> None:
    unclean = {"t": {"unclean.leader.election.enable": "true"}}
    disk.path.apply(topic_configs=unclean)
    disk.restart(lost=[disk.where(3)])
    assert disk.ends() == [3, 3, 3, 0]
    disk.path.logs.abandon()


def test_a_topic_of_the_same_name_is_created_again(disk: Disk) -> None:
    path = disk.restart(lost=[disk.where(0)])
    path.delete("t")
    path.create("t", 4, incarnation=1)
    assert disk.ends() == [0, 0, 0, 0]
    disk.restart(killed=True)
    assert disk.ends() == [0, 0, 0, 0]
    disk.path.logs.abandon()


def test_a_deleted_log_is_not_missed(disk: Disk) -> None:
    """A topic of the name was created again, and the broker crashed before it had its folders."""
    disk.path.logs.upkeep.prepare_checkpoints()()
    disk.path.delete("t")
    path = disk.path
    path.image = with_topic(path.image, "t", 4)
    disk.restart(killed=True)
    assert disk.ends() == [0, 0, 0, 0]
    disk.path.logs.abandon()


def test_logs_in_a_directory_that_cannot_be_read_are_not_lost(disk: Disk) -> None:
    hidden = [index for index in range(4) if disk.where(index).startswith("two/")]
    expected = [GONE if index in hidden else 3 for index in range(4)]
    disk.path.logs.shutdown(NOW_MS)
    disk.dirs[1].rename(disk.folder / "away")
    disk.dirs[1].write_text("no directory")
    path = disk.path = DataPath(
        disk.folder, log_dirs=[str(one) for one in disk.dirs], apply_first=False
    )
    path.image = with_topic(path.image, "t", 4, incarnation=0)
    path.replicas.apply(MetadataDelta(None, path.image), path.image)
    assert disk.ends() == expected
    for index in hidden:  # another broker has the rest in sync; a second log would be in the way
        path.change("t", index, replicas=(1, 2), isr=(2,), leader=2, leader_epoch=1)
        assert not path.replicas.lost_logs.is_unread(TopicPartition("t", 9))
    assert disk.ends() == expected
    path.create("u", 1)
    assert path.logs.log_dir(TopicPartition("u", 0)) == str(disk.dirs[0])
    disk.dirs[1].unlink()
    (disk.folder / "away").rename(disk.dirs[1])
    disk.restart(killed=True)
    assert disk.ends() == [3, 3, 3, 3]
    disk.path.logs.abandon()


def test_a_replica_that_was_made_anew_while_its_directory_was_away_stays_where_it_is(
    disk: Disk,
) -> None:
    """The replica had left the broker, and came again."""
    at = disk.path.logs.log_dir(TopicPartition("t", 0))
    old, new = disk.dirs if at == str(disk.dirs[0]) else disk.dirs[::-1]
    directory_id = disk.path.logs.directory_id(str(new))
    disk.path.logs.shutdown(NOW_MS)
    shutil.copytree(old / "t-0", new / "t-0")
    disk.path.logs.open(now_ms=NOW_MS, cluster_id="test-cluster-id-000000", node_id=1)
    disk.path.change("t", 0, directories=(directory_id,))
    disk.restart(killed=True)
    assert disk.ends() == [3, 3, 3, 3]
    assert disk.where(0).startswith(new.name)
    assert not (old / "t-0").exists()
    assert len(list(old.glob("t-0.*-stray"))) == 1
    disk.path.logs.abandon()


def with_topic(
    image: ClusterImage, name: str, partitions: int, incarnation: int = 7
) -> ClusterImage:
    """As if this broker had not applied it yet."""
    states = tuple(PartitionImage(index, 1, 0, 0, (1,), (1,)) for index in range(partitions))
    topic = TopicImage(name, topic_id(name, incarnation), states)
    return ClusterImage(
        cluster_id="test",
        brokers=image.brokers,
        topics={name: topic},
        topic_names={topic.topic_id: name},
    )


# ---- in a cluster -------------------------------------------------------------------------------


class Three:
    """Three brokers on a folder, and what they know."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = tidelog.Cluster(
            brokers=3,
            data_dir=folder,
            broker_session_timeout_ms=2000,
            broker_heartbeat_interval_ms=300,
        )

    def node(self, node_id: int) -> Node[Any]:
        return self.cluster.brokers[node_id - 1]

    def running(self) -> list[BrokerServer]:
        return [node.server for node in self.cluster.brokers if node.is_running]  # type: ignore[attr-defined]

    def state(self, topic: str) -> PartitionImage:
        """The newest that a running broker knows."""
        images = [server.metadata.image for server in self.running()]
        found = max(images, key=lambda image: image.offset).partition(topic, 0)
        assert found is not None
        return found

    async def create(self, topic: str, *replicas: int) -> None:
        assignment = CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment(
            partition_index=0, broker_ids=list(replicas)
        )
        asked = CreateTopicsRequest.CreatableTopic(
            name=topic, num_partitions=-1, replication_factor=-1, assignments=[assignment]
        )
        async with await WireClient.connect(self.node(replicas[0]).bootstrap_server) as client:
            response = await client.ask(CreateTopicsRequest(topics=[asked], timeout_ms=30_000), 7)
            assert response.topics[0].error_code == 0, response.topics[0].error_message
            leader = self.node(replicas[0]).server  # type: ignore[attr-defined]
            await until(lambda: leads(leader, topic), f"{topic} has its leader")
            for _ in range(3):
                await produce(client, topic, b"record")

    def ends(self, topic: str) -> dict[int, int | ErrorCode]:
        """Of the log on each broker that runs, or what it answers."""
        found = [(one, one.replicas.partition(topic, 0)) for one in self.running()]
        return {
            server.config.node_id: one if isinstance(one, ErrorCode) else one.log.log_end_offset
            for server, one in found
        }

    def records(self, node_id: int, topic: str) -> list[Path]:
        """Files with records of a topic, whatever their folder is called."""
        files = (self.folder / f"broker-{node_id}").glob(f"{topic}-0*/*.log")
        return [file for file in files if file.stat().st_size]


def leads(server: BrokerServer, topic: str) -> bool:
    partition = server.replicas.partition(topic, 0)
    return not isinstance(partition, ErrorCode) and partition.is_leader


def test_a_broker_that_lost_its_disk_is_rebuilt_and_never_leads_with_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        three = Three(tmp_path)
        async with three.cluster:
            await three.create("shared", 2, 3, 1)
            await three.create("alone", 2)
            second, folder = three.node(2), tmp_path / "broker-2"
            owner = read_meta_properties(OsFileSystem(), str(folder))
            assert owner is not None
            await second.kill()
            shutil.rmtree(folder)
            words = ["-t", owner.cluster_id, "--node-id", "2", "--data-dir", str(folder)]
            assert main(["format", *words]) == 0
            await second.start()
            assert three.ends("alone")[2] is GONE
            await until(
                lambda: three.state("shared").isr in {(1, 3, 2), (3, 1, 2)}, "as it should be"
            )
            assert three.ends("shared") == {1: 3, 2: 3, 3: 3}
            await until(
                lambda: LOST_DIRECTORY in three.state("alone").directories, "as it should be"
            )
            assert three.state("alone").leader == -1
            assert three.state("alone").isr == ()
            assert three.state("alone").last_known_eligible_leader_replicas == (2,)
            assert LOST_DIRECTORY not in three.state("shared").directories

    run(test)
    assert "formatted metadata directory" in capsys.readouterr().out


def test_a_folder_that_one_of_three_lost_is_rebuilt(tmp_path: Path) -> None:
    """All stop together. The replica that is lost led until then, and was in sync."""

    async def test() -> None:
        three = Three(tmp_path)
        async with three.cluster:
            await three.create("shared", 2, 3, 1)
            await until(lambda: three.ends("shared") == {1: 3, 2: 3, 3: 3}, "as it should be")
        shutil.rmtree(tmp_path / "broker-2" / "shared-0")
        three = Three(tmp_path)
        async with three.cluster:
            await until(lambda: three.ends("shared") == {1: 3, 2: 3, 3: 3}, "as it should be")
            await until(lambda: sorted(three.state("shared").isr) == [1, 2, 3], "as it should be")
            assert three.state("shared").leader in (1, 3)
            await until(
                lambda: LOST_DIRECTORY not in three.state("shared").directories, "as it should be"
            )

    run(test)


@pytest.mark.parametrize("is_formatted", [False, True])
def test_the_last_copy_survives_a_lost_disk(tmp_path: Path, is_formatted: bool) -> None:
    """Broker 2 loses its disk while 3 is behind: the topic is on 1 alone, which is away."""

    async def test() -> None:
        three = Three(tmp_path)
        async with three.cluster:
            await three.node(3).kill()
            await three.create("precious", 1, 2)
            await until(lambda: three.ends("precious") == {1: 3, 2: 3}, "as it should be")
            await three.node(2).stop()
            shutil.rmtree(tmp_path / "broker-2")
            await three.node(1).kill()
            if is_formatted:
                owner = read_meta_properties(OsFileSystem(), str(tmp_path / "broker-1"))
                assert owner is not None
                words = ["-t", owner.cluster_id, "--node-id", "2"]
                assert main(["format", *words, "--data-dir", str(tmp_path / "broker-2")]) == 0
                await asyncio.gather(three.node(3).start(), three.node(2).start())
                with suppress(StartError):
                    async with asyncio.timeout(60):
                        await three.node(1).start()
            else:
                with pytest.raises(StartError, match="broker-2 is not formatted"):
                    await three.node(2).start()
                await asyncio.gather(three.node(3).start(), three.node(1).start())
                assert three.ends("precious")[1] == 3
            assert three.records(1, "precious")

    run(test)
