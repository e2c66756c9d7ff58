"""Groups change between the classic and the consumer protocol while members use them (KIP-848)."""

from __future__ import annotations

from random import Random

import pytest

from broker.group_broker import GroupBroker, topic
from broker.test_group_coordinator import commit_request, committed, join_request
from support.consumer_groups import held_of
from support.mixed_groups import (
    ClassicClient,
    Client,
    ConsumerClient,
    assignment_of,
    owners,
    settle,
    subscription_bytes,
)
from tidelog.cluster.metadata.image import GROUP_METADATA_TOPIC
from tidelog.coordinators.groups.classic.group import Group, GroupState
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.modern.states import MemberState, ModernGroupState
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

NONE = ErrorCode.NONE
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
ALL = {("a", 0), ("a", 1), ("a", 2)}


def group_of(broker: GroupBroker) -> ConsumerGroup | Group:
    found = broker.admin.find("g")
    assert not isinstance(found, ErrorCode)
    return found


def consumer_group(broker: GroupBroker) -> ConsumerGroup:
    found = group_of(broker)
    assert isinstance(found, ConsumerGroup)
    return found


def classic_group(broker: GroupBroker) -> Group:
    found = group_of(broker)
    assert isinstance(found, Group)
    return found


def stable(broker: GroupBroker, count: int = 2, **more: bool) -> list[ClassicClient]:
    """A stable classic group of so many members."""
    clients = [ClassicClient(broker, **more) for _ in range(count)]
    settle(broker, clients, rounds=12)
    assert set(owners(clients)) == ALL
    assert classic_group(broker).state is GroupState.STABLE
    return clients


# ---- classic to consumer -------------------------------------------------------------------------


def test_a_classic_group_becomes_a_consumer_group_with_what_its_members_have() -> None:
    broker = GroupBroker()
    first, second = stable(broker)
    generation = classic_group(broker).generation
    answer = ConsumerClient(broker, "new").beat()
    assert (answer.error_code, answer.member_epoch) == (NONE, generation + 1)
    assert answer.assignment.topic_partitions == [], "the others have everything"
    group = consumer_group(broker)
    assert set(held_of(group)) == {(b"a" * 16, n) for n in range(3)}
    member = group.members[first.member_id]
    assert (member.epoch, member.state) == (generation, MemberState.STABLE)
    assert {n for _, n in first.owned} == member.assigned[b"a" * 16].keys()
    assert member.subscription.topic_names == {"a"}
    assert member.subscription.classic is not None
    assert member.subscription.classic.session_timeout_ms == 10_000
    assert first.beat() is REBALANCE
    assert second.beat() is REBALANCE


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_members_move_one_after_the_other(is_cooperative: bool) -> None:
    broker = GroupBroker()
    classic = stable(broker, is_cooperative=is_cooperative)
    broker.ask(
        commit_request(
            "g",
            7,
            member_id=classic[0].member_id,
            generation_id_or_member_epoch=classic[0].generation,
        ),
        7,
    )
    clients: list[Client] = list(classic)
    for number, old in enumerate(classic):
        clients.append(ConsumerClient(broker, f"new-{number}"))
        settle(broker, clients)
        assert set(owners(clients)) == ALL
        assert consumer_group(broker).state is ModernGroupState.STABLE
        old.leave()
        clients.remove(old)
        settle(broker, clients)
        assert set(owners(clients)) == ALL
    assert committed(broker, "g") == 7
    assert {type(each) for each in clients} == {ConsumerClient}
    for number in range(2):
        clients.append(ClassicClient(broker, is_cooperative=is_cooperative))
        settle(broker, clients)
        assert set(owners(clients)) == ALL
        clients[0].leave()
        del clients[0]
        settle(broker, clients)
        assert set(owners(clients)) == ALL
        assert isinstance(group_of(broker), Group) == (number == 1)
    assert classic_group(broker).state is GroupState.STABLE
    assert committed(broker, "g") == 7


def test_a_cooperative_member_keeps_what_it_may_keep() -> None:
    broker = GroupBroker()
    (old,) = stable(broker, 1, is_cooperative=True)
    new = ConsumerClient(broker, "new")
    new.beat()
    assert old.beat() is REBALANCE
    old.begin_join()
    answer = old.poll()
    assert answer.generation_id == old.generation == 1, "it must revoke first"
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "cooperative-sticky")
    assert (answer.leader, answer.members) == ("", [])
    assert len(old.owned) == 2
    assert consumer_group(broker).members[old.member_id].state is MemberState.UNREVOKED
    assert old.must_join, "the client revokes and joins again"
    assert not new.owned
    old.join()
    assert old.generation == 2
    assert len(old.owned) == 2
    new.beat()
    assert len(new.owned) == 1
    assert old.beat() is NONE


def test_parked_requests_are_answered_when_the_group_changes() -> None:
    broker = GroupBroker()
    first, _ = stable(broker)
    joining = first.begin_join()
    assert joining.parked
    ConsumerClient(broker, "new").beat()
    assert joining.answer.error_code == REBALANCE
    assert joining.answer.member_id == first.member_id
    third = ClassicClient(broker, version=3)
    third.join()
    assert third.generation == consumer_group(broker).epoch


def test_a_parked_sync_is_answered_when_the_group_changes() -> None:
    broker = GroupBroker()
    first, second = stable(broker)
    first.begin_join()
    second.begin_join()
    broker.time.pass_()
    follower = max((first, second), key=lambda each: not each.joining.answer.members)
    follower.generation = follower.joining.answer.generation_id
    syncing = follower.begin_sync(follower.joining.answer)
    assert syncing.parked
    ConsumerClient(broker, "new").beat()
    assert syncing.answer.error_code == REBALANCE
    clients: list[Client] = [first, second]
    settle(broker, clients)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group_consumer_migration_policy": "Downgrade"}, "online upgrade is disabled"),
        (
            {"group_consumer_max_size": "1"},
            "the group size exceeds the consumer group maximum size",
        ),
    ],
)
def test_a_group_that_may_not_change_stays_classic(settings: dict[str, str], message: str) -> None:
    broker = GroupBroker(**settings)
    clients = stable(broker)
    answer = ConsumerClient(broker, "new").beat()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message == (
        f"Cannot upgrade classic group g to consumer group because {message}."
    )
    assert [each.beat() for each in clients] == [NONE, NONE]


@pytest.mark.parametrize(
    ("assignment", "protocol_type", "message"),
    [
        (b"all", "consumer", "the embedded consumer protocol is malformed"),
        (b"\xff\xff", "consumer", "the embedded consumer protocol is malformed"),
        (
            assignment_of([("a", 0)], b"own"),
            "consumer",
            "an unsupported custom assignor is in use. Please refer to the documentation or switch "
            "to a default assignor before re-attempting the upgrade",
        ),
        (b"", "connect", "the group does not use the consumer embedded protocol"),
    ],
)
def test_a_group_whose_bytes_cannot_be_read_stays_classic(
    assignment: bytes, protocol_type: str, message: str
) -> None:
    broker = GroupBroker()
    joined = broker.send(join_request(protocol_type=protocol_type), 3)
    broker.time.pass_()
    member_id = joined.answer.member_id
    given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
    request = SyncGroupRequest(
        group_id="g", generation_id=1, member_id=member_id, assignments=[given]
    )
    assert broker.ask(request, 3).error_code == NONE
    answer = ConsumerClient(broker, "new").beat()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message == (
        f"Cannot upgrade classic group g to consumer group because {message}."
    )
    assert isinstance(group_of(broker), Group)


def test_a_member_keeps_what_it_has_when_a_rebalance_ended_early() -> None:
    broker = GroupBroker()
    (old,) = stable(broker, 1, is_cooperative=True)
    late = ClassicClient(broker, is_cooperative=True)
    late.join()
    while old.beat() is NONE:
        pass
    old.begin_join()
    assert classic_group(broker).state is GroupState.COMPLETING_REBALANCE
    another = ClassicClient(broker, is_cooperative=True)
    another.join()
    assert classic_group(broker).state is GroupState.PREPARING_REBALANCE
    assert not any(each.assignment for each in classic_group(broker).members.values())
    new = ConsumerClient(broker, "new")
    new.beat()
    assert not new.owned
    assert consumer_group(broker).members[old.member_id].assigned == {b"a" * 16: {0: 2, 1: 2, 2: 2}}
    owners([old, new])


def test_no_partition_has_two_members_though_a_leader_assigns_it_twice() -> None:
    broker = GroupBroker()
    first, second = stable(broker)
    first.begin_join()
    second.begin_join()
    broker.time.pass_()
    leader, follower = sorted(
        (first, second),
        key=lambda each: not each.joining.answer.members,  # type: ignore[union-attr]
    )
    given = [
        SyncGroupRequest.SyncGroupRequestAssignment(
            member_id=each.member_id, assignment=assignment_of(ALL)
        )
        for each in (leader, follower)
    ]
    request = SyncGroupRequest(
        group_id="g", generation_id=2, member_id=leader.member_id, assignments=given
    )
    assert broker.ask(request, 3).error_code == NONE
    ConsumerClient(broker, "new").beat()
    assert len(held_of(consumer_group(broker))) == 3


def test_a_group_changes_before_its_first_generation() -> None:
    broker = GroupBroker(group_initial_rebalance_delay_ms="3000")
    old = ClassicClient(broker, version=3)
    joining = old.begin_join()
    assert joining.parked
    new = ConsumerClient(broker, "new")
    assert new.beat().member_epoch == 1
    assert joining.answer.error_code == REBALANCE
    settle(broker, [old, new])
    assert set(owners([old, new])) == ALL


def test_subscriptions_of_every_version_are_read() -> None:
    for version in (0, 1, 2, 3, 9):
        broker = GroupBroker()
        body = subscription_bytes("a", "b", version=min(version, 3), rack="r")[2:]
        name = JoinGroupRequest.JoinGroupRequestProtocol(
            name="range", metadata=version.to_bytes(2, "big") + body
        )
        broker.send(join_request(protocols=[name]), 3)
        broker.time.pass_()
        ConsumerClient(broker, "new").beat()
        old, _ = consumer_group(broker).members.values()
        assert old.subscription.topic_names == {"a", "b"}
        assert old.subscription.rack_id == ("r" if version >= 3 else None)


# ---- classic members of a consumer group ---------------------------------------------------------


def mixed(broker: GroupBroker) -> tuple[ConsumerClient, ClassicClient]:
    """A stable group with a member of each protocol."""
    new, old = ConsumerClient(broker, "new"), ClassicClient(broker)
    settle(broker, [new, old])
    assert set(owners([new, old])) == ALL
    return new, old


@pytest.mark.usefixtures("epochs_from_1")
def test_a_classic_member_joins_a_consumer_group() -> None:
    broker = GroupBroker()
    new = ConsumerClient(broker, "new")
    new.beat()
    old = ClassicClient(broker)
    asked = old.begin_join().answer
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert len(asked.member_id) == 22, "Kafka's ids of consumer groups"
    assert consumer_group(broker).members.keys() == {"new"}
    old.member_id = asked.member_id
    answer = old.begin_join().answer
    assert (answer.error_code, answer.generation_id) == (NONE, 2)
    old.poll()
    assert not old.owned
    assert old.beat() is NONE, "the other has not revoked"
    settle(broker, [new, old])
    assert set(owners([new, old])) == ALL
    assert old.owned


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (
            {
                "protocols": [
                    JoinGroupRequest.JoinGroupRequestProtocol(name="x", metadata=b"\x00\x00")
                ]
            },
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        (
            {
                "protocols": [
                    JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\x00")
                ],
                "member_id": "m",
            },
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
        ({"group_instance_id": "i", "member_id": "m"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (
            {
                "protocols": [
                    JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\x00")
                ],
                "group_instance_id": "i",
                "member_id": "m",
            },
            ErrorCode.UNKNOWN_MEMBER_ID,
        ),
    ],
)
def test_a_join_that_does_not_fit_is_refused(changes: dict, error: ErrorCode) -> None:
    broker = GroupBroker()
    mixed(broker)
    before = dict(consumer_group(broker).members)
    assert broker.ask(join_request(**changes), 9).error_code == error
    assert consumer_group(broker).members == before


def test_a_full_group_and_a_group_without_migration_refuse_classic_members() -> None:
    broker = GroupBroker(group_consumer_max_size="1")
    ConsumerClient(broker, "new").beat()
    assert broker.ask(join_request(), 3).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    broker = GroupBroker(group_consumer_migration_policy="disabled")
    ConsumerClient(broker, "new").beat()
    assert broker.ask(join_request(), 3).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_requests_of_others_are_refused() -> None:
    broker = GroupBroker()
    new, old = mixed(broker)

    def beat(member_id: str, generation: int, instance_id: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id="g",
            member_id=member_id,
            generation_id=generation,
            group_instance_id=instance_id,
        )
        return broker.ask(request, 4).error_code

    assert beat(old.member_id, old.generation) == NONE
    assert beat(old.member_id, old.generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert beat("new", new.epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(old.member_id, old.generation, "i") == ErrorCode.UNKNOWN_MEMBER_ID

    def sync(**changes: object) -> int:
        fields = {
            "group_id": "g",
            "member_id": old.member_id,
            "generation_id": old.generation,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        }
        return broker.ask(SyncGroupRequest(**(fields | changes)), 5).error_code

    assert sync() == NONE
    assert sync(generation_id=9) == ErrorCode.ILLEGAL_GENERATION
    assert sync(protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(protocol_name="roundrobin") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(member_id="new") == ErrorCode.UNKNOWN_MEMBER_ID
    ConsumerClient(broker, "newer").beat()
    assert sync() == REBALANCE


def test_commits_and_fetches_of_both_kinds_of_members() -> None:
    broker = GroupBroker()
    new, old = mixed(broker)

    def commit(member_id: str, epoch: int, version: int) -> int:
        request = commit_request(
            "g", 3, member_id=member_id, generation_id_or_member_epoch=epoch, partition=0
        )
        return broker.ask(request, version).topics[0].partitions[0].error_code

    assert commit(old.member_id, old.generation, 7) == NONE
    assert commit(old.member_id, old.generation + 1, 7) == ErrorCode.ILLEGAL_GENERATION
    assert commit("new", new.epoch, 9) == NONE
    assert commit("new", new.epoch + 1, 9) == ErrorCode.STALE_MEMBER_EPOCH


def test_a_classic_member_without_heartbeats_is_removed_after_its_own_session() -> None:
    broker = GroupBroker()
    new, old = mixed(broker)
    assert old.beat() is NONE
    broker.time.pass_(9.9)
    assert old.member_id in consumer_group(broker).members
    broker.time.pass_(0.2)
    assert consumer_group(broker).members.keys() == {"new"}
    settle(broker, [new])
    assert new.owned == ALL


def test_a_member_that_does_not_join_in_time_is_removed() -> None:
    broker = GroupBroker()
    new, old = mixed(broker)
    newer = ConsumerClient(broker, "newer")
    newer.beat()
    for _ in range(15):
        assert old.beat() is REBALANCE
        new.beat()
        newer.beat()
        broker.time.pass_(4)
    assert consumer_group(broker).members.keys() == {"new", "newer"}


@pytest.mark.usefixtures("epochs_from_1")
def test_a_member_that_does_not_sync_in_time_is_removed() -> None:
    broker = GroupBroker()
    new = ConsumerClient(broker, "new")
    new.beat()
    old = ClassicClient(broker, "b", version=3)
    old.member_id, old.generation = old.begin_join().answer.member_id, 2
    for _ in range(15):
        assert old.beat() is NONE
        new.beat()
        broker.time.pass_(4)
    assert consumer_group(broker).members.keys() == {"new"}


def test_a_group_without_consumer_members_that_may_not_change_goes_on() -> None:
    broker = GroupBroker(group_consumer_migration_policy="upgrade")
    new, old = mixed(broker)
    assert new.leave().error_code == NONE
    assert consumer_group(broker).members.keys() == {old.member_id}
    assert old.beat() is REBALANCE, "it must compute the target"
    settle(broker, [old])
    assert old.owned == ALL


def test_leave_group_removes_members_of_both_protocols() -> None:
    broker = GroupBroker()
    _, old = mixed(broker)
    static = ConsumerClient(broker, "static", instance_id="i")
    static.beat()
    identity = LeaveGroupRequest.MemberIdentity
    request = LeaveGroupRequest(
        group_id="g",
        members=[
            identity(member_id=old.member_id),
            identity(member_id="nobody"),
            identity(member_id="x", group_instance_id="i"),
            identity(member_id="", group_instance_id="i"),
            identity(member_id="", group_instance_id="j"),
        ],
    )
    answer = broker.ask(request, 5)
    assert answer.error_code == NONE
    assert [(each.member_id, each.error_code) for each in answer.members] == [
        (old.member_id, NONE),
        ("nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", ErrorCode.FENCED_INSTANCE_ID),
        ("", NONE),
        ("", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert consumer_group(broker).members.keys() == {"new"}


@pytest.mark.parametrize("who", ["old", "new"])  # with the other one the group becomes classic
def test_leave_group_is_answered_when_it_is_committed(who: str) -> None:
    """Else the next coordinator has a member that was told that it has left."""
    broker = GroupBroker(partitions=1)
    _, old = mixed(broker)
    member_id = old.member_id if who == "old" else "new"
    partition = broker.replica_manager.partition(GROUP_METADATA_TOPIC, 0)
    partition._sole_replica, isr = False, partition.isr
    partition.isr = (1, 2)  # a follower whose log end is not known
    left = LeaveGroupRequest.MemberIdentity(member_id=member_id)
    pending = broker.send(LeaveGroupRequest(group_id="g", members=[left]), 5)
    assert pending.parked
    partition.isr = isr
    assert partition.advance_high_watermark()
    broker.replica_manager.appended([partition.topic_partition])
    assert pending.answer.error_code == NONE
    assert [each.error_code for each in pending.answer.members] == [NONE]


# ---- consumer to classic -------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["leave", "session", "classic leave", "control"])
def test_the_last_consumer_member_leaves_a_classic_group(how: str) -> None:
    broker = GroupBroker()
    new, old = mixed(broker)
    epoch = consumer_group(broker).epoch
    if how == "leave":
        assert new.leave().member_epoch == -1
    elif how == "session":
        for _ in range(46):
            broker.time.pass_(1)
            old.beat()
        new.owned.clear()
    elif how == "control":
        assert broker.coordinator.end_sessions("g", "new") == 1
    else:
        request = LeaveGroupRequest(
            group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id="new")]
        )
        assert broker.ask(request, 5).members[0].error_code == NONE
    group = classic_group(broker)
    assert (group.state, group.generation) == (GroupState.PREPARING_REBALANCE, epoch)
    assert group.members.keys() == {old.member_id}
    assert group.protocol_name == "range"
    settle(broker, [old])
    assert old.owned == ALL
    assert classic_group(broker).state is GroupState.STABLE


def test_the_last_member_leaves_an_empty_consumer_group() -> None:
    broker = GroupBroker()
    new = ConsumerClient(broker, "new")
    new.beat()
    new.leave()
    assert consumer_group(broker).is_empty


@pytest.mark.parametrize("policy", ["upgrade", "Disabled"])
def test_a_policy_that_does_not_allow_it_keeps_the_consumer_group(policy: str) -> None:
    broker = GroupBroker()
    new, old = mixed(broker)
    broker.coordinator.mixed._policy = policy
    new.leave()
    assert consumer_group(broker).members.keys() == {old.member_id}


def test_a_group_that_changes_three_times_knows_what_a_member_still_has() -> None:
    broker = GroupBroker()
    (old,) = stable(broker, 1, is_cooperative=True)
    first = ConsumerClient(broker, "first")
    first.beat()
    assert old.beat() is REBALANCE, "it would have to revoke, and still has all"
    first.leave()
    assert isinstance(group_of(broker), Group)
    second = ConsumerClient(broker, "second")
    second.beat()
    assert not second.owned
    settle(broker, [old, second])
    assert set(owners([old, second])) == ALL


# ---- static members ------------------------------------------------------------------------------


def test_static_members_swap_the_protocol_and_keep_their_partitions() -> None:
    broker = GroupBroker()
    first = ClassicClient(broker, instance_id="i")
    second = ClassicClient(broker, instance_id="j")
    settle(broker, [first, second])
    before = set(first.owned)
    assert before
    first.owned.clear()
    new = ConsumerClient(broker, "new", instance_id="i")
    assert new.beat().error_code == NONE
    assert new.owned == before
    assert first.beat() is ErrorCode.FENCED_INSTANCE_ID
    settle(broker, [new, second])
    assert new.owned == before
    new.owned.clear()
    back = ClassicClient(broker, instance_id="i")
    assert back.join().error_code == NONE
    assert classic_group(broker).state is GroupState.STABLE, "the same subscription: no rebalance"
    assert back.owned == before
    assert [back.beat(), second.beat()] == [NONE, NONE]
    answer = new.beat()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    broker.kill()
    assert [back.beat(), second.beat()] == [NONE, NONE]


def test_a_static_member_swaps_back_with_another_subscription() -> None:
    broker = GroupBroker()
    new = ConsumerClient(broker, "new", instance_id="i")
    new.beat()
    back = ClassicClient(broker, "a", "b", instance_id="i")
    assert back.join().error_code == NONE
    assert classic_group(broker).state is GroupState.PREPARING_REBALANCE
    settle(broker, [back])
    assert back.owned == ALL | {("b", 0)}


def test_a_known_static_member_of_the_classic_protocol_joins_again() -> None:
    broker = GroupBroker()
    new = ConsumerClient(broker, "new")
    new.beat()
    old = ClassicClient(broker, instance_id="i")
    settle(broker, [new, old])
    before = old.member_id
    assert old.join().error_code == NONE
    assert old.member_id == before
    again = ClassicClient(broker, instance_id="i")
    assert again.join().error_code == NONE
    assert again.member_id != before
    assert old.beat() is ErrorCode.FENCED_INSTANCE_ID
    settle(broker, [new, again])
    assert set(owners([new, again])) == ALL


# ---- another coordinator -------------------------------------------------------------------------


def test_another_coordinator_goes_on_in_every_state() -> None:
    broker = GroupBroker()
    first, second = stable(broker)
    new = ConsumerClient(broker, "new")
    new.beat()
    clients: list[Client] = [first, second, new]
    for round_ in range(20):
        before = consumer_group(broker)
        broker.kill()
        after = consumer_group(broker)
        assert (after.members, after.targets, after.epoch) == (
            before.members,
            before.targets,
            before.epoch,
        )
        clients[round_ % 3].step()
        owners(clients)
    settle(broker, clients)
    assert set(owners(clients)) == ALL
    new.leave()
    clients.remove(new)
    broker.kill()
    settle(broker, clients)
    assert set(owners(clients)) == ALL
    assert classic_group(broker).state is GroupState.STABLE


# ---- any order -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_whatever_comes_and_goes_no_partition_is_owned_twice(seed: int) -> None:
    """Members of both protocols come, go and swap, a coordinator dies; in the end all is owned."""
    play(seed)


def play(seed: int) -> None:
    random = Random(seed)
    policy = random.choice(["bidirectional", "bidirectional", "upgrade"])
    is_cooperative = random.random() < 0.5
    broker = GroupBroker(group_consumer_migration_policy=policy)
    broker.topics["c"] = topic("c", b"c" * 16, 5)
    broker.apply()
    clients: list[Client] = []

    def new(number: int, instance_id: str | None) -> Client:
        names = random.choice([("a",), ("a", "c"), ("c",)])
        if random.random() < 0.5:
            return ConsumerClient(broker, f"new-{number}", *names, instance_id=instance_id)
        return ClassicClient(broker, *names, instance_id=instance_id, is_cooperative=is_cooperative)

    for number in range(120):
        action = random.random()
        if action < 0.12 and len(clients) < 5:
            clients.append(new(number, random.choice([None, f"i-{number}"])))
        elif action < 0.2 and clients:
            clients.pop(random.randrange(len(clients))).leave()
        elif action < 0.25 and clients:
            place = random.randrange(len(clients))
            if clients[place].instance_id is not None:  # it dies, and another takes its place
                clients[place] = new(number, clients[place].instance_id)
        elif action < 0.28:
            if isinstance(broker.admin.find("g"), ConsumerGroup):
                assert_nothing_is_left_behind(broker)
            broker.kill()
            for each in clients:
                if isinstance(each, ClassicClient) and (each.joining or each.syncing):
                    each.joining = each.syncing = None
                    each.must_join = True
        elif clients:
            random.choice(clients).step()
            broker.time.pass_(random.random() / 4)
        owners(clients)
    clients.append(ConsumerClient(broker, "last", "a", "c"))
    settle(broker, clients, rounds=80, pause_s=1)  # sessions of the dead end
    assert len(owners(clients)) == 8


def assert_nothing_is_left_behind(broker: GroupBroker) -> None:
    """Of members that the group had before it was a classic one, compaction leaves no record."""
    before, after = consumer_group(broker), broker.compacted("g")
    assert (after.members, after.targets, after.epoch) == (
        before.members,
        before.targets,
        before.epoch,
    )


# ---- sessions ------------------------------------------------------------------------------------


def test_members_of_a_group_that_is_classic_again_have_sessions() -> None:
    """A static member changes its protocol and keeps its subscription: no member joins again."""
    broker = GroupBroker()
    new, other = ConsumerClient(broker, "new", instance_id="i"), ClassicClient(broker)
    settle(broker, [new, other])
    new.owned.clear()
    back = ClassicClient(broker, instance_id="i")
    assert back.join().error_code == NONE
    assert classic_group(broker).state is GroupState.STABLE
    for _ in range(20):
        broker.time.pass_(3)
        other.beat()
    assert classic_group(broker).members.keys() == {other.member_id}, "the other is dead"


def test_a_static_member_that_comes_back_under_its_own_id_has_a_session() -> None:
    broker = GroupBroker()
    member = ConsumerClient(broker, "m", instance_id="i")
    member.beat()
    member.beat(-2)
    assert member.beat(0).error_code == NONE
    broker.time.pass_(46)
    assert consumer_group(broker).is_empty
