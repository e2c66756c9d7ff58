"""`tidelog spark replay`: a topic, and its export, into other topics."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from support.history import broker, consumed, create_tiered, produce, wait_until_remote
from support.spark import MARKS
from tidelog_pipeline.operations import OperationError, Replay, Source, export, replay
from tidelog_pipeline.operations.lanes import partition_of_key

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = MARKS


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with broker(str(tmp_path_factory.mktemp("remote"))) as servers:
        yield servers


def target_of(servers: str, partitions: int = 1, **configs: str) -> str:
    """A topic with segments that a whole batch fits into."""
    given = {"remote_storage_enable": "false", "internal_segment_bytes": "4000000", **configs}
    return create_tiered(servers, partitions, **given)


def test_parquet_and_topics_come_into_topics_once(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    source = create_tiered(servers, 2)
    same, other = (target_of(servers, count) for count in (2, 3))
    produce(servers, source, range(200))
    wait_until_remote(servers, source)
    place = str(tmp_path / "out")
    export(spark, Source(servers, source), place)
    done = replay(spark, Replay(place, Source(servers, same)))
    assert (done.records, done.warning) == (200, None)
    expected = consumed(servers, source, 2)
    assert consumed(servers, same, 2) == expected
    wanted = Replay(Source(servers, source), Source(servers, other), compression="zstd")
    assert replay(spark, wanted).records == 200
    found = consumed(servers, other, 3)
    assert sorted(map(str, (row[1:] for row in found))) == sorted(
        map(str, (row[1:] for row in expected))
    )
    assert all(row[0] == partition_of_key(row[2], 3) for row in found if row[2] is not None)


def test_bad_input_is_one_line_and_writes_nothing(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    source, empty = (create_tiered(servers) for _ in range(2))
    stamped = target_of(servers, message_timestamp_type="LogAppendTime")
    produce(servers, source, range(5))
    spark.range(3).write.parquet(str(tmp_path / "numbers"))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("no export")
    for given, target, text in [
        (Source(servers, "none"), empty, "UNKNOWN_TOPIC_OR_PARTITION"),
        (Source(servers, source), "none", "UNKNOWN_TOPIC_OR_PARTITION"),
        (Source(servers, source), source, "can't be replayed into itself"),
        (Source(servers, source), stamped, "can't keep timestamps"),
        (Source(servers, empty), source, "there are no records to replay"),
        (str(tmp_path / "no"), empty, "there is no folder"),
        (str(tmp_path / "notes"), empty, "is no export, and has no Parquet files"),
        (str(tmp_path / "numbers"), empty, "has no column key, offset, partition"),
    ]:
        with pytest.raises(OperationError, match=text) as caught:
            replay(spark, Replay(given, Source(servers, target)))
        assert "\n" not in str(caught.value)
    assert consumed(servers, empty) == []
    assert len(consumed(servers, source)) == 5


@pytest.mark.nightly
def test_a_driver_that_is_killed_is_followed_by_one_that_ends_its_work(
    spark: SparkSession, servers: str
) -> None:
    source, target = create_tiered(servers, 2), target_of(servers, 2)
    produce(servers, source, range(3000))
    command = [sys.executable, "-m", "tidelog", "spark", "replay", "-b", servers, source, target]
    command += ["--master", "local[2]", "--rate", "150"]
    killed = 0
    for _ in range(2):
        before = len(consumed(servers, target, 2))
        with subprocess.Popen(command, start_new_session=True) as child:
            while child.poll() is None and len(consumed(servers, target, 2)) == before:
                time.sleep(0.1)
            killed += child.poll() is None
            os.kill(child.pid, signal.SIGKILL)
    assert killed == 2
    replay(spark, Replay(Source(servers, source), Source(servers, target)))
    assert consumed(servers, target, 2) == consumed(servers, source, 2)
