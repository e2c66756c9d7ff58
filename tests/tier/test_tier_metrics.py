"""Kafka's metrics of tiered storage on the Prometheus endpoint of a broker that copies, reads and
deletes."""

from __future__ import annotations

import asyncio
import re
import urllib.request

import pytest

from support.clusters import run, until
from tidelog.embedded.ports import Ports
from tidelog.runtime import system_runtime
from tier import admin
from tier.harness import TieredCluster, kv

# Those of RemoteStorageMetrics in Kafka 4.3.1; tests/compat/test_tier_metrics.py compares the names
# with its jar.
OF_TOPICS = {
    "BuildRemoteLogAuxStateErrorsPerSec",
    "BuildRemoteLogAuxStateRequestsPerSec",
    "RemoteCopyBytesPerSec",
    "RemoteCopyErrorsPerSec",
    "RemoteCopyLagBytes",
    "RemoteCopyLagSegments",
    "RemoteCopyRequestsPerSec",
    "RemoteDeleteErrorsPerSec",
    "RemoteDeleteLagBytes",
    "RemoteDeleteLagSegments",
    "RemoteDeleteRequestsPerSec",
    "RemoteFetchBytesPerSec",
    "RemoteFetchErrorsPerSec",
    "RemoteFetchRequestsPerSec",
    "RemoteLogMetadataCount",
    "RemoteLogSizeBytes",
    "RemoteLogSizeComputationTime",
}
OF_THE_MANAGER = {
    "LocalRetentionSizeInPercent",  # of partitions, with the next: KIP-1257
    "RetentionSizeInPercent",
    "RemoteLogManagerTasksAvgIdlePercent",
    "RemoteLogReaderFetchRateAndTimeMs",
}
OF_READERS = {"RemoteLogReaderAvgIdlePercent", "RemoteLogReaderTaskQueueSize"}
STORAGE_METRICS = {
    *(f"kafka.server:type=BrokerTopicMetrics,name={name}" for name in OF_TOPICS),
    *(f"kafka.log.remote:type=RemoteLogManager,name={name}" for name in OF_THE_MANAGER),
    *(
        f"{domain}:type=RemoteStorageThreadPool,name={name}"
        for domain in ("kafka.log.remote", "org.apache.kafka.storage.internals.log")
        for name in OF_READERS
    ),
}
# Other classes' of the same jars: DelayedRemoteFetch, DelayedRemoteListOffsets, RLMQuotaManager,
# RLMQuotaMetrics, DelayedOperationPurgatory, LogMetricNames.
FURTHER = {
    "kafka.server:type=DelayedRemoteFetchMetrics,name=ExpiresPerSec",
    "kafka.server:type=DelayedRemoteListOffsetsMetrics,name=ExpiresPerSec",
    "kafka.server:type=RLMCopy,name=byte-rate",
    "kafka.server:type=RLMFetch,name=byte-rate",
    *(
        f"kafka.server:type=RemoteLogManager,name=remote-{kind}-throttle-time-{what}"
        for kind in ("copy", "fetch")
        for what in ("avg", "max")
    ),
    "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize",
    "kafka.server:type=DelayedOperationPurgatory,name=NumDelayedOperations",
    *(
        f"kafka.log:type=Log,name={name}"
        for name in (
            "LogEndOffset",
            "LogStartOffset",
            "NumLogSegments",
            "RetentionSizeInPercent",
            "Size",
        )
    ),
}


@pytest.fixture
def store(tmp_path):
    return {"inner": "directory", "dir": str(tmp_path / "tier")}


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return answer.read().decode()


def told(text: str) -> set[str]:
    """The MBeans that the endpoint's help names."""
    return set(re.findall(r"^# HELP \S+ (.*)$", text, re.MULTILINE))


def values(text: str, start: str) -> dict[str, float]:
    """Labels and values of a metric."""
    pairs = [line[len(start) :].rsplit(" ", 1) for line in text.splitlines()]
    return {
        pair[0]: float(pair[1])
        for pair, line in zip(pairs, text.splitlines(), strict=True)
        if line.startswith((start + "{", start + " "))
    }


def test_every_metric_name_of_kafka_is_served(store: dict[str, str]) -> None:
    async def test():
        ports = Ports()
        (port,) = await ports.take(system_runtime(), "127.0.0.1", 1)
        ports.release()
        settings = {"metrics.prometheus.listener": f"127.0.0.1:{port}"}
        async with TieredCluster(store, settings=settings) as cluster:
            first = await asyncio.to_thread(scrape, port)
            assert told(first) >= STORAGE_METRICS | FURTHER
            copied = "kafka_server_brokertopicmetrics_remotecopybytes_total"
            assert values(first, copied) == {"": 0}

            await cluster.create("t", batches_per_segment=2, configs={"retention.bytes": "3600"})
            await cluster.produce("t", 0, kv(0, 1, 2, 3, 4))
            await cluster.expect_earliest_local("t", 0, 4)
            await cluster.consume("t", 0, 0, 5, remote=4)
            tier = cluster.node(0).server.tier
            await until(
                lambda: tier.partitions["t", 0].expiration.percents == (10, 7200),
                "expiration has seen the end of copying",
            )
            text = await asyncio.to_thread(scrape, port)
            topic = '{topic="t"}'
            topics = "kafka_server_brokertopicmetrics_"
            assert values(text, copied) == {"": 288, topic: 288}
            assert values(text, f"{topics}remotecopyrequests_total") == {"": 2, topic: 2}
            assert values(text, f"{topics}remotelogsizebytes") == {"": 288, topic: 288}
            assert values(text, f"{topics}remotelogmetadatacount") == {"": 2, topic: 2}
            partition = '{partition="0",topic="t"}'
            manager = "kafka_log_remote_remotelogmanager_"
            # 360 bytes of 3600, and locally 72 where 1 may be.
            assert values(text, f"{manager}retentionsizeinpercent") == {partition: 10}
            assert values(text, f"{manager}localretentionsizeinpercent") == {partition: 7200}
            timer = f"{manager}remotelogreaderfetchrateandtimems"
            fetches = values(text, f"{topics}remotefetchrequests_total")[""]
            assert values(text, f"{timer}_count") == {"": fetches}
            assert values(text, f"{timer}_sum")[""] > 0
            waiting = values(text, "kafka_server_delayedoperationpurgatory_purgatorysize")
            assert waiting['{delayedOperation="RemoteFetch"}'] == 0
            assert waiting['{delayedOperation="RemoteListOffsets"}'] == 0
            assert values(text, "kafka_log_log_size")[partition] == 72
            assert values(text, "tidelog_remote_remoteindexcache_sizebytes").keys() == {""}
            assert values(text, "tidelog_remote_remotelogmetadata_unreadablerecords") == {"": 0}
            assert values(text, "tidelog_remote_remotelogmetadata_illegalrecords") == {"": 0}

            await admin.delete_topic(cluster.server(), "t")
            await until(
                lambda: (
                    not [
                        labels
                        for _, samples in cluster.node(0).server.meters.counts()
                        for labels, _ in samples
                        if ("topic", "t") in labels
                    ]
                ),
                "nothing is told of a deleted topic",
            )

    run(test)
