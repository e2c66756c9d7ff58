"""KIP-848 groups over real logs: members, sessions, restarts, offsets, administration; all through
dispatch."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from broker.group_broker import GroupBroker, topic
from broker.test_acls import acl
from broker.test_group_coordinator import (
    commit_request,
    committed,
    heartbeat,
    join_request,
    stable_member,
)
from support.consumer_groups import held_of
from tidelog.cluster.metadata.image import GROUP_METADATA_TOPIC
from tidelog.control import broker_state
from tidelog.coordinators.groups.classic.group import Group
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from tidelog_protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from tidelog_protocol.messages.group_offsets import OffsetDeleteRequest, OffsetFetchRequest
from tidelog_storage.types import StorageError

NONE = ErrorCode.NONE
pytestmark = pytest.mark.usefixtures("epochs_from_1")

A = b"a" * 16
SESSION_S = 45


def owned(**partitions: list[int]) -> list[Any]:
    return [
        ConsumerGroupHeartbeatRequest.TopicPartitions(
            topic_id=name.encode() * 16, partitions=numbers
        )
        for name, numbers in partitions.items()
    ]


def beat(broker: GroupBroker, member_id: str, epoch: int, version: int = 1, **fields: Any) -> Any:
    fields = {"group_id": "g", **fields}
    request = ConsumerGroupHeartbeatRequest(member_id=member_id, member_epoch=epoch, **fields)
    return broker.ask(request, version)


def join(broker: GroupBroker, member_id: str, *names: str, version: int = 1, **fields: Any) -> Any:
    fields = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], **fields}
    if "subscribed_topic_regex" not in fields:
        fields["subscribed_topic_names"] = list(names or ("a",))
    return beat(broker, member_id, 0, version, **fields)


def numbers(answer: Any) -> dict[bytes, list[int]] | None:
    assert answer.error_code == NONE, (ErrorCode(answer.error_code), answer.error_message)
    if answer.assignment is None:
        return None
    return {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}


def group_of(broker: GroupBroker, group_id: str = "g") -> ConsumerGroup:
    found = broker.admin.find(group_id)
    assert isinstance(found, ConsumerGroup)
    return found


def two_members(broker: GroupBroker) -> None:
    """m has partition 0 and 1 of a, n has 2, both in epoch 2."""
    join(broker, "m")
    join(broker, "n")
    assert numbers(beat(broker, "m", 1)) == {A: [0, 1]}
    beat(broker, "m", 1, topic_partitions=owned(a=[0, 1]))
    assert numbers(beat(broker, "n", 2)) == {A: [2]}


def test_a_member_joins_and_leaves() -> None:
    broker = GroupBroker()
    answer = join(broker, "m", "a", "b")
    assert numbers(answer) == {A: [0, 1, 2], b"b" * 16: [0]}
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m", 1, 5000)
    assert numbers(beat(broker, "m", 1)) is None
    assert beat(broker, "m", -1).member_epoch == -1
    assert group_of(broker).is_empty
    refusal = beat(broker, "m", 1)
    assert refusal.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal.error_message == "Member m is not a member of group g."


def test_a_heartbeat_that_says_nothing_new_is_not_looked_at_closer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = GroupBroker()
    join(broker, "m")
    beat(broker, "m", 1)  # looks at the topics
    looked_at = []
    heartbeat = ConsumerGroup.heartbeat

    def look(group: ConsumerGroup, request: Any, *more: Any) -> Any:
        looked_at.append(request.epoch)
        return heartbeat(group, request, *more)

    monkeypatch.setattr(ConsumerGroup, "heartbeat", look)
    quiet = beat(broker, "m", 1)
    assert looked_at == []
    assert quiet == beat(broker, "m", 1, topic_partitions=owned(a=[0, 1, 2]))
    assert looked_at == [1]
    join(broker, "n")
    assert numbers(beat(broker, "m", 1)) == {A: [0, 1]}
    assert looked_at == [1, 0, 1], "there is something to tell"
    assert beat(broker, "x", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_coordinator_makes_member_ids_before_version_1() -> None:
    broker = GroupBroker()
    answer = join(broker, "", version=0)
    assert len(answer.member_id) == 22
    assert answer.member_id in group_of(broker).members
    assert join(broker, "").error_code == ErrorCode.INVALID_REQUEST


def test_partitions_move_one_by_one() -> None:
    broker = GroupBroker()
    two_members(broker)
    assert group_of(broker).state.value == "Stable"


def test_a_topic_may_come_once_for_each_partition() -> None:
    """Kafka goes through the whole list of what a member owns: partition 2 is not released yet."""
    broker = GroupBroker()
    join(broker, "m")
    join(broker, "n")
    assert numbers(beat(broker, "m", 1)) == {A: [0, 1]}
    one_by_one = [*owned(a=[2]), *owned(a=[0]), *owned(a=[1])]
    assert beat(broker, "m", 1, topic_partitions=one_by_one).member_epoch == 1
    assert numbers(beat(broker, "n", 2)) is None
    assert beat(broker, "m", 1, topic_partitions=one_by_one[1:]).member_epoch == 2
    assert numbers(beat(broker, "n", 2)) == {A: [2]}


def test_members_without_heartbeats_are_removed() -> None:
    broker = GroupBroker()
    two_members(broker)
    broker.time.pass_(SESSION_S - 1)
    assert numbers(beat(broker, "m", 2)) is None
    broker.time.pass_(2)
    assert group_of(broker).members.keys() == {"m"}
    assert beat(broker, "m", 2).member_epoch == 3
    assert numbers(beat(broker, "m", 3)) is None
    assert group_of(broker).members["m"].assigned[A].keys() == {0, 1, 2}
    broker.time.pass_(SESSION_S)
    assert group_of(broker).is_empty
    broker.time.pass_(SESSION_S)
    shard = broker.coordinator.shard_of("g")
    assert not isinstance(shard, ErrorCode)
    assert not shard.watches


def test_a_member_that_does_not_revoke_is_removed() -> None:
    broker = GroupBroker()
    join(broker, "m", rebalance_timeout_ms=10_000)
    join(broker, "n")
    beat(broker, "m", 1)
    broker.time.pass_(10)
    assert group_of(broker).members.keys() == {"n"}


def test_a_restarted_coordinator_goes_on() -> None:
    broker = GroupBroker()
    two_members(broker)
    before = group_of(broker)
    broker.kill()
    after = group_of(broker)
    assert after is not before
    assert (after.members, after.targets) == (before.members, before.targets)
    assert (after.epoch, after.assignment_epoch) == (before.epoch, before.assignment_epoch)
    assert numbers(beat(broker, "m", 2)) is None
    broker.time.pass_(SESSION_S)
    assert after.is_empty, "sessions began with the restart"


def test_a_new_leader_refuses_until_it_leads() -> None:
    broker = GroupBroker()
    join(broker, "m")
    broker.topics[GROUP_METADATA_TOPIC] = topic(
        GROUP_METADATA_TOPIC, b"_" * 16, 4, leader=2, epoch=1
    )
    broker.apply()
    assert beat(broker, "m", 1).error_code == ErrorCode.NOT_COORDINATOR
    broker.time.pass_(2 * SESSION_S)


def test_new_partitions_and_topics_are_assigned() -> None:
    broker = GroupBroker()
    join(broker, "m", "a", "new")
    broker.topics["new"] = topic("new", b"new".ljust(16), 2)
    broker.topics["a"] = topic("a", A, 4)
    broker.apply()
    answer = beat(broker, "m", 1)
    assert answer.member_epoch == 2
    assert numbers(answer) == {A: [0, 1, 2, 3], b"new".ljust(16): [0, 1]}
    del broker.topics["new"]
    broker.apply()
    assert numbers(beat(broker, "m", 2, topic_partitions=owned(a=[0, 1, 2, 3]))) == {
        A: [0, 1, 2, 3]
    }


def test_a_regular_expression_subscribes_to_topics() -> None:
    broker = GroupBroker()
    assert numbers(join(broker, "m", subscribed_topic_regex="[ab]")).keys() == {A, b"b" * 16}
    refusal = join(broker, "n", subscribed_topic_regex="[")
    assert refusal.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert group_of(broker).members.keys() == {"m"}


def test_a_group_has_settings_of_its_own() -> None:
    broker = GroupBroker()
    assert join(broker, "m").heartbeat_interval_ms == 5000
    broker.group_configs = {
        "g": {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}
    }
    broker.apply()
    assert beat(broker, "m", 1).heartbeat_interval_ms == 6000
    broker.time.pass_(49)
    assert beat(broker, "m", 1).heartbeat_interval_ms == 6000
    broker.group_configs = {}
    broker.apply()
    assert beat(broker, "m", 1).heartbeat_interval_ms == 5000
    broker.time.pass_(45)
    assert group_of(broker).is_empty, "the shorter session counts from the next heartbeat"
    assert join(broker, "n", server_assignor="x").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR


# ---- offsets -------------------------------------------------------------------------------------


def commit(broker: GroupBroker, member_id: str, epoch: int, version: int = 9, **more: Any) -> int:
    fields = {"member_id": member_id, "generation_id_or_member_epoch": epoch, **more}
    answer = broker.ask(commit_request("g", 7, **fields), version)
    return answer.topics[0].partitions[0].error_code


def test_a_heartbeat_that_writes_nothing_wakes_no_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = GroupBroker()
    epoch = join(broker, "m").member_epoch
    woken: list[Any] = []
    monkeypatch.setattr(broker.replica_manager, "appended", woken.extend)
    assert beat(broker, "m", epoch).error_code == NONE
    assert woken == []
    join(broker, "n")
    assert len(woken) == 1


def test_members_commit_with_their_epoch() -> None:
    broker = GroupBroker()
    two_members(broker)
    assert commit(broker, "m", 2) == NONE
    assert commit(broker, "m", 1) == NONE, "it has the partition since epoch 1"
    assert commit(broker, "n", 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(broker, "m", 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(broker, "x", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(broker, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(broker, "m", 2, 8) == ErrorCode.UNSUPPORTED_VERSION
    assert committed(broker, "g") == 7


def test_members_fetch_with_their_epoch() -> None:
    broker = GroupBroker()
    join(broker, "m")
    commit(broker, "m", 1)

    def fetched(member_id: str | None, epoch: int) -> Any:
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id="g", member_id=member_id, member_epoch=epoch, topics=None
        )
        return broker.ask(OffsetFetchRequest(groups=[group]), 9).groups[0]

    assert fetched("m", 1).topics[0].partitions[0].committed_offset == 7
    assert fetched(None, -1).topics[0].partitions[0].committed_offset == 7
    assert fetched("m", 0).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert fetched("x", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    broker = GroupBroker()
    join(broker, "m")
    commit(broker, "m", 1)
    commit(broker, "m", 1, topic="b")
    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name=name,
            partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)],
        )
        for name in ("a", "b")
    ]
    answer = broker.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0)
    errors = {each.name: each.partitions[0].error_code for each in answer.topics}
    assert errors == {"a": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "b": NONE}
    assert (committed(broker, "g"), committed(broker, "g", "b")) == (7, -1)


def test_an_empty_group_expires_with_its_offsets() -> None:
    broker = GroupBroker(offsets_retention_minutes="1")
    join(broker, "m")
    commit(broker, "m", 1)
    for _ in range(4):
        broker.time.pass_(30)
        beat(broker, "m", 1)
    broker.admin.expire_offsets()
    assert committed(broker, "g") == 7, "its member is there"
    beat(broker, "m", -1)
    broker.admin.expire_offsets()
    assert broker.admin.find("g") is ErrorCode.GROUP_ID_NOT_FOUND
    assert committed(broker, "g") == -1
    broker.kill()
    assert broker.admin.find("g") is ErrorCode.GROUP_ID_NOT_FOUND


# ---- administration ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_describe(version: int) -> None:
    broker = GroupBroker()
    two_members(broker)
    stable_member(broker, "classic")
    names = ["g", "classic", "nothing"]
    request = ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=True)
    group, classic, nothing = broker.ask(request, version).groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    assert (group.assignor_name, group.authorized_operations) == ("uniform", 3400)
    m, n = group.members
    assert (m.member_id, m.member_epoch, m.client_id, m.client_host) == ("m", 2, "c", "/127.0.0.1")
    assert m.subscribed_topic_names == ["a"]
    assert m.member_type == (1 if version else -1)
    for member, partitions in ((m, [0, 1]), (n, [2])):
        for assignment in (member.assignment, member.target_assignment):
            (part,) = assignment.topic_partitions
            assert (part.topic_id, part.topic_name, part.partitions) == (A, "a", partitions)
    assert classic.error_code == nothing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert classic.error_message == "Group classic is not a consumer group."
    assert nothing.error_message == "Group nothing not found."


def test_classic_tools_see_that_it_is_of_another_type() -> None:
    broker = GroupBroker()
    join(broker, "m")
    stable_member(broker, "classic")
    (described,) = broker.ask(DescribeGroupsRequest(groups=["g"]), 6).groups
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert described.error_message == "Group g is not a classic group."
    (described,) = broker.ask(DescribeGroupsRequest(groups=["g"]), 5).groups
    assert (described.error_code, described.group_state) == (NONE, "Dead")

    def listed(**filters: list[str]) -> list[tuple[str, ...]]:
        groups = broker.ask(ListGroupsRequest(**filters), 5).groups
        return sorted(
            (each.group_id, each.group_type, each.protocol_type, each.group_state)
            for each in groups
        )

    g, classic = (
        ("g", "consumer", "consumer", "Stable"),
        ("classic", "classic", "consumer", "Stable"),
    )
    assert listed() == [classic, g]
    assert listed(types_filter=["Consumer"]) == [g]
    assert listed(types_filter=["classic"]) == [classic]
    assert listed(states_filter=["reconciling"]) == []


def test_only_empty_groups_are_deleted() -> None:
    broker = GroupBroker()
    join(broker, "m")
    commit(broker, "m", 1)
    request = DeleteGroupsRequest(groups_names=["g"])
    assert broker.ask(request, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    beat(broker, "m", -1)
    assert broker.ask(request, 2).results[0].error_code == NONE
    broker.kill()
    assert broker.admin.find("g") is ErrorCode.GROUP_ID_NOT_FOUND
    assert committed(broker, "g") == -1


def test_sessions_are_ended_at_will() -> None:
    broker = GroupBroker()
    two_members(broker)
    assert broker.coordinator.end_sessions("g", "x") is None
    assert broker.coordinator.end_sessions("g", "n") == 1
    assert beat(broker, "n", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.coordinator.end_sessions("g") == 1
    assert group_of(broker).is_empty
    assert broker.coordinator.end_sessions("g") == 0


def test_the_control_reads_its_state() -> None:
    broker = GroupBroker()
    two_members(broker)
    state = broker_state._group(1, group_of(broker), broker.image, {})
    assert (state.group_id, state.state, state.generation) == ("g", "Stable", 2)
    assert (state.protocol_type, state.protocol) == ("consumer", "uniform")
    m, n = sorted(state.members, key=lambda each: each.member_id)
    assert (m.assignment, n.assignment) == ({"a": (0, 1)}, {"a": (2,)})
    assert (m.member_id, m.client_id, m.session_timeout_ms) == ("m", "c", 45_000)


# ---- both protocols ------------------------------------------------------------------------------


def test_a_classic_group_with_members_stays_classic_without_migration() -> None:
    broker = GroupBroker(group_consumer_migration_policy="Disabled")
    member = stable_member(broker)
    refusal = join(broker, "m")
    assert refusal.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "online upgrade is disabled" in refusal.error_message
    assert beat(broker, "m", 1).error_message == "Group g is not a consumer group."
    assert heartbeat(broker, member) == NONE


def test_an_empty_classic_group_becomes_a_consumer_group_and_back() -> None:
    broker = GroupBroker(group_consumer_migration_policy="disabled")
    broker.ask(commit_request("g", 5), 7)
    assert isinstance(broker.admin.find("g"), Group)
    join(broker, "m")
    assert committed(broker, "g") == 5
    pending = broker.send(join_request(), 3)
    broker.time.pass_()
    assert pending.answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    beat(broker, "m", -1)
    broker.kill()
    assert group_of(broker).is_empty
    member = stable_member(broker)
    assert committed(broker, "g") == 5
    broker.kill()
    assert isinstance(broker.admin.find("g"), Group)
    assert heartbeat(broker, member) == NONE
    broker.time.pass_(10)
    found = broker.admin.find("g")
    assert isinstance(found, Group)
    assert found.is_empty, "its timer took the place of the other group's"


def test_classic_requests_do_not_reach_members_of_kip_848() -> None:
    broker = GroupBroker()
    join(broker, "m")
    assert heartbeat(broker, "m") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_that_is_not_written_changes_nothing() -> None:
    broker = GroupBroker()
    join(broker, "m")
    before = dict(group_of(broker).members)
    broker.coordinator.topic.append = _no_space  # type: ignore[method-assign]
    assert join(broker, "n").error_code == ErrorCode.NOT_COORDINATOR
    assert group_of(broker).members == before
    broker.time.pass_(SESSION_S)
    assert group_of(broker).members == before, "it stays for another session"
    del broker.coordinator.topic.append
    broker.time.pass_(SESSION_S)
    assert group_of(broker).is_empty


def test_what_cannot_be_written_is_tried_again_after_a_while() -> None:
    """A member may have no time to revoke: its end is always due, and must not fill all turns."""
    broker = GroupBroker()
    join(broker, "m", rebalance_timeout_ms=0)
    tried = 0

    def no_space(*_args: Any, **_more: Any) -> Any:
        nonlocal tried
        tried += 1
        assert tried <= 10
        _no_space()

    append = broker.coordinator.topic.append
    join(broker, "n")
    assert numbers(beat(broker, "m", 1)) == {A: [0, 1]}
    broker.coordinator.topic.append = no_space  # type: ignore[method-assign]
    broker.time.pass_(2)
    assert group_of(broker).members.keys() == {"m", "n"}
    assert 2 < tried <= 5
    broker.coordinator.topic.append = append  # type: ignore[method-assign]
    broker.time.pass_(1)
    assert group_of(broker).members.keys() == {"n"}


def _no_space(*_args: Any, **_more: Any) -> Any:
    raise StorageError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")


# ---- random lives --------------------------------------------------------------------------------


class Lives:
    """Members of both protocols that come and go, in a broker that is killed now and then."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.broker = GroupBroker()
        self.held: dict[str, dict[bytes, list[int]]] = {}  # by members, as they know it
        self.epochs: dict[str, int] = {}

    def step(self) -> None:
        moves = (self.come, self.beat, self.beat, self.beat, self.leave, self.wait, self.other)
        self.random.choice(moves)()
        found = self.broker.admin.find("g")
        if isinstance(found, ConsumerGroup):
            held_of(found)  # no partition is owned twice
        if self.random.random() < 0.1:
            self.kill()

    def come(self) -> None:
        name = self.random.choice("mnop")
        names = self.random.sample(["a", "b", "new"], self.random.randint(1, 3))
        more = {"subscribed_topic_regex": "[ab]"} if self.random.random() < 0.2 else {}
        self.heard(name, join(self.broker, name, *names, **more))

    def beat(self) -> None:
        if self.epochs:
            name = self.random.choice(sorted(self.epochs))
            self.heard(name, self.answer_of(name))

    def answer_of(self, name: str) -> Any:
        mine = [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=each, partitions=partitions)
            for each, partitions in self.held[name].items()
        ]
        return beat(self.broker, name, self.epochs[name], topic_partitions=mine)

    def heard(self, name: str, answer: Any) -> None:
        if answer.error_code != NONE:
            self.forget(name)
        else:
            self.epochs[name] = answer.member_epoch
            assigned = numbers(answer)
            self.held[name] = self.held.get(name, {}) if assigned is None else assigned

    def forget(self, name: str) -> None:
        self.epochs.pop(name, None)
        self.held.pop(name, None)

    def leave(self) -> None:
        if self.epochs:
            name = self.random.choice(sorted(self.epochs))
            beat(self.broker, name, -1)
            self.forget(name)

    def wait(self) -> None:
        self.broker.time.pass_(self.random.choice([1, 20, SESSION_S]))

    def other(self) -> None:
        """What others do: a classic member, an admin, new partitions."""
        choice = self.random.randrange(4)
        if choice == 0:
            self.broker.send(join_request(), 3)
            self.broker.time.pass_()
        elif choice == 1:
            self.broker.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
        elif choice == 2:
            old = self.broker.topics.pop("new", None)
            if old is None or self.random.random() < 0.7:
                count = 1 if old is None else len(old.partitions) + 1
                self.broker.topics["new"] = topic("new", b"n" * 16, count)
            self.broker.apply()
        else:
            self.broker.ask(commit_request("g", 1), 7)

    def kill(self) -> None:
        before = self.broker.admin.find("g")
        assert_same(before, self.broker.compacted("g"))
        self.broker.kill()
        assert_same(before, self.broker.admin.find("g"))

    def settle(self) -> None:
        """Once nothing disturbs them, all members reach the target assignment."""
        for _ in range(20):
            self.broker.time.pass_(5)
            for name in sorted(self.epochs):
                self.heard(name, self.answer_of(name))
        found = self.broker.admin.find("g")
        if isinstance(found, ConsumerGroup) and not found.is_empty:
            assert found.state.value == "Stable"
            assert found.members.keys() == self.epochs.keys()


def assert_same(group: Any, loaded: Any) -> None:
    assert type(group) is type(loaded)
    if isinstance(group, ConsumerGroup):
        for name in ("epoch", "assignment_epoch", "members", "targets", "patterns"):
            assert getattr(group, name) == getattr(loaded, name), name


@pytest.mark.parametrize("seed", [*range(10), 17])  # 17 finds lost tombstones
def test_random_lives_survive_restarts(seed: int) -> None:
    lives = Lives(seed)
    for _ in range(80):
        lives.step()
    lives.settle()


def test_patterns_match_what_the_member_may_describe() -> None:
    """Kafka: TopicRegexResolver, for members of either protocol; new ACLs match again."""
    broker = GroupBroker(acls={b"1": acl("allow ANONYMOUS describe topic a")})
    answer = join(broker, "m", subscribed_topic_regex=".*")
    assert numbers(answer) == {A: [0, 1, 2]}
    broker.topics["c"] = topic("c", b"c" * 16, 1)
    broker.apply()
    assert broker.ask(join_request(), 3).error_code == NONE
    group = broker.admin.find("g")
    assert isinstance(group, ConsumerGroup)
    assert group.patterns == {".*": {"a"}}
    broker.acls[b"2"] = acl("allow ANONYMOUS read topic b")
    broker.apply()
    beat(broker, "m", answer.member_epoch)
    assert group.patterns == {".*": {"a", "b"}}
