"""What a broker checks before all else: its directories, and their owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.metadata import CountedRng, FixedClock
from tidelog.cluster.formatting import format_new, random_cluster_id
from tidelog.config.broker import BrokerConfig
from tidelog.embedded.cluster_settings import broker_properties, node_properties
from tidelog.foundation import open_logs, warn_of_open
from tidelog.runtime import system_runtime
from tidelog.simulation.disk import SimDisk
from tidelog.start_error import StartError
from tidelog_storage.directory import LogDirectoryError

RUNTIME = system_runtime(durable=False)


def node(node_id: int, folder: Path) -> BrokerConfig:
    """One of a cluster of two."""
    properties = node_properties(
        {},
        node_id=node_id,
        voters={1: "a.example:9000", 2: "b.example:9000"},
        host="127.0.0.1",
        port=0,
        data_dir=str(folder),
    )
    return BrokerConfig.from_properties(properties)


def alone(*log_dirs: Path, **settings: str) -> BrokerConfig:
    """A broker that is a cluster by itself."""
    settings = {key.replace("_", "."): value for key, value in settings.items()}
    settings["log.dirs"] = ",".join(map(str, log_dirs))
    return BrokerConfig.from_properties(broker_properties(settings, port=0))


def opened(config: BrokerConfig, new_cluster_id: str | None = None) -> str:
    logs, cluster_id, _ = open_logs(config, RUNTIME, new_cluster_id)
    logs.abandon()
    return cluster_id


def test_a_random_cluster_id_is_kafkas_and_begins_with_no_dash() -> None:
    dashed_first = iter((b"\xfb" + bytes(15), bytes(16)))
    assert random_cluster_id(lambda: next(dashed_first)) == "A" * 22


def test_a_node_of_a_cluster_does_not_start_on_an_empty_disk(tmp_path: Path) -> None:
    with pytest.raises(StartError) as refused:
        opened(node(2, tmp_path))
    assert str(refused.value) == (
        f"log directory {tmp_path} is not formatted: run `tidelog format --cluster-id ID"
        f" --node-id 2 --set log.dirs={tmp_path}`"
    )
    assert list(tmp_path.iterdir()) == []
    assert opened(node(2, tmp_path), "mine") == opened(node(2, tmp_path)) == "mine"


def test_a_broker_alone_formats_new_directories(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert opened(alone(one, two)) == opened(alone(two, one))


def test_a_spare_directory_that_cannot_be_read_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    cluster_id = opened(alone(one, two))
    two.rename(tmp_path / "away")
    two.write_text("no directory")
    assert opened(alone(one, two)) == cluster_id
    assert f"log directory {two} is offline until the next start" in caplog.text
    with pytest.raises(NotADirectoryError):
        opened(alone(two, one))  # the metadata log's
    one.rename(tmp_path / "gone")
    with pytest.raises(StartError, match="is not formatted"):
        opened(alone(one, two))  # it may belong to a cluster


def test_only_log_directories_can_be_cordoned(tmp_path: Path) -> None:
    config = alone(tmp_path).with_dynamic({"cordoned.log.dirs": f"{tmp_path}/other"})
    with pytest.raises(StartError, match=r"^Invalid value \[.*\] for configuration cordoned\.log"):
        opened(config)


def test_half_formatted_directories_refuse_the_start(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    cluster_id = opened(alone(one))
    for config in (alone(one, two), alone(two, one)):
        with pytest.raises(StartError) as refused:
            opened(config)
        assert str(refused.value) == (
            f"log directory {two} is not formatted, but {one} belongs to cluster {cluster_id}:"
            f" restore it, or run `tidelog format --cluster-id {cluster_id} --node-id 1"
            f" --set log.dirs={','.join(config.log_directories())} --ignore-formatted`"
        )
    assert not two.exists()


def test_the_metadata_directory_is_the_brokers_own_too(tmp_path: Path) -> None:
    data, metadata = tmp_path / "data", tmp_path / "metadata"
    config = alone(data, metadata_log_dir=str(metadata))
    cluster_id = opened(config)
    logs, *_ = open_logs(config, RUNTIME)
    with pytest.raises(LogDirectoryError, match="is locked"):
        open_logs(alone(metadata), RUNTIME)
    logs.abandon()
    assert opened(alone(metadata)) == cluster_id
    with pytest.raises(StartError, match=f"--set metadata.log.dir={tmp_path}/other"):
        opened(alone(data, metadata_log_dir=str(tmp_path / "other")))


def test_logs_without_meta_properties_are_no_new_directory(tmp_path: Path) -> None:
    config = node(1, tmp_path)
    (tmp_path / "__cluster_metadata-0").mkdir()
    with pytest.raises(StartError, match=r"has logs, but no meta\.properties: restore it, or run"):
        opened(config, "mine")
    with pytest.raises(StartError, match=r"has logs, but no meta\.properties"):
        format_new([config, node(2, tmp_path / "two")], RUNTIME)
    assert not (tmp_path / "two").exists()


def test_a_new_cluster_is_formatted_whole_or_not_at_all(tmp_path: Path) -> None:
    configs = [node(node_id, tmp_path / f"{node_id}") for node_id in (1, 2)]
    cluster_id = format_new(configs, RUNTIME)
    assert format_new(configs, RUNTIME) == cluster_id
    assert [opened(config) for config in configs] == [cluster_id] * 2
    (tmp_path / "2" / "meta.properties").unlink()
    with pytest.raises(StartError, match=f"/2 is not formatted, but {tmp_path}/1 belongs to"):
        format_new(configs, RUNTIME)
    with pytest.raises(StartError, match=r"belongs to node 1 of cluster .*, not to node 2"):
        opened(node(2, tmp_path / "1"))


@pytest.mark.parametrize("formats", [True, False])
def test_a_formatted_directory_outlives_a_power_failure(*, formats: bool) -> None:
    """Its own name was not durable: the directory was gone, with all that was synced in it."""
    for seed in range(10):
        disk = SimDisk(seed)
        disk.is_apart = True
        runtime = RUNTIME._replace(files=disk.files(), rng=CountedRng(), clock=FixedClock())
        config = alone(Path("data"), metadata_log_dir="metadata")
        if formats:
            format_new([config], runtime)
        else:
            open_logs(config, runtime)
        disk.power_failure()
        assert disk.files().exists("data/meta.properties")
        assert disk.files().exists("metadata/meta.properties")


@pytest.mark.parametrize(
    ("listeners", "settings", "named"),
    [
        ("PLAINTEXT://:0", {}, "PLAINTEXT"),
        ("PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://:0", {}, None),
        ("PLAINTEXT://[::1]:0,A://localhost:0", {}, None),
        ("SSL://:0", {"ssl.client.auth": "requested"}, "SSL"),
        ("SSL://:0", {"ssl.client.auth": "required"}, None),
        ("PLAINTEXT://192.0.2.1:0,A://192.0.2.1:0", {}, "PLAINTEXT, A"),
        ("PLAINTEXT://127.0.0.1:0,C://192.0.2.1:0", {"controller.listener.names": "C"}, "C"),
    ],
)
def test_a_listener_for_everybody_elsewhere_is_warned_of_once(
    listeners: str, settings: dict[str, str], named: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    protocols = "A:PLAINTEXT,C:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL"
    given = {"node.id": "1", "listeners": listeners, "log.dirs": "/none", **settings}
    given["listener.security.protocol.map"] = protocols
    if "//:" in listeners:
        advertised = listeners.replace("//:0", "//h:1").replace("127.0.0.1:0", "h:2")
        given["advertised.listeners"] = advertised
    warn_of_open(BrokerConfig.from_properties(given))
    lines = [record.getMessage() for record in caplog.records]
    start = f"clients on other machines need no authentication on listener {named}:"
    assert [line.startswith(start) for line in lines] == ([True] if named else [])


@pytest.mark.parametrize(
    ("host", "settings", "is_warned"),
    [
        ("192.0.2.1", {}, True),
        ("127.0.0.1", {}, False),
        ("192.0.2.1", {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}, False),
        (
            "192.0.2.1",
            {
                "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": (
                    "org.apache.kafka.common.security.oauthbearer"
                    ".OAuthBearerValidatorCallbackHandler"
                )
            },
            False,
        ),
    ],
)
def test_tokens_that_anyone_can_make_are_warned_of(
    host: str, settings: dict[str, str], *, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    given = {
        "node.id": "1",
        "listeners": f"SASL_SSL://{host}:0",
        "log.dirs": "/none",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    }
    warn_of_open(BrokerConfig.from_properties({**given, **settings}))
    lines = [record.getMessage() for record in caplog.records]
    assert ["may be any user on listener SASL_SSL," in line for line in lines] == [True] * is_warned
