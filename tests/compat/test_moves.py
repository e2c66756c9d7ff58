"""One directory, two brokers: tidelog goes on with what Apache Kafka left, Apache Kafka with what
tidelog left, and clients see the same."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from compat.jvm import require_jars
from compat.moving import HEAP, SETTINGS, Tidelog, ask, end, fill, lone, look, start, unpacked
from tidelog_bench.peers.apache_kafka import ApacheKafkaCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

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
    shown = levels(tidelog.bootstrap)
    assert shown.items() <= LEVELS.items()
    assert shown.keys() >= {"eligible.leader.replicas.version", "group.version"}
    finish(tidelog.bootstrap)


def move(
    here: Sequence[Peer], there: Sequence[Peer], how: str, bootstrap: str, seen: dict[str, Any]
) -> None:
    """End the ones, start the others, and see the same."""
    end(ENDS[how], *here)
    start(*there)
    assert look(bootstrap) == seen


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
    move([tidelog], [kafka], "killed", kafka.bootstrap, look(tidelog.bootstrap))
    finish(kafka.bootstrap)
    del producer


@pytest.mark.nightly
@pytest.mark.reference
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("count", [1, 3])
def test_there_and_back(count: int, how: str, tmp_path: Path, ended: list[Peer]) -> None:
    """From Apache Kafka to tidelog and back, and to tidelog again."""
    require_jars()
    nodes = (
        [lone(tmp_path)]
        if count == 1
        else list(ApacheKafkaCluster(tmp_path, SETTINGS, HEAP, brokers=count).nodes.values())
    )
    others = [Tidelog(node) for node in nodes]
    bootstrap = ",".join(node.bootstrap for node in nodes)
    ended += [*nodes, *others]
    start(*nodes)
    producer = fill(bootstrap, replicas=count)
    seen = look(bootstrap)
    move(nodes, others, how, bootstrap, seen)
    move(others, nodes, how, bootstrap, seen)
    move(nodes, others, how, bootstrap, seen)
    finish(bootstrap)
    del producer
