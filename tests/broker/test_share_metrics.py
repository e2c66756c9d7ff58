"""What a broker counts of share groups, by Kafka's names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from support.data_path import DataPath, batch
from support.share_path import SharePath
from tidelog.metrics.meters import Meters
from tidelog.metrics.prometheus import families
from tidelog.shares.gauges import tell_shares

if TYPE_CHECKING:
    from pathlib import Path

ACCEPT, RELEASE, REJECT = 1, 2, 3


def values(meters: Meters) -> dict[str, float]:
    """Each series by its name behind `kafka_server_` and what tells it from others."""
    found = {}
    for family in families(meters):
        for sample in family.samples:
            tags = [value for key, value in sample.labels.items() if key == "ackType"]
            if "quantile" not in sample.labels:
                found["_".join([sample.name.removeprefix("kafka_server_"), *tags])] = sample.value
    return found


def test_share_partitions_and_sessions_are_counted(tmp_path: Path) -> None:
    async def test() -> None:
        path = DataPath(tmp_path)
        foo = path.create("foo", 1)
        shares = SharePath(path)
        meters = Meters()
        tell_shares(meters, shares.partitions)
        try:
            path.produce("foo", 0, batch(3))
            path.produce("foo", 0, batch(4))
            await shares.fetched((foo, 0), batch_size=3)
            kinds = [ACCEPT, RELEASE, REJECT]
            await shares.acknowledged((foo, 0, (0, 0, [ACCEPT]), (1, 3, kinds)))
            await shares.acknowledged((foo, 0, (9, 9, [ACCEPT])))
            [labels] = {
                tuple(sample.labels.items())
                for family in families(meters)
                for sample in family.samples
                if "partition" in sample.labels
            }
            assert labels == (("group", "g"), ("partition", "0"), ("topic", "foo"))
            held = values(meters)
            path.timers.advance_ms(30_000)
            ended = values(meters)
        finally:
            await shares.partitions.close()
            path.logs.abandon()
        assert held == {
            "sharegroupmetrics_recordacknowledgements_total_Accept": 2,
            "sharegroupmetrics_recordacknowledgements_total_Release": 1,
            "sharegroupmetrics_recordacknowledgements_total_Reject": 1,
            "sharegroupmetrics_recordacknowledgements_total_Renew": 0,
            "sharegroupmetrics_partitionloadtimems_count": 1,
            "sharegroupmetrics_partitionloadtimems_sum": 0,
            "sharepartitionmetrics_inflightmessagecount": 5,
            "sharepartitionmetrics_inflightbatchcount": 2,
            "sharepartitionmetrics_acquisitionlocktimeout_total": 0,
            "sharesessioncache_sharesessionscount": 1,
            "sharesessioncache_sharepartitionscount": 1,
        }
        assert ended == held | {"sharepartitionmetrics_acquisitionlocktimeout_total": 3}

    asyncio.run(test())
