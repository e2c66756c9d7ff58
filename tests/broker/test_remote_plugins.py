"""Plug-ins by class name, and what they are given."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from support.clusters import run, until
from support.memory_metadata import NAME
from support.metadata import broker_config
from support.tiered_cluster import TieredCluster, segmented, tiered_cluster
from tidelog.start_error import StartError
from tidelog.tiered import plugins
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.remote.api import (
    RemoteStorageError,
    RetriableRemoteStorageError,
    TopicIdPartition,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.config.broker import BrokerConfig
    from tidelog_storage.remote.api import PartitionDelete

KEY = "remote.log.storage.manager.class.name"
STORE = """
class Store:
    def configure(self, config):
        self.config = config
        if "wrong" in config:
            raise ValueError("wrong: it is")
        if "text" in config:
            raise ValueError(config["text"])
        if "broken" in config:
            config["nothing"]
    def _nothing(self): ...
    copy_segment = fetch_segment = fetch_index = delete_segment = close = _nothing
class Outer:
    class Inner: ...
"""


def test_classes_are_found_by_both_spellings_and_on_their_own_path(tmp_path: Path) -> None:
    (tmp_path / "store_of_mine.py").write_text(STORE)
    where = r"No module named 'store_of_mine' \(remote.log.storage.manager.class.path can name"
    with pytest.raises(StartError, match=f"{KEY}: no class store_of_mine.Store: {where}"):
        plugins.load_class(KEY, "store_of_mine.Store", None)
    path = f"/nowhere:{tmp_path}"
    before = list(sys.path)
    try:
        for name in ("store_of_mine.Store", "store_of_mine:Store"):
            assert plugins.load_class(KEY, name, path).__name__ == "Store"
        for name in ("store_of_mine.Other", "store_of_mine:", ":Store", "..x"):
            with pytest.raises(StartError, match="no class"):
                plugins.load_class(KEY, name, path)
    finally:
        sys.path[:] = before
        sys.modules.pop("store_of_mine", None)


def test_a_store_is_given_its_settings_and_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "store_of_mine_2.py").write_text(STORE)
    before = list(sys.path)
    config = broker_config(
        remote_log_storage_manager_class_name="store_of_mine_2:Store",
        remote_log_storage_manager_class_path=str(tmp_path),
        remote_log_storage_manager_impl_prefix="mine.",
        mine_chunk_size="7",
        rlmm_config_x="y",
        node_id="5",
    )
    try:
        store = plugins.new_storage(config, None, "the-cluster")
        assert store.config == {
            "chunk.size": "7",
            "node.id": "5",
            "broker.id": "5",
            "cluster.id": "the-cluster",
        }
        wrong = config.from_properties({**config.given, "mine.wrong": "1"})
        with pytest.raises(StartError, match=r"^mine\.wrong: it is$"):
            plugins.new_storage(wrong, None, "the-cluster")
        nameless = config.from_properties({**config.given, "mine.text": "no such place: here"})
        with pytest.raises(
            StartError, match=f"^{KEY}: store_of_mine_2.Store: no such place: here$"
        ):
            plugins.new_storage(nameless, None, "the-cluster")
        broken = config.from_properties({**config.given, "mine.broken": "1"})
        with pytest.raises(
            StartError, match=f"^{KEY}: store_of_mine_2.Store: KeyError: 'nothing'$"
        ):
            plugins.new_storage(broken, None, "the-cluster")
    finally:
        sys.path[:] = before
        sys.modules.pop("store_of_mine_2", None)


@pytest.mark.parametrize("what", ["storage", "metadata"])
def test_a_class_that_is_no_plug_in_is_refused(what: str) -> None:
    key = f"remote.log.{what}.manager.class.name"
    config = broker_config(**{key.replace(".", "_"): "json.JSONEncoder"})
    protocol = "RemoteStorage" if what == "storage" else "RemoteLogMetadata"
    make = plugins.new_metadata if what == "metadata" else no_files
    with pytest.raises(StartError, match=f"{key}: json.encoder.JSONEncoder is no {protocol}: it"):
        make(config, "the-cluster")


def no_files(config: BrokerConfig, cluster_id: str) -> object:
    return plugins.new_storage(config, None, cluster_id)


@pytest.mark.parametrize(
    "name",
    [
        "tidelog.tiered.metadata.topic.TopicBasedMetadata",
        "tidelog.tiered.metadata.topic:TopicBasedMetadata",
        "tidelog.remote.metadata.topic.TopicBasedMetadata",
        "tidelog.remote.metadata_topic:TopicBasedMetadata",
    ],
)
def test_each_name_of_the_topic_based_metadata_means_it(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Only its own unknown settings are logged: those of another class are unknown here."""
    config = broker_config(
        **{"remote.log.metadata.manager.class.name": name, "rlmm.config.unknown": "1"}
    )
    plugins.metadata_properties(config, "the-cluster")
    (record,) = caplog.records
    assert record.getMessage().startswith("rlmm.config.unknown: tidelog has no such setting")


def test_settings_without_effect_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a mistyped endpoint has the store go to another one, and nobody knows why."""
    topic = "rlmm.config.remote.log.metadata"
    config = broker_config(
        **{
            "rsm.config.dir": str(tmp_path),
            "rsm.config.endpoint": "http://127.0.0.1:9000",
            f"{topic}.topic.num.partitions": "3",
            f"{topic}.common.client.security.protocol": "PLAINTEXT",
            f"{topic}.common.client.retry.backoff.ms": "200",
            f"{topic}.producer.acks": "1",
            f"{topic}.admin.request.timeout.ms": "5000",
            f"{topic}.topic.partitions": "3",
        }
    )
    plugins.new_storage(config, OsFileSystem(), "the-cluster")
    plugins.metadata_properties(config, "the-cluster")
    told = [record.getMessage().partition(":")[0] for record in caplog.records]
    without_effect = ("producer.acks", "admin.request.timeout.ms", "topic.partitions")
    assert told == ["rsm.config.endpoint", *(f"{topic}.{key}" for key in without_effect)]


def test_a_listener_that_there_is_not_is_refused() -> None:
    config = broker_config(remote_log_metadata_manager_listener_name="tier")
    key = "remote.log.metadata.manager.listener.name"
    with pytest.raises(StartError, match=f"{key}: tier is not among the listeners, PLAINTEXT"):
        plugins.metadata_properties(config, "the-cluster")


def test_a_metadata_manager_gets_the_listener_it_may_use() -> None:
    config = broker_config(
        listeners="PLAINTEXT://127.0.0.1:19092,TIER://127.0.0.2:19093",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,TIER:PLAINTEXT",
        remote_log_metadata_manager_listener_name="tier",
        log_dirs="/data/a,/data/b",
        rlmm_config_x="y",
    )
    given = plugins.metadata_properties(config, "the-cluster")
    assert given == {
        "x": "y",
        "node.id": "1",
        "broker.id": "1",
        "cluster.id": "the-cluster",
        "log.dir": "/data/a",
        "remote.log.metadata.common.client.bootstrap.servers": "127.0.0.2:19093",
        "remote.log.metadata.common.client.security.protocol": "PLAINTEXT",
    }


def test_a_metadata_managers_own_settings_win_over_the_listener() -> None:
    """As in Kafka: somebody has it go to another cluster, and what that asks for."""
    clients = "remote.log.metadata.common.client"
    own = {f"{clients}.bootstrap.servers": "far:9", f"{clients}.security.protocol": "SSL"}
    config = broker_config(
        listeners="PLAINTEXT://127.0.0.1:19092",
        remote_log_metadata_manager_listener_name="PLAINTEXT",
        node_id="7",
        **{f"rlmm.config.{key}": value for key, value in {**own, "broker.id": "8"}.items()},
    )
    given = plugins.metadata_properties(config, "the-cluster")
    assert given.items() >= own.items()
    assert given["broker.id"] == "7", "who it is, is no setting of its own"


async def copied(it: TieredCluster, replicas: int = 1) -> None:
    """A topic with two segments in the store and one here."""
    await it.create("a", 1, replicas, **segmented(1))
    await it.produce("a", ["v0", "v1", "v2"])
    await it.offloaded("a", {0: ["v0"], 1: ["v1"]}, local_start=2)


def test_a_users_metadata_manager_takes_the_place_of_the_topic(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {"remote.log.metadata.manager.class.name": NAME, "rlmm.config.color": "blue"}
        async with tiered_cluster(tmp_path, 3, **settings) as it:
            await copied(it, replicas=2)
            given = it.tier(1).metadata.config
            assert given["color"] == "blue"
            assert given["log.dir"].endswith("broker-1")
            assert "__remote_log_metadata" not in it.node(1).server.metadata.image.topics
            await it.delete("a")
            await until(lambda: not it.remote_files("a"))

    run(test)


def test_ids_are_uuids_for_a_users_own_store_and_metadata(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {"remote.log.metadata.manager.class.name": NAME}
        async with tiered_cluster(tmp_path, **settings) as it:
            await copied(it)
            tier, image = it.tier(1), it.node(1).server.metadata.image
            partition = TopicIdPartition(UUID(bytes=image.topics["a"].topic_id), "a", 0)
            segments = list(tier.metadata.segments(partition))
            assert [type(each.segment_id) for each in segments] == [UUID, UUID]
            assert {each.topic_id for each in segments} == {partition.topic_id}
            for segment in segments:
                with tier.storage.fetch_segment(segment, 0) as stream:
                    assert len(stream.read()) == segment.size

    run(test)


def test_a_topics_deletion_is_marked_whatever_a_users_own_metadata_says(tmp_path: Path) -> None:
    """An error that does not pass, once, and what was remote stayed in the store for good."""

    async def test() -> None:
        settings = {"remote.log.metadata.manager.class.name": NAME}
        async with tiered_cluster(tmp_path, **settings) as it:
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1"])
            await it.offloaded("a", {0: ["v0"]}, local_start=1)
            metadata = it.tier(1).metadata
            put, errors = metadata.put_partition_delete, [RemoteStorageError("no"), OSError("no")]

            async def refuse(event: PartitionDelete) -> None:
                if errors:
                    raise errors.pop()
                await put(event)

            metadata.put_partition_delete = refuse
            await it.delete("a")
            await until(lambda: not it.remote_files("a"))
            assert not errors

    run(test)


def test_a_topics_deletion_waits_for_the_store_with_a_users_own_metadata(tmp_path: Path) -> None:
    """No remover of ours reads that: what was tried once stayed in the store for good."""

    async def test() -> None:
        settings = {"remote.log.metadata.manager.class.name": NAME}
        async with tiered_cluster(tmp_path, **settings) as it:
            await copied(it)
            faults = it.faults
            faults.errors["delete"] = RetriableRemoteStorageError("away")
            await it.delete("a")
            await until(lambda: faults.count("delete") >= 2)
            faults.errors["delete"] = RemoteStorageError("no")
            before = faults.count("delete")
            await until(lambda: faults.count("delete") > before + 1)
            assert it.remote("a") == {0: ["v0"], 1: ["v1"]}
            faults.errors.clear()
            await until(lambda: not it.remote_files("a"))

    run(test)
