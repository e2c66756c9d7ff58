"""Partitions of which a part is in the remote tier: routes of a fetch, offsets, deletion, roles.

Plays `fencing` (routes), `list-offsets`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import NODE_ID, NOW_MS, DataPath, topic_id
from support.vectors import load_yaml
from tidelog.cluster.metadata.image import BrokerImage
from tidelog.replication.fetch_sessions import FetchedPartition
from tidelog.replication.partition import HIGH_WATERMARK, LOG_END, FetchParams, SearchRemote
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import (
    DeleteRecordsRequest,
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.producer_snapshot import format_snapshot
from tidelog_storage.types import InRemoteTier, OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.replication.partition import Partition
    from tidelog_storage.log import Log

VECTORS = Path(__file__).parent / "vectors"
FOLLOWER = 2
EPOCH = 5  # of a registered broker
DEBUGGING = -2  # may ask a replica that does not lead
TIERED = {"remote.storage.enable": "true"}
EMPTY = format_snapshot([])


def cases(file: str, function: str) -> list[Any]:
    table = load_yaml(VECTORS / file)
    return [
        pytest.param({**table["given"], **case["in"]}, case["out"], id=case["name"])
        for case in table["cases"]
        if case.get("function", table["function"]) == function
    ]


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path, remote_log_storage_system_enable="true")
    path.apply(brokers={n: BrokerImage(n, "h", 1, epoch=EPOCH) for n in (NODE_ID, FOLLOWER)})
    yield path
    path.logs.abandon()


def tiered(
    path: DataPath,
    *,
    log_start: int = 2,
    local_start: int = 5,
    log_end: int = 10,
    epochs: Sequence[Sequence[int]] = ((0, 0),),
    timestamps: Sequence[Sequence[int]] = (),
    settings: dict[str, str] = TIERED,
) -> Partition:
    """A partition led here, with a follower, in such a state."""
    path.create("foo", replicas=(NODE_ID, FOLLOWER), isr=(NODE_ID, FOLLOWER), configs=settings)
    partition = path.partition("foo")
    log = partition.log
    if log_start < local_start:
        log.restart_from_remote(
            local_start,
            log_start=log_start,
            epochs=[(epoch, start) for epoch, start in epochs],
            snapshot=EMPTY,
        )
    elif local_start:
        log.truncate_fully_and_start_at(local_start)
    times = dict(map(tuple, timestamps))
    for offset in range(local_start, log_end):
        epoch = max(epoch for epoch, start in epochs if start <= offset)
        record = Record(offset, times.get(offset, NOW_MS), None, b"v")
        data = build_batch([record], base_offset=offset, leader_epoch=epoch)
        log.append_as_follower(memoryview(data), leader_epoch=epoch, now_ms=NOW_MS)
    return partition


def read(path: DataPath, offset: int, *, by: int = -1, **fields: Any) -> Any:
    asked = FetchRequest.FetchTopic.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, **fields
    )
    isolation = HIGH_WATERMARK if by < 0 else LOG_END
    params = FetchParams(
        replica_id=by, replica_epoch=EPOCH, isolation=isolation, leader_only=by >= 0
    )
    (result,) = path.replicas.read(
        [FetchedPartition("foo", topic_id("foo"), asked)], params, max_bytes=1 << 20
    )
    return result


@pytest.mark.parametrize(("given", "out"), cases("fencing.yaml", "fetch_route"))
def test_fetch_route(path: DataPath, given: dict[str, Any], out: dict[str, str]) -> None:
    is_tiered = given.get("tiered", True)
    local = given["local_start"] if is_tiered else given["log_start"]
    partition = tiered(
        path,
        log_start=given["log_start"],
        local_start=local,
        log_end=given["log_end"],
        settings=TIERED if is_tiered else {},
    )
    partition.log.set_high_watermark(given["hw"])
    if given.get("at") == "follower":
        path.change("foo", leader=FOLLOWER, leader_epoch=1)
    before = partition.remotes[FOLLOWER].log_end_offset if partition.remotes else -1
    result = read(path, given["offset"], by=FOLLOWER if given["by"] == "follower" else -1)
    assert ErrorCode(result.error).name == out.get("error", "NONE")
    route = "remote" if result.remote else "local" if result.size else "wait"
    if "route" in out:
        assert route == out["route"]
    if route == "remote":
        assert result.remote == InRemoteTier(given["offset"], 0, given["local_start"])
        assert not result.records
    if out.get("error") == "OFFSET_MOVED_TO_TIERED_STORAGE":
        assert (result.high_watermark, result.log_start_offset) == (given["hw"], 2)
        assert result.last_stable_offset == -1
        assert partition.remotes[FOLLOWER].log_end_offset == before, "no progress"


def test_divergence_is_checked_before_the_tier_of_the_offset(path: DataPath) -> None:
    tiered(path, epochs=[(0, 0), (3, 4)])
    assert read(path, 4, by=FOLLOWER, last_fetched_epoch=2).diverging == OffsetAndEpoch(4, 0)
    moved = read(path, 4, by=FOLLOWER, last_fetched_epoch=0)
    assert moved.error == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert moved.diverging is None
    below = read(path, 1, by=FOLLOWER, last_fetched_epoch=0)
    assert below.error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_committed_readers_are_sent_to_the_tier_as_well(path: DataPath) -> None:
    partition = tiered(path)
    asked = FetchRequest.FetchTopic.FetchPartition(fetch_offset=3, partition_max_bytes=99)
    result = partition.read(
        FetchedPartition("foo", topic_id("foo"), asked),
        FetchParams(isolation=2),
        99,
        min_one_batch=True,
    )
    assert result.remote is not None
    assert result.aborted == ()


# -- offsets ---------------------------------------------------------------------------------------


def listed(
    path: DataPath, timestamp: int, *, version: int = 11, isolation: int = 0, by: int = -1
) -> Any:
    topic = ListOffsetsRequest.ListOffsetsTopic
    request = ListOffsetsRequest(
        replica_id=by,
        isolation_level=isolation,
        topics=[
            topic(name="foo", partitions=[topic.ListOffsetsPartition(timestamp=timestamp)]),
        ],
    )
    return path.call(ApiKey.LIST_OFFSETS, version, request).topics[0].partitions[0]


def without_oddities(case: Any) -> bool:
    """A transaction and a lagging high watermark: `test_replication_tables.py` plays them."""
    given, _ = case.values
    state = given.get("state", given)
    return "last_stable" not in state and state["high_watermark"] == state["log_end"]


@pytest.mark.parametrize(
    ("given", "out"),
    [
        case
        for case in cases("list-offsets-both-tiers.yaml", "list_offsets")
        if without_oddities(case)
    ],
)
def test_list_offsets(path: DataPath, given: dict[str, Any], out: dict[str, Any]) -> None:
    state = given.get("state", given)
    enabled = state.get("remote_enabled", True)
    partition = tiered(
        path,
        log_start=state["log_start"],
        local_start=state["local_start"],
        log_end=state["log_end"],
        epochs=state["epochs"],
        timestamps=state.get("timestamps", ()),
        settings=TIERED if enabled else {},
    )
    log = partition.log
    if enabled:
        log.highest_remote_offset = state["highest_remote"]
    path.change("foo", leader_epoch=state["leader_epoch"])
    log.set_high_watermark(state["high_watermark"])
    assert [list(entry) for entry in log.epochs.entries][-1] == state["epochs"][-1]
    timestamp = given["timestamp"]
    if timestamp >= 0:
        check_by_time(partition, timestamp, out)
        return
    answer = listed(path, timestamp, version=given.get("version", 11))
    assert ErrorCode(answer.error_code).name == out.get("error", "NONE")
    assert (answer.offset, answer.leader_epoch) == (
        out.get("offset", -1),
        out.get("leader_epoch", -1),
    )


def test_nothing_is_pending_of_a_log_that_is_copied_whole(path: DataPath) -> None:
    """Nobody hears of an offset that is still to come but a follower, which begins there."""
    log = tiered(path, log_start=0, local_start=5, log_end=10).log
    log.set_high_watermark(10)
    log.highest_remote_offset = 9
    assert (listed(path, -6).offset, listed(path, -6).leader_epoch) == (-1, -1)
    assert (listed(path, -5).offset, listed(path, -5).leader_epoch) == (9, 0)
    assert listed(path, -6, by=DEBUGGING).offset == -1
    assert listed(path, -6, by=FOLLOWER).offset == 10
    log.highest_remote_offset = 8
    assert listed(path, -6).offset == 9


def check_by_time(partition: Partition, timestamp: int, out: dict[str, Any]) -> None:
    """The remote part is searched first, and the local one if nothing was found there."""
    asked: dict[str, Any] = {
        "isolation": HIGH_WATERMARK,
        "current_leader_epoch": -1,
        "leader_only": True,
    }
    log = partition.log
    local = log.local_log_start_offset
    assert partition.offset_for(timestamp, **asked) == SearchRemote(
        timestamp, log.log_start_offset, local
    )
    found = partition.offset_for(timestamp, local_only=True, **asked)
    assert not isinstance(found, ErrorCode | SearchRemote)
    if out["offset"] == -1 or out["offset"] >= local:
        assert (found.offset, found.leader_epoch) == (out["offset"], out["leader_epoch"])
    else:
        assert found.offset == local, "the tier has an older one"


def test_a_log_that_is_all_local_is_searched_here(path: DataPath) -> None:
    partition = tiered(path, log_start=0, local_start=0)
    partition.log.set_high_watermark(10)
    found = partition.offset_for(
        NOW_MS, isolation=HIGH_WATERMARK, current_leader_epoch=-1, leader_only=True
    )
    assert not isinstance(found, ErrorCode | SearchRemote)
    assert found.offset == 0


@pytest.mark.parametrize(
    ("epoch", "end"), [(0, (3, 0)), (1, (3, 0)), (2, (7, 2)), (5, (10, 5)), (6, (-1, -1))]
)
def test_ends_of_epochs_in_the_remote_part(
    path: DataPath, epoch: int, end: tuple[int, int]
) -> None:
    tiered(path, log_start=1, epochs=[(0, 0), (2, 3), (5, 7)])
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    asked = topic.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[topic(topic="foo", partitions=[asked])])
    response = path.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request)
    answer = response.topics[0].partitions[0]
    assert (answer.end_offset, answer.leader_epoch) == end


# -- DeleteRecords ---------------------------------------------------------------------------------


def delete(path: DataPath, offset: int) -> Any:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    asked = topic.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[topic(name="foo", partitions=[asked])], timeout_ms=1)
    return path.call(ApiKey.DELETE_RECORDS, 2, request)


def starts(log: Log) -> tuple[int, int]:
    return log.log_start_offset, log.local_log_start_offset


def test_records_are_deleted_across_the_border(path: DataPath) -> None:
    """The log start may pass the local one, and the followers' have to follow."""
    partition = tiered(path, epochs=[(0, 0), (1, 4)])
    log = partition.log
    log.set_high_watermark(10)
    for offset, local in ((3, 5), (5, 5), (7, 7)):
        assert delete(path, offset) is None, "parked for the follower"
        assert starts(log) == (offset, local)
        assert read(path, offset - 1).error == ErrorCode.OFFSET_OUT_OF_RANGE
        assert bool(read(path, offset).remote) is (offset < 5)
        read(path, 10, by=FOLLOWER, log_start_offset=offset)
        assert partition.low_watermark == offset
    assert log.epochs.entries == [(1, 7)]


def test_a_follower_takes_the_log_start_over(path: DataPath) -> None:
    partition = tiered(path)
    path.change("foo", leader=FOLLOWER, leader_epoch=1)
    assert partition.advance_as_follower(9, 4)
    assert starts(partition.log) == (4, 5)
    assert partition.advance_as_follower(9, 8)
    assert starts(partition.log) == (8, 8)


# -- who is told -----------------------------------------------------------------------------------


class Listener:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def became_leader(self, partition: Partition) -> None:
        assert partition.is_leader
        self.told.append(("leads", partition.topic_partition.partition, partition.leader_epoch))

    def became_follower(self, partition: Partition) -> None:
        assert not partition.is_leader
        self.told.append(("follows", partition.topic_partition.partition, partition.leader_epoch))

    def stopped(self, partition: Partition, *, delete: bool) -> None:
        self.told.append(
            ("stopped", partition.topic_partition.partition, partition.is_leader, delete)
        )

    def config_changed(self, partition: Partition) -> None:
        self.told.append(("config", partition.topic_partition.partition, partition.log.is_tiered))


def test_changes_of_roles_reach_the_tier(path: DataPath) -> None:
    listener = Listener()
    path.replicas.follow_roles(listener)

    def told() -> list[Any]:
        found, listener.told[:] = listener.told[:], []
        return found

    path.create("foo", 2, replicas=(NODE_ID, FOLLOWER), isr=(NODE_ID, FOLLOWER))
    assert told() == [("leads", 0, 0), ("leads", 1, 0)]
    path.change("foo", 1, isr=(NODE_ID,))
    assert told() == [], "the same role in the same epoch"
    path.change("foo", 1, leader_epoch=1)
    path.change("foo", 0, leader=FOLLOWER, leader_epoch=1)
    assert told() == [("leads", 1, 1), ("follows", 0, 1)]
    path.apply(topic_configs={"foo": TIERED})
    assert told() == [("config", 0, True), ("config", 1, True)]
    path.change("foo", 0, replicas=(FOLLOWER, 3), leader_epoch=2)
    assert told() == [("stopped", 0, False, False)]
    path.delete("foo")
    assert told() == [("stopped", 1, True, True)]


def test_a_topic_that_leaves_the_tier_begins_with_its_local_part(path: DataPath) -> None:
    log = tiered(path).log
    path.apply(topic_configs={"foo": {"remote.storage.enable": "false"}})
    assert starts(log) == (5, 5)
    assert read(path, 4).error == ErrorCode.OFFSET_OUT_OF_RANGE
