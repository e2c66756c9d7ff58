"""Replication of chosen replicas is limited, at the leader and at the follower (KIP-73)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import DataPath, ManualClock, batch, bytes_of, data_of
from support.metadata import broker_config, cluster, topic
from support.scripted_follower import data, follower, played, records, settle
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.quotas.replication import ReplicationQuota, ReplicationQuotas, throttled_partitions

if TYPE_CHECKING:
    from pathlib import Path

RATE = "leader.replication.throttled.rate"
REPLICAS = "leader.replication.throttled.replicas"


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ("*", None),
        ("0:1,1:2,2:1", {0, 2}),
        ("0:1, 1:1", {0, 1}),
        ("0:11", set()),
        ("", set()),
    ],
)
def test_replicas_of_a_setting(replicas: str, expected: set[int] | None) -> None:
    assert throttled_partitions(replicas, 1) == expected


class Limits:
    """The quotas of broker 1 under an image."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.image = cluster(topic("t", 1, 2, (1, 2)), topic("u", 2, 1, (1, 2)))
        self.leader: ReplicationQuota | None = None
        self.follower: ReplicationQuota | None = None
        self.quotas = ReplicationQuotas(broker_config(node_id="1"), self.clock, self._change)

    def _change(self, leader: ReplicationQuota | None, follower: ReplicationQuota | None) -> None:
        self.leader, self.follower = leader, follower

    def set(self, brokers: dict[str, Any], topics: dict[str, Any]) -> None:
        new = self.image._replace(broker_configs=brokers, topic_configs=topics)
        delta = MetadataDelta(self.image, new)
        self.image = new
        self.quotas.on_image(delta, new)


def test_a_limit_needs_a_rate_and_replicas() -> None:
    limits = Limits()
    for brokers, topics in (
        ({}, {"t": {REPLICAS: "*"}}),
        ({"1": {RATE: "1000"}}, {}),
        ({"1": {RATE: "1000"}}, {"t": {REPLICAS: "0:2,1:2"}}),
        ({"2": {RATE: "1000"}}, {"t": {REPLICAS: "*"}}),
        ({"1": {RATE: "much"}}, {"t": {REPLICAS: "*"}}),
    ):
        limits.set(brokers, topics)
        assert limits.leader is limits.follower is None
    limits.set({"": {RATE: "1000"}}, {"t": {REPLICAS: "1:1"}})
    assert limits.leader is not None
    assert limits.follower is None
    limits.set({}, {})
    assert limits.leader is None


def test_only_named_replicas_that_are_not_in_sync_are_held_back() -> None:
    limits = Limits()
    limits.set({"1": {RATE: "1000"}}, {"t": {REPLICAS: "1:1"}})
    quota = limits.leader
    assert quota is not None
    quota.record("t", 1, 1000)
    quota.record("t", 0, 10**6)
    quota.record("u", 0, 10**6)
    assert not quota.holds_back("t", 1, 3), "a thousand in a second"
    quota.record("t", 1, 1)
    assert quota.holds_back("t", 1, 3)
    assert not quota.holds_back("t", 1, 2), "in sync"
    assert not quota.holds_back("t", 0, 3)
    assert not quota.holds_back("u", 0, 3)
    limits.clock.now_ms += 1001
    assert not quota.holds_back("t", 1, 3)


def test_a_leader_sends_no_more_than_its_rate(tmp_path: Path) -> None:
    path = DataPath(tmp_path)
    path.create("t", replicas=(1, 2))
    path.create("u", replicas=(1, 2))
    limits = Limits(path.clock)
    limits.image = path.image
    limits.set({"1": {RATE: "50000"}}, {"t": {REPLICAS: "*"}})
    path.replicas.limit_replication(limits.leader, limits.follower)
    for name in ("t", "u"):
        for _ in range(2):
            path.produce(name, 0, batch(1, bytes(60_000)), acks=1)

    def fetched(name: str, offset: int, replica_id: int = 2) -> int:
        asked = (name, 0, offset, {"partition_max_bytes": 1000})
        answer = path.fetch(asked, replica_id=replica_id)
        assert answer is not None
        assert data_of(answer).error_code == 0
        return len(bytes_of(data_of(answer)) or b"")

    assert fetched("t", 0) > 60_000
    assert fetched("t", 1) == 0
    assert fetched("u", 0) > 60_000, "another topic"
    assert fetched("t", 0, replica_id=-1) > 60_000, "a consumer"
    path.clock.now_ms += 2_000
    assert fetched("t", 1) > 60_000
    path.logs.abandon()


@played
async def test_a_follower_fetches_no_more_than_its_rate(tmp_path: Path) -> None:
    async with follower(tmp_path) as one:
        throttled, free = one.follow("t"), one.follow("free")
        await settle()
        assert set(one.last) == {"t", "free"}
        limits = Limits()
        limits.image = one.path.image
        limits.set(
            {"1": {"follower.replication.throttled.rate": "1"}},
            {"t": {"follower.replication.throttled.replicas": "*"}},
        )
        assert limits.leader is None
        one.quota = limits.follower
        one.say(t=data(records(0), end=0), free=data(records(0), end=0))
        await settle()
        assert throttled.log.log_end_offset == 1
        assert one.last == {"free": (1, 0, 0)}, "the throttled one is not asked for"
        one.say(free=data(records(1), end=1))
        await asyncio.sleep(0.5)
        assert free.log.log_end_offset == 2
        assert one.last == {"free": (2, 0, 0)}
        limits.clock.now_ms += 600_000
        await asyncio.sleep(0.2)
        assert one.last == {"t": (1, 0, 0)}
