"""Three brokers with a remote tier, as the demo has them: where bytes are, and that it is told."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pandas", reason="the demo extra is not installed")
pytest.importorskip("prometheus_client", reason="the metrics extra is not installed")

from aiokafka import AIOKafkaConsumer, TopicPartition

from tidelog_pipeline import report, tiers
from tidelog_pipeline.flights import Event
from tidelog_pipeline.replay import create_topic, replay

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT_BYTES = 1 << 20
PARTITIONS = 2
YEAR_MS = 365 * 86_400_000


def events(count: int) -> list[Event]:
    """Of a kilobyte each, spread over a year of event time."""
    filler = b"x" * 1000
    return [
        Event(b"%d" % (n % 50), b"%d " % n + filler, n * YEAR_MS // count) for n in range(count)
    ]


async def read_all(servers: str, topic: str, ends: dict[int, int]) -> list[int]:
    """The numbers of all events, in the order they came."""
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, index) for index in ends]
        consumer.assign(partitions)
        await consumer.seek_to_beginning()
        got: list[int] = []
        async with asyncio.timeout(100):
            while len(got) < sum(ends.values()):
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    got += [int(record.value.split()[0]) for record in records]
        return got
    finally:
        await consumer.stop()


@pytest.mark.timeout(300)
def test_most_bytes_are_remote_only_and_read_from_there() -> None:
    with tiers.tiered_cluster() as (servers, view):
        configs = {"retention.ms": "-1", **tiers.tiered_topic(SEGMENT_BYTES)}
        asyncio.run(
            create_topic(servers, "t", PARTITIONS, configs, replication_factor=tiers.BROKERS)
        )
        written = asyncio.run(replay(servers, "t", events(16_000)))
        seen = view.wait_until_remote("t", SEGMENT_BYTES)
        assert seen.remote_only_share >= report.REMOTE_ONLY_SHARE_MIN
        assert seen.remote_only + seen.local > 16_000_000
        for one in seen.partitions:
            assert (one.log_start, one.log_end) == (0, written[one.partition])
            assert 0 < one.local_log_start < one.log_end
            # The events' time rolls none: each segment is as full as batches can make it.
            assert one.remote_only > one.remote_segments * SEGMENT_BYTES / 2
            assert one.local <= one.local_anywhere <= SEGMENT_BYTES
        assert view.served("t") == tiers.Served(0, 0)
        assert sorted(asyncio.run(read_all(servers, "t", written))) == list(range(16_000))
        served = view.served("t")
        assert served.remote >= seen.remote_only
        assert served.local > 0
        assert served.remote + served.local >= seen.remote_only + seen.local
        assert view.served("another") == tiers.Served(0, 0)
        ports = view.metrics_ports
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            http.client.HTTPConnection("127.0.0.1", port, timeout=10).request("GET", "/")


def test_what_never_becomes_remote_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "WAIT_SECONDS_MAX", 0.0)
    with tiers.tiered_cluster() as (servers, view):
        configs = {"segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1"}  # old events stay
        asyncio.run(create_topic(servers, "t", 1, configs))
        asyncio.run(replay(servers, "t", events(2_000)))
        with pytest.raises(RuntimeError, match="only 0% of its bytes are in the remote tier alone"):
            view.wait_until_remote("t", SEGMENT_BYTES)


def told(remote_only: int, local: int, *served: int) -> report.TierReport:
    one = tiers.PartitionBytes(0, 1, 0, 90, 100, remote_only, 9, local, local)
    reads = [
        report.Read("part", tiers.Served(5, 6)),
        report.Read("whole", tiers.Served(*served)),
    ]
    return report.TierReport(tiers.TopicBytes("t", (one,)), reads, "whole")


def test_a_history_that_is_mostly_remote_and_was_read_there_passes() -> None:
    assert told(9_000_000, 1_000_000, 9_000_000, 1_000_000).failed == []


@pytest.mark.parametrize(
    ("remote_only", "local", "remote", "disks", "fault"),
    [
        (700, 300, 700, 300, "only 70% of the bytes were remote only"),
        (900, 100, 899, 101, "899 bytes came from the remote tier, which alone has 900"),
        (900, 100, 900, 99, "999 bytes came, of 1,000"),
        (0, 0, 0, 0, "only 0% of the bytes were remote only"),
    ],
)
def test_one_that_is_not_or_was_read_elsewhere_fails(
    remote_only: int, local: int, remote: int, disks: int, fault: str
) -> None:
    assert told(remote_only, local, remote, disks).failed == [fault]


def test_the_report_says_how_many_bytes_came_from_where(tmp_path: Path) -> None:
    # What is local may be in the tier as well, and batches at a border are read twice.
    tier_report = told(9_000_000, 1_000_000, 9_200_000, 900_000)
    assert tier_report.summary == (
        "Of the whole history 9.2 MB came from the remote tier and 0.9 MB from the brokers' disks"
    )
    checks = report.Checks()
    checks.number("rows", 8, 8)
    report.write_json(checks, tier_report, tmp_path / "report.json")
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["figures"] == [
        {"name": "rows", "from_spark": "8", "from_pandas": "8", "equal": True}
    ]
    assert written["tiers"]["whole"] == {"remote_bytes": 9_200_000, "local_bytes": 900_000}
    assert written["tiers"]["remote_only_share"] == 0.9
    assert written["tiers"]["reads"][0] == {
        "name": "part",
        "remote_bytes": 5,
        "local_bytes": 6,
        "seconds": 0.0,
    }
    report.write_json(checks, None, tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["tiers"] is None
