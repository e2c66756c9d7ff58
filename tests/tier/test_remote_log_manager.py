"""What Apache Kafka's unit tests pin down of its RemoteLogManager and metadata manager, where a
running broker is needed (kafka-tests 3.1, 3.2); for the rest see tests/storage and tests/broker.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.clusters import run, until
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest
from tidelog_storage.remote.api import RemoteStorageNotReady
from tier import admin
from tier.harness import kv
from tier.held import Held, is_held
from tier.recording_store import COPY, DELETE

if TYPE_CHECKING:
    from pathlib import Path


def test_lost_leadership_ends_a_deletion_between_two_segments(tmp_path: Path) -> None:
    """The second does not happen here; the new leader does it."""

    async def test() -> None:
        async with Held(tmp_path) as cluster:
            await cluster.create("a", [(0, 1)], batches_per_segment=1)
            await cluster.expect_leader("a", 0, 0)
            await cluster.produce("a", 0, kv(*range(5)))
            await cluster.expect_earliest_local("a", 0, 4)
            cluster.history.hold(DELETE, 1)
            await cluster.delete_records("a", 0, 4)
            await is_held(cluster, DELETE, 0)
            await cluster.lead_by(1, "a")
            await until(lambda: not cluster.objects("a"), "the new leader deletes all of it")
            cluster.history.release(DELETE, 1)
            await until(lambda: (DELETE, 1) not in cluster.history.held)
            await cluster.produce("a", 0, kv(5))
            await cluster.expect_earliest_local("a", 0, 5)
            calls = cluster.history.calls(DELETE, "a", 0)
            assert {call.segment.start_offset for call in calls if call.node_id == 1} == {0}
            assert {call.segment.start_offset for call in calls if call.node_id == 2} == {*range(4)}

    run(test)


def test_without_metadata_nothing_is_copied_and_nothing_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another partition, whose metadata is ready, tells when the tasks have run."""

    async def test() -> None:
        async with Held(tmp_path, brokers=1) as cluster:
            for topic in ("a", "b"):
                await cluster.create(topic, batches_per_segment=1)
                await cluster.produce(topic, 0, kv(0, 1, 2))
                await cluster.expect_earliest_local(topic, 0, 2)
            tier = cluster.node(0).server.tier
            of_a, is_ready = tier.partitions["a", 0], tier.metadata.is_ready
            with monkeypatch.context() as patch:
                patch.setattr(
                    tier.metadata, "is_ready", lambda one: one != of_a.partition and is_ready(one)
                )
                for topic in ("a", "b"):
                    await cluster.produce(topic, 0, kv(3))
                    await cluster.delete_records(topic, 0, 1)
                    tier.partitions[topic, 0].wake()
                await cluster.expect_earliest_local("b", 0, 3)
                await cluster.expect_deletions(0, "b", 0, 1)
                assert len(cluster.finished("a", 0)) == 2
                assert cluster.history.calls(DELETE, "a", 0) == []
            of_a.wake()
            await cluster.expect_earliest_local("a", 0, 3)
            await cluster.expect_deletions(0, "a", 0, 1)

    run(test)


def test_a_stop_ends_the_wait_for_the_copy_quota(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {"remote.log.manager.copy.max.bytes.per.second": "1"}
        async with Held(tmp_path, brokers=1, settings=settings) as cluster:
            await cluster.create("a", batches_per_segment=1)
            await cluster.produce("a", 0, kv(0, 1, 2, 3))
            await until(lambda: len(cluster.finished("a", 0)) == 1, "the first is free")
            async with asyncio.timeout(50):  # the second waits for longer
                await cluster.stop(0)
            assert len(cluster.finished("a", 0)) == 1

    run(test)


async def alter_broker(server: str, node_id: int, **settings: str) -> None:
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=key.replace("_", "."), config_operation=0, value=value
        )
        for key, value in settings.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4, resource_name=str(node_id), configs=configs
    )
    answer = await admin.ask(server, IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == ErrorCode.NONE, answer.responses[0].error_message


def test_thread_pools_are_resized_while_they_work(tmp_path: Path) -> None:
    async def test() -> None:
        one = {
            "remote.log.manager.copier.thread.pool.size": "1",
            "remote.log.manager.expiration.thread.pool.size": "1",
        }
        async with Held(tmp_path, brokers=1, settings=one) as cluster:
            cluster.history.hold(COPY, 1)
            for topic in ("a", "b"):
                await cluster.create(topic, batches_per_segment=1)
                await cluster.produce(topic, 0, kv(0, 1))
            await is_held(cluster, COPY, 0)
            pools = cluster.node(0).server.tier.pools
            await until(lambda: pools.copier.pending == 1, "the other waits for the thread")
            more: dict[str, Any] = {
                "remote_log_manager_copier_thread_pool_size": "2",
                "remote_log_manager_expiration_thread_pool_size": "2",
                "remote_log_manager_follower_thread_pool_size": "3",
                "remote_log_reader_threads": "7",
            }
            await alter_broker(cluster.server(0), 1, **more)
            await until(lambda: len(cluster.history.held) == 2, "both copy")
            sizes = {name: pool.threads_max for name, pool in vars(pools).items()}
            assert sizes == {"copier": 2, "expiration": 2, "follower": 3, "reader": 7}
            cluster.history.release(COPY, 1)
            for topic in ("a", "b"):
                await cluster.expect_earliest_local(topic, 0, 1)

    run(test)


def test_quotas_have_their_configured_rates_and_windows(tmp_path: Path) -> None:
    """Rates at any time, windows at the start."""

    async def test() -> None:
        manager = "remote.log.manager"
        settings = {
            f"{manager}.copy.max.bytes.per.second": "1000001",
            f"{manager}.copy.quota.window.num": "5",
            f"{manager}.copy.quota.window.size.seconds": "2",
            f"{manager}.fetch.max.bytes.per.second": "1000002",
            f"{manager}.fetch.quota.window.num": "7",
            f"{manager}.fetch.quota.window.size.seconds": "3",
        }
        async with Held(tmp_path, brokers=1, settings=settings) as cluster:
            tier = cluster.node(0).server.tier
            copies, fetches = tier._copy_quota, tier.reads._quota

            def set_to() -> list[tuple[int, int, int]]:
                return [
                    (quota.bytes_per_second, quota._windows_max, quota._window_s)
                    for quota in (copies, fetches)
                ]

            assert set_to() == [(1000001, 5, 2), (1000002, 7, 3)]
            more: dict[str, Any] = {
                "remote_log_manager_copy_max_bytes_per_second": "2000001",
                "remote_log_manager_fetch_max_bytes_per_second": "2000002",
            }
            await alter_broker(cluster.server(0), 1, **more)
            await until(lambda: set_to() == [(2000001, 5, 2), (2000002, 7, 3)])

    run(test)


def test_broker_default_of_copy_lag_applies_to_topics_without_their_own(tmp_path: Path) -> None:
    """Another topic, which has its own, tells when the tasks have run."""

    async def test() -> None:
        wait = {"log.remote.copy.lag.ms": "3600000"}
        async with Held(tmp_path, brokers=1, settings=wait) as cluster:
            own: dict[str, dict[str, str]] = {
                "a": {},
                "b": {"remote.copy.lag.bytes": "1000000000"},
                "c": {"remote.copy.lag.ms": "0"},
            }
            for topic, configs in own.items():
                unlimited = {"local.retention.bytes": "-2"}
                await cluster.create(topic, batches_per_segment=1, configs=unlimited | configs)
                await cluster.produce(topic, 0, kv(0, 1, 2))

            def copied() -> dict[str, int]:
                return {topic: len(cluster.finished(topic, 0)) for topic in own}

            await until(lambda: copied() == {"a": 0, "b": 0, "c": 2})
            await alter_broker(cluster.server(0), 1, log_remote_copy_lag_bytes="1")
            await until(lambda: copied() == {"a": 2, "b": 0, "c": 2})
            await alter_broker(cluster.server(0), 1, log_remote_copy_lag_ms="0")
            await until(lambda: copied() == {"a": 2, "b": 2, "c": 2})

    run(test)


def test_size_of_an_unknown_remote_partition_is_an_error(tmp_path: Path) -> None:
    async def test() -> None:
        async with Held(tmp_path, brokers=1) as cluster:
            await cluster.create("a", batches_per_segment=1)
            await cluster.produce("a", 0, kv(0, 1, 2))
            await cluster.expect_earliest_local("a", 0, 2)
            tier = cluster.node(0).server.tier
            known = tier.partitions["a", 0].partition
            each = [segment.size for segment in tier.metadata.segments(known)]
            assert [tier.metadata.size(known, epoch) for epoch in (0, 1)] == [sum(each), 0]
            with pytest.raises(RemoteStorageNotReady):
                tier.metadata.size(known._replace(partition=9), 0)

    run(test)
