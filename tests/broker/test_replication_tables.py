"""Fences, routes of a fetch, divergence, offsets: the specification's tables, through the handlers.

Which vector is played where: see `test_replication_scenarios.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.controller_cluster import CONFIG, broker, image_of, isr_change, partition
from support.data_path import NODE_ID, NOW_MS, DataPath, batch, data_of, topic_id
from support.vectors import load_yaml
from tidelog.cluster.controller.partitions import alter_partition
from tidelog.cluster.metadata.image import BrokerImage
from tidelog.replication.truncation import start_offset
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchRequest, ListOffsetsRequest
from tidelog_storage.epochs import LeaderEpochCache

if TYPE_CHECKING:
    from collections.abc import Iterator

VECTORS = Path(__file__).parent / "vectors"
FOLLOWER = 2
EPOCH = 5  # of a registered broker


def cases(file: str, function: str, *, by_controller: bool = False) -> list[Any]:
    table = load_yaml(VECTORS / file)
    return [
        pytest.param({**table["given"], **case["in"]}, case["out"], id=case["name"])
        for case in table["cases"]
        if case.get("function", table["function"]) == function
        and (case["in"].get("role") == "controller") is by_controller
        and case["out"].get("route") != "remote"
        and case["out"].get("error") != "OFFSET_MOVED_TO_TIERED_STORAGE"
    ]


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.apply(brokers={n: BrokerImage(n, "h", 1, epoch=EPOCH) for n in (NODE_ID, FOLLOWER, 3)})
    yield path
    path.logs.abandon()


def fetch(
    path: DataPath, offset: int, *, replica: int = -1, by_id: bytes = b"", **fields: Any
) -> Any:
    """The answer for one partition; v17 by id, else v12 by name."""
    partition = (by_id or "foo", 0, offset, fields)
    options: dict[str, Any] = {"replica_id": replica}
    if by_id:
        options = {
            "replica_state": FetchRequest.ReplicaState(replica_id=replica, replica_epoch=EPOCH)
        }
    response = path.fetch(partition, version=17 if by_id else 12, **options)
    assert response is not None
    return data_of(response)


@pytest.mark.parametrize(("given", "out"), cases("fencing.yaml", "fencing"))
def test_fencing(path: DataPath, given: dict[str, Any], out: dict[str, str]) -> None:
    epoch = given.get("epoch", 5)
    leader = NODE_ID if given["role"] == "leader" else 3
    known = given.get("topic_known", True)
    replicas = (3,) if given["role"] == "none" else (NODE_ID, FOLLOWER, 3)
    if not given.get("replica_assigned", True):
        replicas = (NODE_ID, 3)
    if known:
        path.create("foo", replicas=replicas, isr=(leader,))
        path.change("foo", leader=leader, leader_epoch=epoch)
    if given["role"] == "offline":
        key = path.partition("foo").topic_partition
        path.replicas._offline[key] = path.replicas._partitions.pop(key).topic_id
    by_id = topic_id("foo") if given.get("by_id") else b""
    replica = FOLLOWER if given["needs_leader"] else -1
    request: dict[str, Any] = {"current_leader_epoch": given["request_epoch"]}
    if not given.get("topic_id_matches", True):
        path.partition("foo").topic_id = topic_id("foo", 1)
        by_id = topic_id("foo")
    answer = fetch(path, 0, replica=replica, by_id=by_id, **request)
    assert ErrorCode(answer.error_code).name == out["error"]


@pytest.mark.parametrize(("given", "out"), cases("fencing.yaml", "fencing", by_controller=True))
def test_fencing_by_the_controller(given: dict[str, Any], out: dict[str, str]) -> None:
    """Broker 1 leads and is in sync alone; 2 leads nothing, 3 is fenced."""
    eligible = given.get("new_isr_eligible", True)
    state = partition(isr=(1,))._replace(
        leader_epoch=given["epoch"], partition_epoch=given["partition_epoch"]
    )
    image = image_of(state, brokers=(broker(1), broker(2), broker(3, fenced=True)))
    request = isr_change(
        [1, 2] if eligible else [1, 3],
        sender=1 if given.get("by_leader", True) else 2,
        leader_epoch=given["request_epoch"],
        partition_epoch=given["request_partition_epoch"],
    )
    records, response = alter_partition(image, CONFIG, request, 3)
    assert ErrorCode(response.topics[0].partitions[0].error_code).name == out["error"]
    assert records == []


@pytest.mark.parametrize(("given", "out"), cases("fencing.yaml", "fetch_route"))
def test_fetch_route(path: DataPath, given: dict[str, Any], out: dict[str, str]) -> None:
    leads = given.get("at") != "follower"
    path.create("foo", replicas=(NODE_ID, FOLLOWER), isr=(NODE_ID, FOLLOWER))
    partition = path.partition("foo")
    for _ in range(given["log_end"]):
        path.produce("foo", 0, batch(), acks=1)
    partition.log.set_high_watermark(given["hw"])
    partition.log.maybe_increment_log_start(given["log_start"], "test")
    if not leads:
        path.change("foo", leader=FOLLOWER, leader_epoch=1)
    answer = fetch(path, given["offset"], replica=FOLLOWER if given["by"] == "follower" else -1)
    if "error" in out:
        assert ErrorCode(answer.error_code).name == out["error"]
    else:
        assert answer.error_code == 0
        assert bool(answer.records) is (out["route"] == "local")


@pytest.mark.parametrize(("given", "out"), cases("diverging-epoch.yaml", "fetch_divergence"))
def test_divergence(path: DataPath, given: dict[str, Any], out: dict[str, Any]) -> None:
    path.create("foo", replicas=(NODE_ID, FOLLOWER), isr=(NODE_ID,))
    path.change("foo", leader_epoch=9)
    partition = path.partition("foo")
    if given["log_end"]:
        path.produce("foo", 0, batch(given["log_end"]), acks=1)
    partition.log.maybe_increment_log_start(given["log_start"], "test")
    partition.log.epochs = LeaderEpochCache(None, map(tuple, given["entries"]))
    for replica in (-1, FOLLOWER):
        remote = partition.remotes[FOLLOWER]
        before = remote.log_end_offset
        answer = fetch(
            path,
            given["offset"],
            replica=replica,
            by_id=topic_id("foo"),
            last_fetched_epoch=given["last_fetched_epoch"],
        )
        if "error" in out:
            assert ErrorCode(answer.error_code).name == out["error"]
            assert remote.log_end_offset == before
        elif out["diverging"] is None:
            assert answer.error_code == 0
            assert answer.diverging_epoch is None
            if replica == FOLLOWER:
                assert remote.log_end_offset == given["offset"]
        else:
            diverging = answer.diverging_epoch
            assert [diverging.epoch, diverging.end_offset] == out["diverging"]
            assert not answer.records
            assert answer.error_code == 0
            assert remote.log_end_offset == before  # a divergence is no progress


def without_the_remote_tier() -> list[Any]:
    """Cases that a topic answers in the same way without the remote tier."""

    def is_one(case: Any) -> bool:
        given, out = case.values
        state = given.get("state", {})
        return not state.get("remote_enabled", True) or "last_stable" in state or "error" in out

    return list(filter(is_one, cases("list-offsets-both-tiers.yaml", "list_offsets")))


@pytest.mark.parametrize(("given", "out"), without_the_remote_tier())
def test_list_offsets(path: DataPath, given: dict[str, Any], out: dict[str, Any]) -> None:
    state = given.get("state", given)
    path.create("foo", replicas=(NODE_ID,), isr=(NODE_ID,))
    log = path.partition("foo").log
    for offset in range(state["log_end"]):
        is_open = offset == state.get("last_stable")  # a transaction begins, and does not end
        data = batch(
            producer_id=7 if is_open else -1,
            producer_epoch=0 if is_open else -1,
            base_sequence=0 if is_open else -1,
            transactional=is_open,
        )
        path.partition("foo").append(data, acks=1, now_ms=NOW_MS)
    if state["high_watermark"] < state["log_end"]:
        log.high_watermark = state["high_watermark"]
        path.change("foo", leader_epoch=1, replicas=(NODE_ID, 3), isr=(NODE_ID, 3))
    if state is not given:
        assert [list(entry) for entry in log.epochs.entries] == state["epochs"]
        assert log.high_watermark == state["high_watermark"]
        assert log.last_stable_offset == state.get("last_stable", log.high_watermark)
    topic = ListOffsetsRequest.ListOffsetsTopic
    asked = topic.ListOffsetsPartition(timestamp=given["timestamp"])
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(given.get("isolation") == "read_committed"),
        topics=[topic(name="foo", partitions=[asked])],
    )
    response = path.call(ApiKey.LIST_OFFSETS, given.get("version", 11), request)
    answer = response.topics[0].partitions[0]
    assert ErrorCode(answer.error_code).name == out.get("error", "NONE")
    assert (answer.offset, answer.leader_epoch) == (
        out.get("offset", -1),
        out.get("leader_epoch", -1),
    )


@pytest.mark.parametrize(
    ("given", "out"),
    [
        case
        for case in cases("follower-start-offset.yaml", "follower_start_offset")
        if "event" not in case.values[0]
        and case.values[0]["leader"]["earliest_pending_upload"] is None
    ],
)
def test_start_at_an_empty_leader(given: dict[str, Any], out: dict[str, Any]) -> None:
    """What is never uploaded, of a leader that has nothing: as without the remote tier."""
    leader, end = given["leader"], given["replica_log_end"]
    assert start_offset(end, leader_log_end=leader["log_end"]) is None
    found = start_offset(
        end, leader_log_end=leader["log_end"], leader_log_start=leader["log_start"]
    )
    assert found is not None
    assert found.offset == out["start"]
