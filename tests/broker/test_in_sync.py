"""Who counts, who lags, who may join: the tables of the specification, on a real replica."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import NOW_MS, DataPath, batch
from support.vectors import load_yaml
from tidelog.cluster.metadata.image import BrokerImage
from tidelog.replication.in_sync import lagging_replicas, preferred_replica
from tidelog.replication.replica_state import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.replication.partition import Partition

CASES = load_yaml(Path(__file__).parent / "vectors" / "isr-membership.yaml")["cases"]
NODES = {"A": 1, "B": 2, "C": 3}  # A leads and is the broker of the data path


def cases(function: str, *keys: str) -> list[Any]:
    return [
        pytest.param(case["in"], case["out"], id=case["name"])
        for case in CASES
        if case["function"] == function and case["out"].keys() == set(keys)
    ]


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    yield path
    path.logs.abandon()


def lead(path: DataPath, isr: list[str], replicas: list[str], **configs: str) -> Partition:
    path.create(
        "foo",
        isr=tuple(NODES[name] for name in isr),
        replicas=tuple(NODES[name] for name in replicas),
        configs={name.replace("_", "."): value for name, value in configs.items()},
    )
    path.apply(brokers={node: BrokerImage(node, "h", 1, epoch=4) for node in NODES.values()})
    return path.partition("foo")


def follower(partition: Partition, name: str, log_end: int) -> ReplicaState:
    replica = partition.remotes[NODES[name]]
    replica.log_end_offset = log_end
    return replica


@pytest.mark.parametrize(("given", "out"), cases("leader_high_watermark", "hw"))
def test_high_watermark(path: DataPath, given: dict[str, Any], out: dict[str, int]) -> None:
    replicas = list(given["leo"])
    replicas += [name for name in "ABC" if name not in replicas][
        : given["replication_factor"] - len(replicas)
    ]
    partition = lead(path, given["isr"], replicas, min_insync_replicas=str(given["min_insync"]))
    partition.append(batch(given["leo"]["A"]), acks=1, now_ms=NOW_MS)
    partition.log.high_watermark = given["hw"]
    now_ms = partition._rules.now_ms()
    for name, log_end in given["leo"].items():
        if name != "A":
            replica = follower(partition, name, log_end)
            caught_up = given.get("caught_up", {}).get(name, name in given["isr"])
            replica.last_caught_up_ms = now_ms if caught_up else now_ms - 30_001
    if "maximal_isr" in given:
        partition.log.high_watermark = 0
        assert partition.propose_expansion(NODES["B"]) is not None
        partition.log.high_watermark = given["hw"]
        assert partition.maximal_isr == tuple(NODES[name] for name in given["maximal_isr"])
    fenced = [name for name, eligible in given.get("eligible", {}).items() if not eligible]
    path.apply(
        brokers={
            node: broker._replace(fenced=node in {NODES[name] for name in fenced})
            for node, broker in path.image.brokers.items()
        }
    )
    partition.advance_high_watermark()
    assert partition.log.high_watermark == out["hw"]


def test_a_follower_whose_directory_has_failed_does_not_hold_the_high_watermark(
    path: DataPath,
) -> None:
    """It left the ISR, but is caught up for as long as `replica.lag.time.max.ms`."""
    good, failed = bytes(15) + b"\xf0", bytes(15) + b"\xf1"
    partition = lead(path, ["A", "B", "C"], ["A", "B", "C"], min_insync_replicas="2")
    partition.append(batch(3), acks=1, now_ms=NOW_MS)
    follower(partition, "B", 3)
    follower(partition, "C", 0).last_caught_up_ms = partition._rules.now_ms()
    path.change("foo", isr=(1, 2), directories=(good, good, failed))
    assert partition.log.high_watermark == 0, "it may join again"
    broker = path.image.brokers[3]._replace(log_dirs=(good,))
    path.apply(brokers={**path.image.brokers, 3: broker})
    partition.advance_high_watermark()
    assert partition.log.high_watermark == 3


@pytest.mark.parametrize(("given", "out"), cases("isr_decision", "shrink"))
def test_shrink(path: DataPath, given: dict[str, Any], out: dict[str, bool]) -> None:
    partition = lead(path, given["isr"], given["isr"])
    partition.append(batch(given["leader_end"]), acks=1, now_ms=NOW_MS)
    replica = follower(partition, given["follower"], given["follower_end"])
    path.clock.now_ms = given["now"]
    replica.last_caught_up_ms = given["last_caught_up"]
    assert path.replicas.rules.lag_ms_max == given["lag_max_ms"]
    if given.get("in_flight"):
        assert partition.propose_shrink() is not None
    change = partition.propose_shrink()
    assert (change is not None) is out["shrink"]
    if change is not None:
        assert change.isr == (1,)
        assert partition.maximal_isr == partition.isr == (1, 2)  # until it is committed


@pytest.mark.parametrize(("given", "out"), cases("isr_decision", "expand"))
def test_expand(path: DataPath, given: dict[str, Any], out: dict[str, bool]) -> None:
    partition = lead(path, given["isr"], given["replicas"])
    partition.append(batch(10), acks=1, now_ms=NOW_MS)
    partition.log.high_watermark = given["hw"]
    partition.leader_epoch_start_offset = given["epoch_start"]
    node = NODES[given["follower"]]
    if given["follower"] in given["replicas"]:
        replica = follower(partition, given["follower"], given["follower_end"])
        replica.broker_epoch = given.get("fetch_broker_epoch", -1)
    broker = BrokerImage(
        node, "h", 1, epoch=given.get("known_broker_epoch", 4), fenced=not given["eligible"]
    )
    path.apply(brokers={**path.image.brokers, node: broker})
    if given.get("in_flight"):
        assert partition.propose_expansion(node) is not None
    change = partition.propose_expansion(node)
    assert (change is not None) is out["expand"]
    if change is not None:
        assert change.isr == partition.maximal_isr == (1, node)
        assert partition.isr == (1,)


@pytest.mark.parametrize(("given", "out"), cases("isr_decision", "last_caught_up"))
def test_caught_up(given: dict[str, Any], out: dict[str, int]) -> None:
    replica = ReplicaState()
    replica.last_caught_up_ms = given["last_caught_up"]
    replica.last_fetch_leader_end_offset = given["previous_fetch_leader_end"]
    replica.last_fetch_ms = given["previous_fetch_time"]
    replica.record_fetch(
        given["fetch_offset"],
        0,
        leader_end=given["leader_end"],
        now_ms=given["fetch_time"],
        broker_epoch=-1,
    )
    assert replica.last_caught_up_ms == out["last_caught_up"]


def test_a_broker_in_controlled_shutdown_may_not_join(path: DataPath) -> None:
    partition = lead(path, ["A"], ["A", "B"])
    follower(partition, "B", 0)
    leaving = path.image.brokers[2]._replace(in_controlled_shutdown=True)
    path.apply(brokers={**path.image.brokers, 2: leaving})
    assert partition.propose_expansion(2) is None
    path.apply(brokers={1: path.image.brokers[1]})  # not registered at all
    assert partition.propose_expansion(2) is None


def test_all_lagging_replicas_leave_at_once() -> None:
    lagging, good = ReplicaState(), ReplicaState()
    good.log_end_offset = 7
    leaving = lagging_replicas(
        1, 7, (1, 2, 3, 4), {2: lagging, 3: good}, now_ms=50_000, lag_ms_max=30_000
    )
    assert leaving == (2, 4)


RACKS = {
    1: BrokerImage(1, "h", 1, rack="a"),
    2: BrokerImage(2, "h", 1, rack="b"),
    3: BrokerImage(3, "h", 1, rack="b"),
    4: BrokerImage(4, "h", 1, rack=None),
}


class TestPreferredReplica:
    """KIP-392: the leader if it is in the client's rack or nobody is, else the most caught up."""

    def choose(self, rack: str, offset: int = 5, **changes: Any) -> int:
        replicas = {}
        for node, log_end in {2: 8, 3: 9, 4: 10}.items():
            replicas[node] = replica = ReplicaState()
            replica.log_end_offset = log_end
            replica.log_start_offset = 0
        options: dict[str, Any] = {
            "isr": (1, 2, 3, 4),
            "replicas": replicas,
            "brokers": RACKS,
        } | changes
        return preferred_replica(rack, offset, 1, **options)

    def test_the_leader_in_the_rack(self) -> None:
        assert self.choose("a") == 1

    def test_no_replica_in_the_rack(self) -> None:
        assert self.choose("c") == 1
        assert self.choose("") == 1

    def test_the_most_caught_up(self) -> None:
        assert self.choose("b") == 3

    def test_only_members_of_the_isr_that_have_the_offset(self) -> None:
        assert self.choose("b", isr=(1, 2)) == 2
        assert self.choose("b", offset=9) == 3
        assert self.choose("b", offset=10) == 1

    def test_a_fenced_one_is_left_out(self) -> None:
        fenced = {**RACKS, 3: RACKS[3]._replace(fenced=True)}
        assert self.choose("b", brokers=fenced) == 2
