"""`tiered=...` and `--tiered` as Kafka's properties, and topics that join by their names."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import tidelog
from support.clusters import run
from support.wire_client import WireClient
from tidelog.cli.serve import main
from tidelog.embedded.cluster_settings import ClusterError
from tidelog.embedded.tiered import DIRECTORY_STORE, S3_STORE, tiered_settings, with_tier
from tidelog.start_error import StartError
from tidelog_protocol.messages.admin import CreateTopicsRequest

if TYPE_CHECKING:
    from pathlib import Path

ENABLE = "remote.log.storage.system.enable"
STORE = "remote.log.storage.manager.class.name"


def test_no_tier_is_no_setting() -> None:
    assert tiered_settings(tiered=False) == {}
    assert with_tier({"a": "b"}, "/data", 3) == {"a": "b"}


def test_topics_without_a_tier_are_refused() -> None:
    with pytest.raises(ClusterError, match="tiered topics need a remote tier"):
        tiered_settings(False, ["logs*"])


def test_a_directory(tmp_path: Path) -> None:
    settings = tiered_settings(tmp_path, ["a*", "b"])
    assert settings == {
        ENABLE: "true",
        STORE: DIRECTORY_STORE,
        "rsm.config.dir": str(tmp_path),
        "remote.storage.topics": "a*,b",
    }


def test_a_bucket() -> None:
    settings = tiered_settings("s3://bucket/some/prefix")
    assert settings == {
        ENABLE: "true",
        STORE: S3_STORE,
        "rsm.config.bucket": "bucket",
        "rsm.config.prefix": "some/prefix",
    }
    with pytest.raises(ClusterError, match="s3://bucket/prefix"):
        tiered_settings("s3://")


@pytest.mark.parametrize(("brokers", "factor", "enough"), [(1, 1, 1), (2, 2, 1), (3, 3, 2)])
def test_defaults_are_beneath_what_is_said(brokers: int, factor: int, enough: int) -> None:
    topic = "rlmm.config.remote.log.metadata.topic."
    properties = with_tier({ENABLE: "true"}, "/data", brokers)
    assert properties == {
        ENABLE: "true",
        STORE: DIRECTORY_STORE,
        "rsm.config.dir": "/data/remote-tier",
        f"{topic}replication.factor": str(factor),
        f"{topic}min.isr": str(enough),
        "log.retention.check.interval.ms": "10000",
        "log.initial.task.delay.ms": "10000",
    }
    said = {
        ENABLE: "true",
        STORE: "my.Store",
        f"{topic}min.isr": "7",
        "log.retention.check.interval.ms": "5",
        "log.initial.task.delay.ms": "6",
    }
    assert with_tier(said, "/data", brokers) == said | {f"{topic}replication.factor": str(factor)}


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tiered", "s3://", "--port", "0"]) == 1
    assert (
        capsys.readouterr().err == "tidelog: --tiered: s3://: not of the form s3://bucket/prefix\n"
    )
    assert main(["--tiered-topics", "a*", "--port", "0"]) == 1
    assert "need a remote tier" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["http://bucket/x", "S3://bucket", "file:///tier", "s3:/bucket"])
def test_an_address_of_another_kind_is_no_directory(place: str) -> None:
    with pytest.raises(ClusterError, match="neither a directory nor of the form s3://bucket"):
        tiered_settings(place)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClusterError, match=f"^{tmp_path}/file: not a directory$"):
        tiered_settings(tmp_path / "file")
    assert tiered_settings(tmp_path / "made later")[ENABLE] == "true"


@pytest.mark.parametrize("brokers", [("--brokers", "1"), ("--brokers", "2", "--isolated")], ids=str)
def test_a_directory_that_cannot_be_made_is_one_line(
    brokers: tuple[str, ...], tmp_path: Path
) -> None:
    """It was told by the first copies alone: a warning for each, again and again."""
    (tmp_path / "file").touch()
    place = f"{tmp_path}/file/tier"
    words = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--tiered", place]
    result = subprocess.run(
        [sys.executable, "-m", "tidelog", *words, *brokers],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f"tidelog: rsm.config.dir: {place} cannot be written to: Not a directory\n"
    )


def test_a_file_in_place_of_a_folder_of_the_tier_is_one_line(tmp_path: Path) -> None:
    folder = "remote-log-index-cache"
    (tmp_path / folder).touch()
    settings = {ENABLE: "true", "log.dirs": str(tmp_path)}

    async def served() -> None:
        async with tidelog.Cluster(settings):
            pass

    with pytest.raises(StartError, match=f"^{tmp_path}/{folder}: Not a directory$"):
        asyncio.run(served())


def test_a_store_that_cannot_be_created_is_reported_in_python_too(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    reason = f"rsm.config.dir: {tmp_path}/file/tier cannot be written to: Not a directory"
    with pytest.raises(ClusterError, match=reason), tidelog.run(tiered=tmp_path / "file" / "tier"):
        pass
    settings = {ENABLE: "true", "rsm.config.dir": f"{tmp_path}/file/tier"}
    with pytest.raises(StartError, match=f"^{reason}$"):
        asyncio.run(tidelog.Cluster(settings).start())


async def created(server: str, name: str, configs: dict[str, str]) -> str | None:
    """What `remote.storage.enable` of a topic is after its creation."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        configs=[
            CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=key, value=value)
            for key, value in configs.items()
        ],
    )
    async with await WireClient.connect(server) as client:
        response = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    (result,) = response.topics
    assert result.error_code == 0, result.error_message
    return {entry.name: entry.value for entry in result.configs}["remote.storage.enable"]


def test_topics_join_by_their_names(tmp_path: Path) -> None:
    async def test():
        async with tidelog.Cluster(tiered=tmp_path, tiered_topics=["tiered-*", "o?e"]) as cluster:
            server = cluster.bootstrap_servers
            assert await created(server, "tiered-a", {}) == "true"
            assert await created(server, "one", {}) == "true"
            assert await created(server, "other", {}) == "false"
            assert await created(server, "tiered-b", {"remote.storage.enable": "false"}) == "false"
            assert await created(server, "tiered-c", {"cleanup.policy": "compact"}) == "false"

    run(test)
