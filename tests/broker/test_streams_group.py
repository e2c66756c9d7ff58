"""One streams group: heartbeats, epochs, topics, sessions; its records bring it back."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from support.streams_groups import AT_ONCE, Client, StreamsLife, Subtopology, TopicInfo, word_count
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.modern.states import MemberState
from tidelog.coordinators.groups.streams.member import Endpoint, StreamsMember
from tidelog.coordinators.groups.streams.requests import StreamsHeartbeat, check
from tidelog.coordinators.groups.streams.tasks import NO_TASKS
from tidelog.coordinators.groups.streams.topology import Status
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.streams_group_records import StreamsGroupTopologyValue

if TYPE_CHECKING:
    from tidelog.coordinators.groups.streams.views import StreamsLimits

ALL_TASKS = {"0_0", "0_1", "1_0", "1_1"}


def ready(limits: StreamsLimits = AT_ONCE) -> StreamsLife:
    """All topics are there."""
    return StreamsLife(limits, lines=2, words=2, counts=2)


def refused(call: Any, *args: Any, **fields: Any) -> tuple[ErrorCode, str | None]:
    with pytest.raises(RefusedError) as found:
        call(*args, **fields)
    return found.value.code, found.value.message


def test_tasks_are_assigned_once_all_topics_are_there() -> None:
    life = StreamsLife()
    client = Client(life, "m")
    answer = client.join()
    assert answer.status == ((Status.MISSING_SOURCE_TOPICS, "Source topics lines are missing."),)
    assert (answer.epoch, client.active, life.group.state.value) == (2, set(), "NotReady")
    assert life.last.missing_topics == ()
    life.topics.counts["lines"] = 2
    life.group.topics_changed()
    answer = client.beat()
    missing = "Internal topics are missing: counts, words"
    assert answer.status == ((Status.MISSING_INTERNAL_TOPICS, missing),)
    assert [each[:3] for each in life.last.missing_topics] == [("counts", 2, 0), ("words", 2, 0)]
    assert life.group.state.value == "NotReady"
    life.create()
    answer = client.beat()
    assert answer.status == ()
    assert (answer.epoch, client.active, life.group.state.value) == (4, ALL_TASKS, "Stable")
    assert client.beat().assigned is None
    assert life.last.records == []


def test_a_second_member_gets_tasks_once_the_first_has_given_them_back() -> None:
    life = ready()
    first, second = Client(life, "m"), Client(life, "n")
    first.join()
    assert (first.epoch, first.active) == (2, ALL_TASKS)
    assert second.join().epoch == 3
    assert second.active == set()
    assert life.group.members["n"].state is MemberState.UNRELEASED
    assert life.group.state.value == "Reconciling"
    answer = first.beat()
    assert (answer.epoch, len(first.active)) == (2, 2), "it is asked to give back two"
    assert life.group.members["m"].state is MemberState.UNREVOKED
    assert second.beat().assigned is None
    assert first.beat().epoch == 3
    second.beat()
    assert first.active | second.active == ALL_TASKS
    assert len(first.active) == len(second.active) == 2
    assert life.group.state.value == "Stable"
    epochs = life.group.members["n"].assigned.active.values()
    assert {epoch for each in epochs for epoch in each.values()} == {3}


def test_a_member_that_does_not_give_tasks_back_in_time_is_removed() -> None:
    life = ready(AT_ONCE._replace(session_timeout_ms=1_000_000))
    first, second = Client(life, "m"), Client(life, "n")
    first.join()
    second.join()
    first.beat(active=None, standby=None, warmup=None)
    assert life.group.next_deadline_ms() == 60_000
    life.ticks_ms = 60_000
    life.expire()
    assert life.group.members.keys() == {"n"}
    second.beat()
    assert second.active == ALL_TASKS
    assert refused(first.beat)[0] is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_is_silent_is_removed() -> None:
    life = ready()
    first, second = Client(life, "m"), Client(life, "n")
    first.join()
    second.join()
    life.ticks_ms = 44_999
    second.beat()
    life.ticks_ms = 45_000
    life.expire()
    assert life.group.members.keys() == {"n"}
    second.beat()
    assert second.active == ALL_TASKS
    life.ticks_ms += 45_000
    life.expire()
    assert (life.group.state.value, life.group.is_empty) == ("Empty", True)
    assert life.group.next_deadline_ms() is None


def test_a_new_group_waits_for_more_members() -> None:
    life = ready(AT_ONCE._replace(initial_rebalance_delay_ms=3000))
    first, second = Client(life, "m"), Client(life, "n")
    delayed = "Assignment delayed due to the configured initial rebalance delay."
    assert first.join().status == ((Status.ASSIGNMENT_DELAYED, delayed),)
    life.ticks_ms = 2000
    assert second.join().status == ((Status.ASSIGNMENT_DELAYED, delayed),)
    assert life.group.state.value == "Assigning"
    assert life.group.next_deadline_ms() == 3000
    life.ticks_ms = 3000
    life.expire()
    assert life.group.assignment_epoch == life.group.epoch
    for client in (first, second):
        assert client.beat().status == ()
    assert first.active | second.active == ALL_TASKS
    assert not first.active & second.active


def test_assignments_keep_their_interval() -> None:
    life = ready(AT_ONCE._replace(assignment_interval_ms=1000))
    first, second = Client(life, "m"), Client(life, "n")
    first.join()
    life.ticks_ms = 999
    delayed = "Assignment delayed due to the configured assignment interval."
    assert second.join().status == ((Status.ASSIGNMENT_DELAYED, delayed),)
    life.ticks_ms = 1000
    assert first.beat().status == ()
    assert life.group.assignment_epoch == 3


def test_standby_tasks_are_on_another_process() -> None:
    life = ready(AT_ONCE._replace(standby_replicas=1))
    clients = [Client(life, "a", "p"), Client(life, "b", "p"), Client(life, "c", "q")]
    for client in clients:
        client.join()
    for _ in range(8):
        for client in clients:
            client.beat()
    assert life.group.state.value == "Stable"
    of_p = clients[0].active | clients[0].standby | clients[1].active | clients[1].standby
    assert {each for each in of_p if each.startswith("1")} == {"1_0", "1_1"}
    of_q = clients[2].active | clients[2].standby
    assert {each for each in of_q if each.startswith("1")} == {"1_0", "1_1"}
    standby = [each for client in clients for each in client.standby]
    assert sorted(standby) == ["1_0", "1_1"]


def test_another_number_of_standby_replicas_begins_an_epoch() -> None:
    life = ready()
    client = Client(life, "m")
    client.join()
    life.group.limits = life.group.limits._replace(standby_replicas=1)
    assert client.beat().epoch == 3
    assert life.group.configs == {"num.standby.replicas": "1"}


def test_other_partitions_begin_an_epoch() -> None:
    life = ready()
    client = Client(life, "m")
    client.join()
    life.topics.counts["lines"] = 3
    life.group.topics_changed()
    answer = client.beat()
    wrong = "Existing topic words has different number of partitions: expected 3, found 2"
    assert answer.status == ((Status.INCORRECTLY_PARTITIONED_TOPICS, wrong),)
    assert client.active == set(), "there are no tasks while topics do not fit"
    assert life.group.state.value == "NotReady"


def test_a_member_with_an_older_topology_is_warned_and_one_with_another_is_refused() -> None:
    life = ready()
    first = Client(life, "m")
    first.join(topology=word_count(epoch=2))
    stale = Client(life, "n").join(topology=word_count(epoch=1))
    detail = "The member's topology epoch 1 is behind the group's topology epoch 2."
    assert stale.status == ((Status.STALE_TOPOLOGY, detail),)
    message = "Topology updates are not supported yet."
    for topology in (word_count(epoch=3), StreamsGroupTopologyValue(epoch=2, subtopologies=[])):
        found = refused(Client(life, "o").join, topology=topology)
        assert found == (ErrorCode.INVALID_REQUEST, message)
    swapped = word_count(epoch=2)
    swapped.subtopologies.reverse()
    assert Client(life, "o").join(topology=swapped).status == ()


def test_wrong_epochs_are_fenced_and_the_previous_one_is_not() -> None:
    life = ready()
    first, second = Client(life, "m"), Client(life, "n")
    first.join()
    second.join()
    first.beat()
    first.beat()
    assert first.epoch == 3
    answer = life.heartbeat(StreamsHeartbeat("m", 2, 0, None, None, -1, None, {}, {}, {}))
    assert answer.epoch == 3
    code, message = refused(life.heartbeat, StreamsHeartbeat("m", 2))
    assert code is ErrorCode.FENCED_MEMBER_EPOCH
    assert message == (
        "The streams group member has a smaller member epoch (2) than the one known by the group "
        "coordinator (3). The member must abandon all its partitions and rejoin."
    )
    lost = StreamsHeartbeat("m", 2, active={"0": frozenset([0, 1])}, standby={}, warmup={})
    assert refused(life.heartbeat, lost)[0] is ErrorCode.FENCED_MEMBER_EPOCH
    code, message = refused(life.heartbeat, StreamsHeartbeat("m", 4))
    assert code is ErrorCode.FENCED_MEMBER_EPOCH
    assert "has a greater member epoch (4)" in (message or "")
    message = "Member x is not a member of group g."
    assert refused(life.heartbeat, StreamsHeartbeat("x", 1)) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        message,
    )


def test_tasks_that_do_not_exist_are_refused() -> None:
    life = ready()
    client = Client(life, "m")
    client.join()
    assert refused(client.beat, active={"7": frozenset([0])}) == (
        ErrorCode.INVALID_REQUEST,
        "Subtopology 7 does not exist in the topology.",
    )
    assert refused(client.beat, standby={"1": frozenset([2])}) == (
        ErrorCode.INVALID_REQUEST,
        "Task 2 for subtopology 1 is invalid. Number of tasks for this subtopology: 2",
    )


def test_a_full_group_refuses_also_members_that_join_again() -> None:
    life = ready(AT_ONCE._replace(size_max=1))
    client = Client(life, "m")
    client.join()
    expected = "The streams group has reached its maximum capacity of 1 members."
    for each in (client, Client(life, "n")):
        assert refused(each.join) == (ErrorCode.GROUP_MAX_SIZE_REACHED, expected)


def test_a_member_that_leaves_gives_its_tasks_to_the_rest() -> None:
    life = ready()
    first, second = Client(life, "m"), Client(life, "n")
    first.join()
    second.join()
    answer = life.heartbeat(StreamsHeartbeat("m", -1))
    assert (answer.epoch, answer.status, answer.assigned) == (-1, (), None)
    second.beat()
    assert second.active == ALL_TASKS


def test_a_shutdown_reaches_every_member_until_the_group_is_empty() -> None:
    life = ready()
    first, second = Client(life, "m"), Client(life, "n")
    first.join()
    second.join()
    first.beat(shuts_down=True)
    detail = (
        "Streams group member m encountered a fatal error and requested a shutdown for the entire "
        "application."
    )
    assert second.beat(shuts_down=True).status == ((Status.SHUTDOWN_APPLICATION, detail),)
    life.heartbeat(StreamsHeartbeat("m", -1))
    assert second.beat().status == ((Status.SHUTDOWN_APPLICATION, detail),)
    life.heartbeat(StreamsHeartbeat("n", -1))
    assert first.join().status == ()


def test_a_stranger_that_leaves_shuts_an_application_down() -> None:
    life = ready()
    member = Client(life, "m")
    member.join()
    code, _ = refused(life.heartbeat, StreamsHeartbeat("x", -1, shuts_down=True))
    assert code is ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.status for each in member.beat().status] == [Status.SHUTDOWN_APPLICATION]


def test_a_shutdown_in_a_new_groups_first_heartbeat_is_not_kept() -> None:
    life = ready()
    (status,) = Client(life, "m").join(shuts_down=True).status
    assert status.status is Status.SHUTDOWN_APPLICATION
    assert Client(life, "n").join().status == ()


def test_members_learn_the_endpoints_of_others() -> None:
    life = ready()
    first, second = Client(life, "m"), Client(life, "n")
    answer = first.join(user_endpoint=Endpoint("one", 1))
    assert answer.endpoint_epoch == 0, "that of a group's first heartbeat is not kept"
    assert answer.endpoints is not None
    assert [each.endpoint.host for each in answer.endpoints] == ["one"]
    assert answer.endpoints[0].active == [("lines", [0, 1]), ("words", [0, 1])]
    answer = second.join(user_endpoint=Endpoint("two", 2))
    assert answer.endpoint_epoch == 1
    assert [each.endpoint.host for each in answer.endpoints or ()] == ["one", "two"]
    assert second.beat(endpoint_epoch=1).endpoints is None
    answer = first.beat(endpoint_epoch=1)
    assert (answer.endpoint_epoch, len(answer.endpoints or ())) == (2, 2)


def test_a_member_of_a_state_of_a_later_version_must_join_again() -> None:
    life = ready()
    client = Client(life, "m")
    client.join()
    member = life.group.members["m"]
    life.group.members["m"] = member._replace(state=MemberState(99), epoch=1)
    client.epoch = 1
    assert refused(client.beat)[0] is ErrorCode.FENCED_MEMBER_EPOCH
    client.owned = NO_TASKS
    assert client.beat().epoch == 2


def test_a_group_is_subscribed_to_the_topics_that_its_tasks_read() -> None:
    life = ready()
    Client(life, "m").join()
    assert life.group.is_subscribed("lines")
    assert life.group.is_subscribed("words")
    assert not life.group.is_subscribed("counts")
    assert life.group.subtopology_of("words") == "1"
    life.heartbeat(StreamsHeartbeat("m", -1))
    assert not life.group.is_subscribed("lines")


def test_tombstones_remove_all_of_a_group() -> None:
    life = ready()
    Client(life, "m").join()
    written = {repr(record.key) for record in life.log}
    removed = {repr(record.key) for record in life.group.tombstones()}
    assert removed == written
    assert all(record.value is None for record in life.group.tombstones())


JOIN: dict[str, Any] = {
    "rebalance_timeout_ms": 1,
    "topology": word_count(),
    "active": {},
    "standby": {},
    "warmup": {},
}
TASKS = {"0": frozenset([0])}


def with_changelog(partitions: int) -> StreamsGroupTopologyValue:
    topic = TopicInfo(name="log", partitions=partitions)
    return StreamsGroupTopologyValue(
        epoch=0,
        subtopologies=[Subtopology(subtopology_id="0", state_changelog_topics=[topic])],
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"instance_id": "i"}, "Static membership is not yet supported."),
        ({"has_task_offsets": True}, "TaskOffsets are not supported yet."),
        ({"has_task_end_offsets": True}, "TaskEndOffsets are not supported yet."),
        ({"warmup": TASKS}, "WarmupTasks are not supported yet."),
        (
            {
                "topology": StreamsGroupTopologyValue(
                    epoch=0, subtopologies=[Subtopology(source_topic_regex=["a"])]
                )
            },
            "Regular expressions for source topics are not supported yet.",
        ),
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"active": TASKS}, "ActiveTasks must be empty when (re-)joining."),
        ({"standby": None}, "StandbyTasks must be empty when (re-)joining."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
        ({"epoch": -2}, "InstanceId can't be null."),
        ({"epoch": -3}, "MemberEpoch is -3, but must be greater than or equal to -2."),
        (
            {"epoch": 1, "topology": None, "active": None},
            "If one task-type is non-null, all must be non-null.",
        ),
        ({"epoch": 1}, "Topology can only be provided when (re-)joining."),
    ],
)
def test_wrong_fields_are_refused_in_kafkas_words(changes: dict[str, Any], message: str) -> None:
    request = StreamsHeartbeat(**{"member_id": "m", "epoch": 0, **JOIN, **changes})
    assert refused(check, "g", request) == (ErrorCode.INVALID_REQUEST, message)


def test_an_empty_group_id_is_refused() -> None:
    request = StreamsHeartbeat("m", 0, **JOIN)
    assert refused(check, "", request) == (ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    check("g", request)


def test_topologies_that_cannot_be_are_refused() -> None:
    request = StreamsHeartbeat("m", 0, **{**JOIN, "topology": with_changelog(3)})
    assert refused(check, "g", request) == (
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
        "Changelog topic log must have an undefined partition count, but it is set to 3.",
    )


def test_a_topology_that_kafkas_code_fails_on_is_refused_whatever_the_group_has() -> None:
    twice = word_count()
    twice.subtopologies.append(twice.subtopologies[0])
    life = ready()
    for _ in range(2):
        for topology in (twice, word_count(epoch=-1)):
            found = refused(Client(life, "n").join, topology=topology)
            assert found[0] is ErrorCode.UNKNOWN_SERVER_ERROR
        Client(life, "m").join()


def test_numbers_of_topics_are_looked_at_in_a_groups_first_topology() -> None:
    outside = word_count(epoch=2)
    outside.subtopologies[0].copartition_groups.append(
        StreamsGroupTopologyValue.CopartitionGroup(source_topics=[1])
    )
    first = refused(Client(ready(), "m").join, topology=outside)
    assert first[0] is ErrorCode.UNKNOWN_SERVER_ERROR
    life = ready()
    Client(life, "m").join(topology=word_count(epoch=2))
    assert refused(Client(life, "n").join, topology=outside)[0] is ErrorCode.INVALID_REQUEST
    outside.epoch = 1
    (status,) = Client(life, "n").join(topology=outside).status
    assert status.status is Status.STALE_TOPOLOGY


def held_by(members: dict[str, StreamsMember]) -> dict[tuple[str, str, int], str]:
    """The member of each active task, and of each task of a process; none has two."""
    found: dict[tuple[str, str, int], str] = {}
    for name, member in members.items():
        for held in (member.assigned, member.revoking):
            for role in held:
                for key, each in role.items():
                    for n in each:
                        place = (member.description.process_id, key, n)
                        assert place not in found, "a process has a task twice"
                        found[place] = name
    active = [
        (key, n)
        for member in members.values()
        for held in (member.assigned, member.revoking)
        for key, each in held.active.items()
        for n in each
    ]
    assert len(active) == len(set(active)), "an active task has two owners"
    return found


def beat_or_join(client: Client) -> None:
    try:
        client.beat()
    except RefusedError as refusal:
        if refusal.code not in {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}:
            raise
        client.join()


@pytest.mark.parametrize("seed", range(12))
def test_random_groups_reach_their_assignment_and_come_back_from_records(seed: int) -> None:
    """Members join, leave, fall silent and lose answers; the coordinator moves."""
    random = Random(f"{seed}:streams")
    life = StreamsLife(AT_ONCE._replace(standby_replicas=seed % 3), lines=5)
    clients: dict[str, Client] = {}
    for step in range(150):
        life.ticks_ms += random.randrange(2_000)
        life.expire()
        names = sorted(life.group.members)
        for gone in clients.keys() - life.group.members.keys():
            del clients[gone]
        action = random.randrange(10)
        if action == 0 and len(names) < 6:
            name = f"m{step}"
            clients[name] = Client(life, name, f"p{random.randrange(4)}")
            clients[name].join()
        elif action == 1 and names:
            life.heartbeat(StreamsHeartbeat(clients.pop(random.choice(names)).member_id, -1))
        elif action == 2:
            life.group = life.loaded()
        elif action == 3 and names:  # the answer is lost
            client = clients[random.choice(names)]
            epoch, owned = client.epoch, client.owned
            beat_or_join(client)
            client.epoch, client.owned = epoch, owned
        elif names:
            beat_or_join(clients[random.choice(names)])
        if names and life.last.missing_topics:
            life.create()
        held_by(life.group.members)
    if not clients:
        clients["last"] = Client(life, "last")
        clients["last"].join()
    for _ in range(50):  # a member that missed what to give back is removed after its timeout
        life.ticks_ms += 2_000
        life.expire()
        for client in clients.values():
            beat_or_join(client)
        if life.last.missing_topics:
            life.create()
        held_by(life.group.members)
    assert life.group.state.value == "Stable"
    assigned = [each.assigned.active for each in life.group.members.values()]
    owners = [f"{key}_{n}" for each in assigned for key in each for n in each[key]]
    assert sorted(owners) == sorted(f"{key}_{n}" for key in "01" for n in range(5))
    loaded = life.loaded()
    for name in ("epoch", "members", "targets", "topology", "configs", "assignment_epoch"):
        assert getattr(loaded, name) == getattr(life.group, name)
    assert loaded.state is life.group.state
