"""Every client library against three brokers, each in a process of its own: a leader dies while
records are produced and consumed, and nothing that was acknowledged is lost (clients/protocol.py).
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from compat.clients.protocol import decoded, encoded
from compat.conftest import CLIENTS, Client, of_a_cluster
from compat.eventually import eventually
from compat.line_process import WorkerError
from support.clusters import FAST, create_topic, leader_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from compat.conftest import ClientPool

pytestmark = [
    pytest.mark.compat,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("clients of a cluster"),
]

PARTITIONS = 6
MEMBERS = ("a", "b", "c")
SETTINGS = {
    **FAST,
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "3",
    "group.consumer.assignment.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "3000",
}
HOUR_MS = 3_600_000
A_CALL = 30  # records of one call, over all partitions
BEFORE, AFTER = 5, 10  # calls acknowledged before the leader dies, and after that


@pytest.fixture(scope="module")
def cluster() -> Iterator[tidelog.RunningCluster]:
    with tidelog.run(SETTINGS, brokers=3, isolated=True) as running:
        yield running


@pytest.fixture(autouse=True)
def _all_brokers(cluster: tidelog.RunningCluster) -> Iterator[None]:
    """A test that fails after its kill leaves the next one all three, at the present time."""
    yield
    cluster.start_brokers()
    cluster.clock.reset()


@pytest.fixture(params=of_a_cluster(*CLIENTS))
def client(
    request: pytest.FixtureRequest, client_pool: ClientPool, cluster: tidelog.RunningCluster
) -> Client:
    return Client(request.param, client_pool.get(request.param), cluster.bootstrap_servers)


@pytest.fixture
def producer(client: Client, client_pool: ClientPool) -> Client:
    """A second program of the same client: one that produces while the other consumes."""
    return Client(client.name, client_pool.start(client.name), client.bootstrap)


class Load(threading.Thread):
    """Produces call after call, each a producer's whole life: a broker that dies finds one at work.

    `acknowledged`: number -> (partition, offset). Ends at the first call that fails.
    """

    def __init__(self, client: Client, topic: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.calls = 0
        self.failure: Exception | None = None
        self._client, self._topic = client, topic
        self._end = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            while not self._end.is_set():
                self._produce(range(self.calls * A_CALL, (self.calls + 1) * A_CALL))
                self.calls += 1
        except Exception as failure:  # noqa: BLE001 - the test looks at it
            self.failure = failure

    def _produce(self, numbers: range) -> None:
        records = [
            {
                "key": None,
                "value": encoded(b"%d" % number),
                "headers": [],
                "partition": number % PARTITIONS,
            }
            for number in numbers
        ]
        options = {"codec": "none", "acks": "all", "idempotent": True}
        answer = self._client.call("produce", topic=self._topic, records=records, **options)
        assert len(answer["offsets"]) == len(records)
        for number, (partition, offset) in zip(numbers, answer["offsets"], strict=True):
            self.acknowledged[number] = (partition, offset)

    def more(self, calls: int) -> None:
        """Wait until so many more calls were acknowledged."""
        wanted = self.calls + calls
        eventually(lambda: self.calls >= wanted or self.failure, bool, 60)
        assert self.failure is None

    def finish(self) -> None:
        self._end.set()
        self.join(60)
        assert self.failure is None


class Committed:
    """What a group has committed, by partition: it never goes back, whoever is coordinator."""

    def __init__(self, client: Client, group: str, topic: str) -> None:
        self.offsets = [-1] * PARTITIONS
        self._client, self._fields = client, {"group": group, "topic": topic}

    def look(self) -> list[int]:
        """The offsets now."""
        now = [
            self._client.call("committed", partition=partition, **self._fields)["offset"]
            for partition in range(PARTITIONS)
        ]
        pairs = zip(now, self.offsets, strict=True)
        assert all(new >= old for new, old in pairs), f"{self.offsets} went back to {now}"
        self.offsets = now
        return now

    def commit(self) -> list[int]:
        """Have all members commit what they have read; the offsets then."""
        for member in MEMBERS:
            # It may be rejoining (its generation is over then), or have read nothing yet.
            with contextlib.suppress(WorkerError):
                self._client.call("commit", member=member)
        return self.look()


def consumed(client: Client) -> list[dict[str, Any]]:
    return [
        record for member in MEMBERS for record in client.call("consumed", member=member)["records"]
    ]


def test_a_leader_dies_while_a_group_of_three_reads(
    client: Client,
    producer: Client,
    cluster: tidelog.RunningCluster,
    fresh: Callable[[str], str],
) -> None:
    topic = fresh("replicated")
    create_topic(client.bootstrap, topic, PARTITIONS, 3, min_insync_replicas="2")
    join = {"group": fresh("group"), "topic": topic, "session_timeout_ms": 6000}
    for member in MEMBERS:
        client.call("join", member=member, **join)

    def shares() -> list[int]:
        return [len(client.call("assignment", member=one)["partitions"]) for one in MEMBERS]

    eventually(shares, [2, 2, 2].__eq__, 60)
    load = Load(producer, topic)
    load.more(BEFORE)
    committed = Committed(client, join["group"], topic)
    eventually(committed.commit, lambda offsets: max(offsets) > 0, 60)
    victim = cluster.brokers[leader_of(client.bootstrap, topic) - 1]
    victim.kill()
    load.more(AFTER)
    led_by = lambda: leader_of(client.bootstrap, topic)  # noqa: E731 - any broker says it
    eventually(led_by, lambda leader: leader not in (-1, victim.node_id), 60)
    victim.start()
    load.more(BEFORE)
    load.finish()

    def numbers(records: list[dict[str, Any]]) -> dict[tuple[int, int], int]:
        return {
            (one["partition"], one["offset"]): int(decoded(one["value"]) or b"") for one in records
        }

    read = eventually(
        lambda: numbers(consumed(client)), lambda seen: len(seen) >= len(load.acknowledged), 60
    )
    assert {place: number for number, place in load.acknowledged.items()} == read, (
        "lost, doubled or out of place"
    )
    ends = [0] * PARTITIONS
    for partition, offset in load.acknowledged.values():
        ends[partition] = max(ends[partition], offset + 1)
    eventually(committed.commit, ends.__eq__, 60)
    for member in MEMBERS:
        client.call("leave", member=member)
    assert committed.look() == ends


@pytest.mark.parametrize("client", of_a_cluster("librdkafka", "java", "go"), indirect=True)
def test_a_group_of_kip_848_loses_its_coordinator_and_a_member(
    client: Client,
    doomed_client: Client,
    cluster: tidelog.RunningCluster,
    fresh: Callable[[str], str],
) -> None:
    topic = fresh("assigned")
    create_topic(client.bootstrap, topic, PARTITIONS, 3, min_insync_replicas="2")
    join = {"group": fresh("group"), "topic": topic, "protocol": "consumer"}
    stay, goes = MEMBERS[:2], MEMBERS[2]
    for member in stay:
        client.call("join", member=member, **join)
    doomed_client.call("join", member=goes, **join)
    programs = {stay[0]: client, stay[1]: client, goes: doomed_client}

    def shares(members: Iterable[str]) -> list[list[int]]:
        return [programs[one].call("assignment", member=one)["partitions"] for one in members]

    def is_shared(seen: list[list[int]]) -> bool:
        even = PARTITIONS // len(seen)
        numbers = sorted(number for each in seen for number in each)
        return numbers == list(range(PARTITIONS)) and {len(each) for each in seen} == {even}

    def read(members: Iterable[str], offset: int) -> None:
        """The record at this offset of each partition, by one member, which commits it."""

        def places() -> list[tuple[int, int]]:
            every = [
                (each["partition"], each["offset"])
                for one in members
                for each in programs[one].call("consumed", member=one)["records"]
            ]
            return sorted(place for place in every if place[1] == offset)

        eventually(places, [(number, offset) for number in range(PARTITIONS)].__eq__, 60)
        for one in members:
            programs[one].call("commit", member=one)

    def produce() -> None:
        options = {"codec": "none", "acks": "all", "idempotent": True}
        client.call("produce", topic=topic, records=numbered(PARTITIONS), **options)

    eventually(lambda: shares(MEMBERS), is_shared, 60)
    group = cluster.state().group(join["group"])
    assert (group.protocol_type, group.state) == ("consumer", "Stable")
    produce()
    read(MEMBERS, 0)
    assert group.coordinator is not None
    victim = cluster.brokers[group.coordinator - 1]
    victim.kill()
    doomed_client.process.kill()
    eventually(lambda: shares(stay), is_shared, 60)
    produce()
    read(stay, 1)
    victim.start()
    produce()
    read(stay, 2)
    for member in stay:
        client.call("leave", member=member)


@pytest.mark.parametrize("client", ["librdkafka", "java"], indirect=True)
def test_a_day_passes_for_three_brokers_while_clients_stay_connected(
    client: Client, cluster: tidelog.RunningCluster, fresh: Callable[[str], str]
) -> None:
    topic, kept, group, transaction = map(fresh, ("day", "kept", "group", "transaction"))
    cluster.create_topic(topic, PARTITIONS, config={"retention.ms": 24 * HOUR_MS})
    cluster.create_topic(kept, config={"retention.ms": -1})
    for member in MEMBERS:
        client.call("join", member=member, group=group, topic=topic, session_timeout_ms=45_000)

    def generation() -> int:
        return cluster.state().group(group).generation

    def members() -> set[str]:
        """No ids while the group is gone: an empty one without offsets is deleted in that hour."""
        groups = [one for one in cluster.state().groups if one.group_id == group]
        return {member.member_id for one in groups for member in one.members}

    def shares() -> list[int]:
        return [len(client.call("assignment", member=one)["partitions"]) for one in MEMBERS]

    def produce_and_read(count: int) -> None:
        options = {"codec": "none", "acks": "all", "idempotent": True}
        client.call("produce", topic=topic, records=numbered(A_CALL), **options)
        eventually(lambda: len(consumed(client)), count.__eq__, 60)

    eventually(shares, [2, 2, 2].__eq__, 60)
    produce_and_read(A_CALL)
    client.call("txn_open", producer="p", transactional_id=transaction, timeout_ms=50_000)
    client.call("txn_send", producer="p", topic=kept, records=numbered(1), begin=True)
    before, joined = generation(), members()
    assert len(joined) == len(MEMBERS)

    cluster.clock.advance(hours=25)
    at = {"topic": topic, "partition": 0, "at": "earliest"}
    eventually(lambda: client.call("offsets", **at)["offset"], (A_CALL // PARTITIONS).__eq__, 60)
    produce_and_read(2 * A_CALL)
    assert (generation(), members(), shares()) == (before, joined, [2, 2, 2])
    client.call("txn_end", producer="p", commit=True)
    state = cluster.state()
    assert all(len(one.isr) == 3 for one in state.topic(topic).partitions)

    client.call("txn_send", producer="p", topic=kept, records=numbered(1), begin=True)
    cluster.clock.advance(hours=1, expire_sessions=True)
    with pytest.raises(WorkerError):
        client.call("txn_end", producer="p", commit=True)
    eventually(lambda: len(members() - joined), len(MEMBERS).__eq__, 60)  # all joined anew
    eventually(shares, [2, 2, 2].__eq__, 60)
    for member in MEMBERS:
        client.call("leave", member=member)
    client.call("txn_close", producer="p")
    read = client.call("consume", topic=kept, partition=0, count=1, committed=True, **{"from": 0})
    assert len(read["records"]) == 1


def numbered(count: int) -> list[dict[str, Any]]:
    """Records over as many partitions as there are."""
    plain = {"key": None, "headers": []}
    return [
        plain | {"value": encoded(b"%d" % number), "partition": number % min(count, PARTITIONS)}
        for number in range(count)
    ]
