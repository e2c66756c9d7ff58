"""The histories of KIP-405's scenarios, played by whole brokers, through both doors of Spark.

Their leaders change, also uncleanly, and remote segments of dead branches stay in the tier.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from support.history import consumed
from support.spark import MARKS
from tidelog.embedded.tiered import DIRECTORY_STORE
from tidelog_pipeline.history import HistoryOptions, plan, read_split
from tidelog_pipeline.operations import Source, audit
from tidelog_scenarios import load
from tidelog_scenarios.host_stage import HostStage
from tidelog_scenarios.player import Player, differing
from tidelog_scenarios.vocabulary import TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


async def after(name: str, look: Callable[[str, str], None]) -> None:
    """Play a scenario to its end; look at its brokers, and the folder of its tier."""
    async with HostStage(load(name), isolated=False) as stage:
        async with contextlib.aclosing(Player(stage, load(name)).played()) as steps:
            async for played in steps:
                assert not differing(played)
        running = [each for each in stage.ids if stage.is_running(each)]
        servers = ",".join(":".join(map(str, stage.address(each))) for each in running)
        await asyncio.to_thread(look, servers, stage.store_folder)


NAMES = ["kip405-s3", "kip405-s4", "kip405-s5"]


def store_in(folder: str) -> dict[str, str]:
    """The scenario's own store fails on order; its bytes are a directory's."""
    return {"remote.log.storage.manager.class.name": DIRECTORY_STORE, "rsm.config.dir": folder}


@pytest.mark.parametrize("name", NAMES)
def test_the_history_is_what_a_consumer_gets(name: str) -> None:
    def look(servers: str, folder: str) -> None:
        given = Source(servers, TOPIC, store_in(folder)).given()
        splits, settings = plan(HistoryOptions.parse(given))
        found = [
            (row["partition"], row["key"], row["value"])
            for split in splits
            for batch in read_split(split, settings, ["partition", "key", "value"])
            for row in batch.to_pylist()
        ]
        expected = consumed(servers, TOPIC)
        assert expected
        assert found == [(partition, key, value) for partition, _, key, value, _ in expected]

    asyncio.run(after(name, look))


class TestBySpark:
    pytestmark: ClassVar = [*MARKS, pytest.mark.nightly]

    @pytest.mark.parametrize("name", NAMES)
    def test_both_doors_of_spark_show_the_live_branch(self, spark: SparkSession, name: str) -> None:
        def rows(source: str, servers: str, **options: str) -> list[tuple[Any, ...]]:
            reader = spark.read.format(source).option("kafka.bootstrap.servers", servers)
            frame = reader.options(subscribe=TOPIC, **options).load()
            columns = ["partition", "offset", "key", "value", "timestamp"]
            return sorted(tuple(row) for row in frame.select(columns).collect())

        def look(servers: str, folder: str) -> None:
            store = store_in(folder)
            expected = rows("kafka", servers)
            assert expected
            assert rows("tidelog", servers, **store) == expected
            report = audit(spark, Source(servers, TOPIC, store), compares_all=True)
            assert report.faults == []
            assert sum(each.scan.records for each in report.partitions if each.scan) == len(
                expected
            )

        asyncio.run(after(name, look))
