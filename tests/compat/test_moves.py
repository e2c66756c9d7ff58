"""One directory, two brokers: tidelog goes on with what Apache Kafka left, Apache Kafka with what
tidelog left, and clients see the same."""

from __future__ import annotations

import shutil
import signal
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from compat.eventually import eventually
from compat.jvm import require_jars
from compat.moved_groups import ShareGroup, StreamsGroup
from compat.moving import (
    DIRECTORIES,
    HEAP,
    LONE,
    SETTINGS,
    Tidelog,
    ask,
    end,
    fill,
    go_on,
    lone,
    look,
    start,
    unpacked,
)
from tidelog.cluster.metadata.features import supported_levels
from tidelog.cluster.metadata.snapshots import (
    decode_snapshot,
    encode_snapshot,
    list_snapshots,
    read_snapshot,
)
from tidelog_bench.peers.apache_kafka import CLUSTER_ID, ApacheKafka, ApacheKafkaCluster
from tidelog_storage.os_files import OsFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from compat.jvm import Jvm
    from tidelog_bench.peers.peer import Peer

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

ENDS = {"stopped": signal.SIGTERM, "killed": signal.SIGKILL}
LEVELS = {  # what `kafka-storage format` of 4.3.1 finalizes without options
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "metadata.version": 30,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}


@pytest.fixture
def ended() -> Iterator[list[Peer]]:
    """Nodes that are killed at the end."""
    nodes: list[Peer] = []
    yield nodes
    end(signal.SIGKILL, *nodes)


def finish(bootstrap: str) -> None:
    """A new life of the producer whose transaction is open aborts it, and writes."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("transactions", "the last one")
    producer.commit_transaction(60)
    committed = look(bootstrap)["records"]["transactions-0 read_committed"]
    assert [value.split()[0] for _, _, value in committed] == ["committed"] * 10 + ["the"]


def unexpired(seen: dict[str, Any]) -> dict[str, Any]:
    """Without producers that have nothing open: they expire a day after what they wrote."""
    producers = {
        place: [producer for producer in found if producer[-1] >= 0]
        for place, found in seen["producers"].items()
    }
    return {**seen, "producers": producers}


def levels(bootstrap: str) -> dict[str, int]:
    fields = {"client_software_name": "a", "client_software_version": "1"}
    answer = ask(bootstrap.partition(",")[0], "ApiVersions", 4, **fields)
    return {each["name"]: each["max_version_level"] for each in answer["finalized_features"]}


@pytest.mark.parametrize("how", ENDS)
def test_a_directory_that_apache_kafka_left_opens(
    how: str, tmp_path: Path, ended: list[Peer]
) -> None:
    kafka = lone(tmp_path)
    seen = unpacked(how, kafka)
    tidelog = Tidelog(kafka)
    ended.append(tidelog)
    start(tidelog)
    assert unexpired(look(tidelog.bootstrap)) == unexpired(seen)
    assert levels(tidelog.bootstrap) == LEVELS
    finish(tidelog.bootstrap)


def test_the_registrations_of_kafkas_controllers_are_kept(tmp_path: Path) -> None:
    with tarfile.open(DIRECTORIES / "stopped.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    files, folder = OsFileSystem(), str(tmp_path / "data/__cluster_metadata-0")
    image = read_snapshot(files, folder, list_snapshots(files, folder)[-1], CLUSTER_ID)
    (controller,) = image.controllers.values()
    ranges = {
        each.name: (each.min_supported_version, each.max_supported_version)
        for each in controller.features
    }
    assert ranges == supported_levels(), "what tidelog's controllers register"
    assert [each.name for each in controller.end_points] == ["CONTROLLER"]
    written, data = encode_snapshot(image, 0)
    assert decode_snapshot(written, data, CLUSTER_ID).controllers == image.controllers


def move(here: Sequence[Peer], there: Sequence[Peer], how: str, bootstrap: str) -> None:
    """End the ones, start the others, and see the same."""
    seen = look(bootstrap)
    end(ENDS[how], *here)
    assert all(snapshots(node) for node in here)
    start(*there)
    # A replica that leads now may have been killed before it was compacted.
    eventually(lambda: look(bootstrap), seen.__eq__)


def snapshots(node: Peer) -> list[str]:
    """Snapshots of the metadata, without what formatting writes."""
    folder = node.folder / "data" / "__cluster_metadata-0"
    return sorted(path.name for path in folder.glob("*-*.checkpoint"))


@pytest.mark.nightly  # a Kafka of its own
@pytest.mark.reference
def test_apache_kafka_goes_on_with_a_directory_of_tidelog(
    tmp_path: Path, ended: list[Peer]
) -> None:
    require_jars()
    kafka = lone(tmp_path)
    tidelog = Tidelog(kafka)
    ended += [kafka, tidelog]
    start(tidelog)
    producer = fill(tidelog.bootstrap)
    move([tidelog], [kafka], "killed", kafka.bootstrap)
    finish(kafka.bootstrap)
    del producer


class WithDynamicVoters(ApacheKafka):
    """One node, formatted with `--standalone`: `kraft.version` 1."""

    java: Jvm

    def prepare(self) -> None:
        data, config = self.folder / "data", self.folder / "server.properties"
        is_new = not data.exists()
        super().prepare()
        voter = "controller.quorum.voters=1@"
        bootstrap = "controller.quorum.bootstrap.servers="
        config.write_text(config.read_text().replace(voter, bootstrap))
        if is_new:
            shutil.rmtree(data)
            given = ("format", "-t", CLUSTER_ID, "--standalone", "-c", str(config))
            formatted = self.java.tool("kafka.tools.StorageTool", *given)
            assert formatted.exit == 0, formatted


@pytest.mark.nightly
@pytest.mark.reference
def test_there_and_back_with_dynamic_voters(tmp_path: Path, ended: list[Peer], java: Jvm) -> None:
    kafka = WithDynamicVoters(tmp_path / "node", LONE, HEAP)
    kafka.java = java
    tidelog = Tidelog(kafka)
    ended += [kafka, tidelog]
    start(kafka)
    producer = fill(kafka.bootstrap)
    finalized = levels(kafka.bootstrap)
    assert finalized == LEVELS | {"kraft.version": 1}
    for number, (here, there) in enumerate([(kafka, tidelog), (tidelog, kafka)]):
        move([here], [there], "killed", kafka.bootstrap)
        assert levels(kafka.bootstrap) == finalized
        go_on(kafka.bootstrap, number)
    finish(kafka.bootstrap)
    del producer


@pytest.mark.nightly
@pytest.mark.reference
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize(("count", "first"), [(1, "kafka"), (3, "kafka"), (3, "tidelog")])
def test_there_and_back(
    count: int, first: str, how: str, tmp_path: Path, ended: list[Peer], java: Jvm
) -> None:
    """From the one that makes the directories to the other, back, and to the other again."""
    require_jars()
    nodes = (
        [lone(tmp_path)]
        if count == 1
        else list(ApacheKafkaCluster(tmp_path, SETTINGS, HEAP, brokers=count).nodes.values())
    )
    others: list[Peer] = [Tidelog(node) for node in nodes]
    if first == "tidelog":
        nodes, others = others, nodes
    bootstrap = ",".join(node.bootstrap for node in nodes)
    ended += [*nodes, *others]
    start(*nodes)
    producer = fill(bootstrap, replicas=count)
    finalized = levels(bootstrap)
    groups = [
        ShareGroup(java, bootstrap, count),
        StreamsGroup(java, bootstrap, count, tmp_path),
    ]
    for group in groups:
        group.use(bootstrap)
    for number, (here, there) in enumerate([(nodes, others), (others, nodes), (nodes, others)]):
        move(here, there, how, bootstrap)
        go_on(bootstrap, number)
        for group in groups:
            group.use(bootstrap)
        if there is nodes:
            assert levels(bootstrap) == finalized, "also those that the other one does not show"
    writers = look(bootstrap)["producers"]["plain-0"]
    assert len({producer_id for producer_id, *_ in writers}) == 4, "each has an id of its own"
    finish(bootstrap)
    del producer
