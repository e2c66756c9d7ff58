"""Consumers and the border between the tiers, on real brokers (kafka-tests 4): they cross it while
it moves, from every offset, in both isolation levels (point 6); and a topic with a remote tier
shows the same records as one without, whatever is done to both (point 7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.clusters import run, until
from support.remote_places import DirectoryPlace
from support.txn_client import Nodes, TxnProducer
from support.wire_client import WireClient
from tidelog_protocol.errors import ErrorCode
from tier.harness import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TieredCluster,
)
from tier.reading import Reader, read

if TYPE_CHECKING:
    from pathlib import Path

BOTH_LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)
ROUNDS = 10
EACH = 4  # offsets of a round: two records of a transaction, its marker, a record of none
FETCH_BYTES = 150  # a batch or two


def cluster_in(folder: Path, brokers: int) -> TieredCluster:
    place = DirectoryPlace(folder / "tier")
    return TieredCluster({"inner": "directory", **place.config}, brokers=brokers)


def is_committed(number: int) -> bool:
    """What becomes of a round's transaction."""
    return number % 3 != 1


async def produce_round(
    cluster: TieredCluster, producer: TxnProducer, topic: str, number: int
) -> None:
    for part in "ab":
        assert await producer.send(topic, f"{number}{part}".encode()) is ErrorCode.NONE
    assert await producer.end(commit=is_committed(number)) is ErrorCode.NONE
    held = cluster.partition(cluster.leader(topic, 0), topic, 0).log
    await until(lambda: held.last_stable_offset == held.log_end_offset, "the marker is there")
    await cluster.produce(topic, 0, [(b"plain", f"{number}c".encode())])


def expected(start: int, isolation: int) -> list[tuple[int, str]]:
    """Offsets and values from there on."""
    every = []
    for number in range(ROUNDS):
        if isolation == READ_UNCOMMITTED or is_committed(number):
            every += [(EACH * number, f"{number}a"), (EACH * number + 1, f"{number}b")]
        every.append((EACH * number + 3, f"{number}c"))
    return [(offset, value) for offset, value in every if offset >= start]


def test_consumers_cross_the_border_while_it_moves(tmp_path: Path) -> None:
    """Everybody fetches once between any two rounds; then they read the rest."""

    async def test() -> None:
        async with cluster_in(tmp_path, 1) as cluster:
            await cluster.create("t", batches_per_segment=2)
            end = ROUNDS * EACH
            readers = [
                Reader(cluster, "t", start, isolation)
                for start in range(end)
                for isolation in BOTH_LEVELS
            ]
            borders = set()
            held = cluster.partition(0, "t", 0).log
            async with (
                Nodes(cluster.server()) as nodes,
                await WireClient.connect(cluster.server()) as client,
            ):
                producers = [TxnProducer(nodes, f"x{v}", version=v) for v in (1, 2)]
                for producer in producers:
                    assert await producer.init() is ErrorCode.NONE
                for number in range(ROUNDS):
                    await produce_round(cluster, producers[number % 2], "t", number)
                    for reader in readers:
                        if reader.offset < held.last_stable_offset:
                            await reader.step(client, max_bytes=FETCH_BYTES)
                    if number % 2:  # it moves now; after the other rounds whenever it does
                        await until(lambda: held.local_log_start_offset not in borders)
                    borders.add(held.local_log_start_offset)
                await cluster.expect_earliest_local("t", 0, end - 2)
                for reader in readers:
                    while reader.offset < end:
                        await reader.step(client, max_bytes=FETCH_BYTES)
            assert len(borders) > 2, "the border moved meanwhile"
            for reader in readers:
                found = [(one.offset, (one.value or b"").decode()) for one in reader.found]
                assert found == expected(reader.start, reader.isolation), reader.start

    run(test)


async def shown(cluster: TieredCluster, topic: str, start: int, end: int) -> list[Any]:
    """All that can be told of a topic by its readers."""
    found: list[Any] = []
    now_ms = cluster.now_ms()
    for isolation in BOTH_LEVELS:
        found += [
            await read(cluster, topic, 0, offset, end, isolation=isolation)
            for offset in range(start, end, 3)
        ]
        found += [
            (timestamp, await cluster.list_offsets(topic, 0, timestamp, isolation=isolation))
            for timestamp in (EARLIEST, LATEST, 0, *range(now_ms - 12, now_ms + 2))
        ]
    return found


def test_the_same_work_gives_the_same_records_with_and_without_the_tier(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster_in(tmp_path, 2) as cluster:
            both = ("on", "off")
            for topic in both:
                await cluster.create(topic, [(0, 1)], batches_per_segment=2, tiered=topic == "on")
                await cluster.expect_leader(topic, 0, 0)
            async with Nodes(cluster.cluster.bootstrap_servers) as nodes:
                for half in range(2):
                    producer = TxnProducer(nodes, f"x{half}", version=half + 1)
                    assert await producer.init() is ErrorCode.NONE
                    for number in range(half * ROUNDS // 2, (half + 1) * ROUNDS // 2):
                        clock_ms = cluster.now_ms()
                        for topic in both:
                            cluster.set_now_ms(clock_ms)
                            await produce_round(cluster, producer, topic, number)
                    for topic in both:  # in a new leader epoch, and from the other's files
                        await cluster.reassign(topic, 0, [1 - half, half])
                        await cluster.expect_leader(topic, 0, 1 - half, elect=True)
            end = ROUNDS * EACH
            await cluster.expect_earliest_local("on", 0, end - 2)
            for start in (0, 7):
                for topic in both:
                    await cluster.delete_records(topic, 0, start)
                told = [await shown(cluster, topic, start, end) for topic in both]
                assert told[0] == told[1]
            assert (await cluster.list_offsets("on", 0, EARLIEST_LOCAL))[1] == end - 2
            assert (await cluster.list_offsets("off", 0, EARLIEST_LOCAL))[1] == 7

    run(test)
