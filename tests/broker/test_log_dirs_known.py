"""The controller knows in which log directory a replica lies (KIP-858), so that a directory can be
emptied and taken away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from support.clusters import image_of, run, until
from support.controller_cluster import CONFIG, TOPIC_ID, apply, broker, directory, partition
from support.controller_cluster import image_of as metadata_of
from support.data_path import DataPath
from support.mover import Mover, played
from support.mover import until as until_virtually
from support.wire_client import WireClient
from tidelog.cluster.controller.decisions import RefusedError
from tidelog.cluster.controller.directories import assign_replicas_to_dirs
from tidelog.cluster.formatting import format_directories, look
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.config.broker import BrokerConfig
from tidelog.replication.directory_assignment import RETRY_S, DirectoryAssignments
from tidelog.runtime import system_runtime
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import AlterReplicaLogDirsRequest
from tidelog_protocol.messages.controller import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from tier.admin import create_topic

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.cluster.metadata.image import ClusterImage, PartitionImage

Directory = AssignReplicasToDirsRequest.DirectoryData
OTHER = b"other-directory1"
TWO_DIRECTORIES = broker(2, log_dirs=(directory(2), OTHER))


def told(
    where: bytes, *indices: int, topic_id: bytes = TOPIC_ID, epoch: int = 102
) -> AssignReplicasToDirsRequest:
    """Broker 2 tells of replicas."""
    partitions = [Directory.TopicData.PartitionData(partition_index=index) for index in indices]
    topic = Directory.TopicData(topic_id=topic_id, partitions=partitions)
    return AssignReplicasToDirsRequest(
        broker_id=2, broker_epoch=epoch, directories=[Directory(id=where, topics=[topic])]
    )


def decide(
    request: AssignReplicasToDirsRequest, *partitions: PartitionImage
) -> tuple[list[int], ClusterImage]:
    """Error codes, and the metadata after."""
    image = metadata_of(*partitions, brokers=[broker(1), TWO_DIRECTORIES, broker(3)])
    records, response = assign_replicas_to_dirs(image, CONFIG, request)
    (answer,) = response.directories
    assert answer.id == request.directories[0].id
    return [one.error_code for one in answer.topics[0].partitions], apply(image, records)


# -- the controller ------------------------------------------------------------------------------


def test_a_directory_is_noted() -> None:
    codes, after = decide(told(OTHER, 1), partition(), partition())
    assert codes == [0]
    first, second = after.topics["t"].partitions
    assert first.directories == (directory(1), directory(2), directory(3))
    assert second.directories == (directory(1), OTHER, directory(3))
    assert (second.leader, second.leader_epoch, second.partition_epoch) == (1, 5, 8)
    assert decide(told(directory(2), 0), partition())[1].topics["t"].partitions[0] == partition()


def test_what_it_was_not_known_before_is_noted_too() -> None:
    _, after = decide(told(OTHER, 0), partition(directories=()))
    (noted,) = after.topics["t"].partitions
    assert noted.directories[1] == OTHER


def test_replicas_that_are_not_there() -> None:
    codes, after = decide(told(OTHER, 0, 9), partition((1, 3)))
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert after.topics["t"].partitions[0].partition_epoch == 7
    codes, _ = decide(told(OTHER, 0, topic_id=bytes(16)), partition())
    assert codes == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_what_lies_in_no_directory_of_the_broker_is_not_in_sync() -> None:
    codes, after = decide(told(b"never-heard-of-1", 0), partition((2, 1)))
    assert codes == [0]
    (noted,) = after.topics["t"].partitions
    assert (noted.leader, noted.isr) == (1, (1,))


def test_before_metadata_version_3_7_no_replica_is_assigned() -> None:
    """All would leave the ISR: such a log knows no directories of brokers."""
    image = metadata_of(partition(), features={"metadata.version": 16})
    with pytest.raises(RefusedError) as refusal:
        assign_replicas_to_dirs(image, CONFIG, told(OTHER, 0))
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_an_earlier_life_says_nothing() -> None:
    with pytest.raises(RefusedError) as refusal:
        decide(told(OTHER, 0, epoch=101), partition())
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


# -- the broker ----------------------------------------------------------------------------------


class ToldController:
    """Notes what it is told; `errors` are answered first."""

    def __init__(self, mover: Mover, *errors: int) -> None:
        self.mover, self.errors = mover, list(errors)
        self.told: list[bytes] = []
        self.gate = asyncio.Event()
        self.gate.set()
        mover.replicas.ask_controller = self.ask

    async def ask(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        (one,) = request.directories
        self.told.append(one.id)
        await self.gate.wait()
        if self.errors:
            return AssignReplicasToDirsResponse(error_code=self.errors.pop(0))
        self.mover.path.change("a", directories=(one.id,))
        topic = AssignReplicasToDirsResponse.TopicData(
            topic_id=one.topics[0].topic_id,
            partitions=[
                AssignReplicasToDirsResponse.TopicData.PartitionData(
                    partition_index=0, error_code=0
                )
            ],
        )
        answer = AssignReplicasToDirsResponse.DirectoryData(id=one.id, topics=[topic])
        return AssignReplicasToDirsResponse(directories=[answer])


def ids(mover: Mover) -> list[bytes]:
    return [one.directory_id for one in mover.logs.directories]


@played
async def test_a_known_directory_is_corrected_before_the_replica_leaves(mover: Mover) -> None:
    mover.create(batches=3)
    one, two, _ = ids(mover)
    mover.path.change("a", directories=(one,))
    controller = ToldController(mover, ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH)
    controller.gate.clear()
    assert mover.alter(mover.dirs[1]) == [0]
    await until_virtually(lambda: bool(controller.told))
    mover.produce()
    assert mover.describe() == {(mover.dirs[0], False): 0, (mover.dirs[1], True): 2}
    controller.gate.set()
    log = await mover.moved(1)
    assert log.log_end_offset == 8
    assert controller.told == [two] * 3
    assert mover.path.image.topics["a"].partitions[0].directories == (two,)


@played
async def test_an_unknown_directory_is_not_reported(mover: Mover) -> None:
    mover.create(batches=3)
    controller = ToldController(mover)
    mover.path.change("a", directories=(bytes(16),))
    assert mover.alter(mover.dirs[1]) == [0]
    await mover.moved(1)
    assert controller.told == []


@pytest.mark.parametrize("answered", [True, False])
def test_a_move_that_is_given_up_is_taken_back(tmp_path: Path, answered: bool) -> None:
    @played
    async def test(mover: Mover) -> None:
        mover.create(batches=3)
        one, two, _ = ids(mover)
        mover.path.change("a", directories=(one,))
        controller = ToldController(mover)
        controller.gate.clear()
        assert mover.alter(mover.dirs[1]) == [0]
        await until_virtually(lambda: bool(controller.told))
        if answered:  # and the move has not come to its end yet
            mover.path.change("a", directories=(two,))
        assert mover.alter(mover.dirs[0]) == [0]
        controller.gate.set()
        await until_virtually(lambda: controller.told[-1] == one)
        await asyncio.sleep(5)
        assert mover.path.image.topics["a"].partitions[0].directories == (one,)
        assert mover.describe() == {(mover.dirs[0], False): 0}

    test(tmp_path)


def test_new_replicas_of_a_broker_with_two_directories_are_reported_together(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        path = DataPath(tmp_path, log_dirs=[f"{tmp_path}/one", f"{tmp_path}/two"])
        asked: list[AssignReplicasToDirsRequest] = []

        async def ask(request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
            asked.append(request)
            return AssignReplicasToDirsResponse(error_code=0)

        path.replicas.ask_controller = ask
        reporter = DirectoryAssignments(path.replicas)
        reporter.on_image(MetadataDelta(None, path.image), path.image)
        old = path.image
        path.create("t", 4)
        reporter.on_image(MetadataDelta(old, path.image), path.image)
        await asyncio.sleep(0)
        (request,) = asked
        told = {
            one.partition_index: directory.id
            for directory in request.directories
            for one in directory.topics[0].partitions
        }
        logs = path.logs
        where = {key.partition: logs.directory_id(logs.log_dir(key)) for key in logs.topic_ids()}
        assert told == where
        assert len(set(told.values())) == 2
        old = path.image
        for index, directory_id in where.items():
            path.change("t", index, directories=(directory_id,))
        reporter.on_image(MetadataDelta(old, path.image), path.image)
        await asyncio.sleep(2 * RETRY_S)
        assert len(asked) == 1, "the metadata has it"
        await reporter.close()
        logs.abandon()

    asyncio.run(test())


# -- a cluster -----------------------------------------------------------------------------------


def test_a_directory_is_emptied_and_taken_away(tmp_path: Path) -> None:
    async def reconfigured(node: Any, **settings: str) -> None:
        await node.stop()
        named = {key.replace("_", "."): value for key, value in settings.items()}
        node.config = BrokerConfig.from_properties({**node.config.given, **named})
        runtime = system_runtime(durable=False)
        found = look([node.config], runtime.files)
        if found.missing:
            assert found.cluster_id is not None
            format_directories(found, runtime, found.cluster_id)
        await node.start()

    async def test() -> None:
        async with tidelog.Cluster(brokers=3, data_dir=tmp_path) as cluster:
            node = cluster.brokers[1]
            await create_topic(node.bootstrap_server, "t", {0: [2]}, {})
            old, new = f"{tmp_path}/broker-2", f"{tmp_path}/new"
            await reconfigured(node, log_dirs=f"{old},{new}", metadata_log_dir=old)
            logs = node.server.logs
            key = next(iter(dict(logs.items())))
            move = AlterReplicaLogDirsRequest.AlterReplicaLogDir
            names = [move.AlterReplicaLogDirTopic(name="t", partitions=[0])]
            request = AlterReplicaLogDirsRequest(dirs=[move(path=new, topics=names)])
            async with await WireClient.connect(node.bootstrap_server) as client:
                answer = await client.ask(request, 2)
            assert answer.results[0].partitions[0].error_code == 0
            await until(lambda: logs.log_dir(key) == new, "it moves")
            wanted = (logs.directory_id(new),)
            for each in cluster.brokers:
                await until(
                    lambda of=each: image_of(of).topics["t"].partitions[0].directories == wanted,
                    f"{each.node_id} knows where it is",
                )
            await reconfigured(node, log_dirs=new, metadata_log_dir=old)
            await until(
                lambda: image_of(node).topics["t"].partitions[0].leader == 2, "it is led again"
            )

    run(test)
