"""Cases: heartbeats of streams groups (KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.cases_consumer_groups import join_fields as consumer_fields
from compat.conformance.cases_consumer_groups import new_topic
from compat.conformance.cases_group_offsets import of_topic, part
from compat.conformance.cases_groups import leave as classic_leave
from compat.conformance.cases_groups import stable as stable_classic
from compat.conformance.registry import case

if TYPE_CHECKING:
    from compat.conformance.session import Session

HEARTBEAT, DESCRIBE = "StreamsGroupHeartbeat", "StreamsGroupDescribe"
GROUP_RESOURCE, SET = 32, 0
JOINING, LEAVING, LEAVING_STATIC = 0, -1, -2
ONE, TWO, THREE = "member-of-one", "member-of-two", "member-of-three"
AT_ONCE = {"streams.initial.rebalance.delay.ms": "0", "streams.assignment.interval.ms": "0"}


def configure(s: Session, **changes: str) -> None:
    """Settings of the group. Create a topic after it: then the coordinator knows both."""
    configs = [
        {"name": name, "config_operation": SET, "value": value}
        for name, value in {**AT_ONCE, **changes}.items()
    ]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": s.name, "configs": configs}
    answer = s.quietly("IncrementalAlterConfigs", 1, resources=[resource])
    assert answer["responses"][0]["error_code"] == 0, answer


def prepare(s: Session, **changes: str) -> None:
    """A loaded coordinator, and a group that is assigned its tasks at once."""
    s.coordinator()
    configure(s, **changes)


def internal(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "partitions": 0, "replication_factor": 0, "topic_configs": [], **changes}


def subtopology(name: str, **changes: Any) -> dict[str, Any]:
    fields = (
        "source_topics",
        "source_topic_regex",
        "state_changelog_topics",
        "repartition_sink_topics",
        "repartition_source_topics",
        "copartition_groups",
    )
    return {"subtopology_id": name, **{field: [] for field in fields}, **changes}


def word_count(lines: str, words: str, counts: str, epoch: int = 0) -> dict[str, Any]:
    """Lines are split into words, which are counted: one subtopology writes to the other."""
    return {
        "epoch": epoch,
        "subtopologies": [
            subtopology("0", source_topics=[lines], repartition_sink_topics=[words]),
            subtopology(
                "1",
                repartition_source_topics=[internal(words)],
                state_changelog_topics=[internal(counts)],
            ),
        ],
    }


def one_of(*subtopologies: dict[str, Any], epoch: int = 0) -> dict[str, Any]:
    return {"epoch": epoch, "subtopologies": list(subtopologies)}


def simple(*topics: str, epoch: int = 0) -> dict[str, Any]:
    """One subtopology without state."""
    return one_of(subtopology("0", source_topics=list(topics)), epoch=epoch)


def known_topics(s: Session, *counts: int) -> list[str]:
    """New topics, which the coordinator of the group knows."""
    return [*[s.topic(count) for count in counts[:-1]], new_topic(s, counts[-1])]


def ready(s: Session, partitions: int = 2, **changes: str) -> dict[str, Any]:
    """The topology of a word count whose topics are all there."""
    prepare(s, **changes)
    return word_count(*known_topics(s, partitions, partitions, partitions))


def tasks(**partitions: list[int]) -> list[dict[str, Any]]:
    """Tasks of subtopologies; `_0` is that of the name 0."""
    return [
        {"subtopology_id": name.removeprefix("_"), "partitions": each}
        for name, each in partitions.items()
    ]


def owning(active: Any = (), standby: Any = (), warmup: Any = ()) -> dict[str, Any]:
    return {
        "active_tasks": list(active),
        "standby_tasks": list(standby),
        "warmup_tasks": list(warmup),
    }


def beat_fields(s: Session, member: str, epoch: int, **changes: Any) -> dict[str, Any]:
    return {"group_id": s.name, "member_id": member, "member_epoch": epoch, **changes}


def beat(s: Session, member: str, epoch: int, **changes: Any) -> dict[str, Any]:
    return s.ask(HEARTBEAT, 0, **beat_fields(s, member, epoch, **changes))


def join_fields(s: Session, member: str, topology: Any, **changes: Any) -> dict[str, Any]:
    fields = beat_fields(s, member, JOINING, rebalance_timeout_ms=60_000, topology=topology)
    return {**fields, **owning(), "process_id": f"process of {member}", **changes}


def join(s: Session, member: str, topology: Any, **changes: Any) -> dict[str, Any]:
    return s.ask(HEARTBEAT, 0, **join_fields(s, member, topology, **changes))


def leave(s: Session, *members: str) -> None:
    for member in members:
        s.quietly(HEARTBEAT, 0, **beat_fields(s, member, LEAVING))


def described(s: Session) -> None:
    s.ask(DESCRIBE, 0, group_ids=[s.name])


def joined(s: Session, partitions: int = 2, **changes: str) -> dict[str, Any]:
    """A group of one member with all tasks, without a record of it; returns its topology."""
    topology = ready(s, partitions, **changes)
    answer = s.quietly(HEARTBEAT, 0, **join_fields(s, ONE, topology))
    assert (answer["error_code"], answer["member_epoch"]) == (0, 2), answer
    return topology


def lines_of(topology: dict[str, Any]) -> str:
    """The topic that a word count reads."""
    name: str = topology["subtopologies"][0]["source_topics"][0]
    return name


def is_not_created(answer: dict[str, Any]) -> bool:
    """Whether the coordinator could not create internal topics."""
    return any("Creation failed" in each["status_detail"] for each in answer["status"])


def commit_fields(
    s: Session, version: int, topic: str, member: str, epoch: int, numbers: tuple[int, ...]
) -> dict[str, Any]:
    parts = [part(10 + number, number) for number in numbers or (0,)]
    return {
        "group_id": s.name,
        "generation_id_or_member_epoch": epoch,
        "member_id": member,
        "topics": [of_topic(s, version, topic, *parts)],
    }


def commit(s: Session, topic: str, member: str, epoch: int, *numbers: int) -> None:
    answer = s.quietly("OffsetCommit", 9, **commit_fields(s, 9, topic, member, epoch, numbers))
    assert not answer["topics"][0]["partitions"][0]["error_code"], answer


# ---- StreamsGroupHeartbeat -----------------------------------------------------------------------


@case(HEARTBEAT)
def life_of_one(s: Session, _version: int) -> None:
    topology = ready(s)
    mine = owning(tasks(_0=[0, 1], _1=[0, 1]))
    join(s, ONE, topology)
    described(s)
    beat(s, ONE, 2)
    beat(s, ONE, 2, **mine)
    beat(s, ONE, 2, **mine, rebalance_timeout_ms=60_000, process_id=f"process of {ONE}")
    join(s, ONE, topology)
    described(s)
    beat(s, ONE, LEAVING)
    beat(s, ONE, LEAVING)
    beat(s, ONE, 2)
    described(s)
    join(s, TWO, topology)
    described(s)


@case(HEARTBEAT)
def two_share(s: Session, _version: int) -> None:
    """One gives tasks back before two gets them; one goes on with what two leaves."""
    topology = joined(s)
    join(s, TWO, topology)
    described(s)
    beat(s, TWO, 3)
    beat(s, ONE, 2, **owning(tasks(_0=[0, 1], _1=[0, 1])))
    described(s)
    beat(s, TWO, 3)
    described(s)
    for kept in (tasks(_0=[0, 1], _1=[0]), tasks(_0=[0], _1=[0]), tasks(_0=[1], _1=[0])):
        beat(s, ONE, 2, **owning(kept))
    for kept in (tasks(_0=[0], _1=[1]), tasks(_0=[1], _1=[1])):
        beat(s, ONE, 2, **owning(kept))
    described(s)
    beat(s, TWO, 3)
    described(s)
    beat(s, TWO, LEAVING)
    described(s)
    beat(s, ONE, 3)
    described(s)


@case(HEARTBEAT)
def standby_tasks(s: Session, _version: int) -> None:
    topology = ready(s, 3, **{"streams.num.standby.replicas": "1"})
    join(s, ONE, topology)
    described(s)
    join(s, TWO, topology)
    described(s)
    join(s, THREE, topology, process_id=f"process of {ONE}")
    described(s)
    beat(s, ONE, 2, **owning())
    described(s)
    for member in (TWO, THREE, ONE, TWO, THREE):
        beat(s, member, 3 if member == TWO else 4)
    beat(s, TWO, LEAVING)
    beat(s, THREE, 4)
    beat(s, ONE, 4)
    described(s)


@case(HEARTBEAT)
def members_of_one_process(s: Session, _version: int) -> None:
    """What a member says of itself, and what it changes of that."""
    topology = ready(s, 4)
    tags = [{"key": "zone", "value": "a"}, {"key": "cluster", "value": "b"}]
    for member in (ONE, TWO, THREE):
        join(s, member, topology, process_id="process", rack_id="rack", client_tags=tags)
    described(s)
    beat(s, TWO, 3, rack_id="other")
    beat(s, THREE, 4, process_id="other", client_tags=[])
    beat(s, ONE, 2, rebalance_timeout_ms=1000, **owning())
    described(s)


@case(HEARTBEAT)
def wrong_fields(s: Session, _version: int) -> None:
    topology = ready(s)
    some = tasks(_0=[0])
    join(s, ONE, topology, group_id="")
    join(s, "", topology)
    join(s, ONE, topology, rack_id="")
    join(s, ONE, topology, rack_id=" ")
    join(s, ONE, topology, rebalance_timeout_ms=-1)
    join(s, ONE, topology, active_tasks=some)
    join(s, ONE, topology, standby_tasks=some)
    join(s, ONE, topology, active_tasks=None)
    join(s, ONE, topology, standby_tasks=None)
    join(s, ONE, topology, warmup_tasks=None)
    join(s, ONE, None)
    beat(s, ONE, -3)
    beat(s, ONE, LEAVING_STATIC)
    beat(s, "", LEAVING)
    beat(s, "", 2)
    beat(s, ONE, 2, rack_id="")
    beat(s, ONE, 2, active_tasks=some)
    beat(s, ONE, 2, standby_tasks=[], warmup_tasks=[])
    beat(s, ONE, 2, topology=topology)
    beat(s, ONE, LEAVING, topology=topology)
    s.ask("DescribeGroups", 6, groups=[s.name])


@case(HEARTBEAT)
def odd_values(s: Session, _version: int) -> None:
    """Such as no client sends, and Kafka takes."""
    topology = ready(s)
    join(s, ONE, topology, rebalance_timeout_ms=0, process_id=None)
    described(s)
    beat(s, ONE, LEAVING)
    join(s, TWO, topology, rebalance_timeout_ms=-5, process_id="")
    described(s)
    beat(s, TWO, LEAVING)
    join(s, THREE, topology, user_endpoint={"host": "", "port": 0}, client_tags=[])
    described(s)


@case(HEARTBEAT)
def not_supported(s: Session, _version: int) -> None:
    """Static members, warm-up tasks, offsets of tasks, patterns of topics."""
    topology = ready(s)
    offsets = [{"subtopology_id": "0", "partition": 0, "offset": 7}]
    join(s, ONE, topology, instance_id="fixed")
    join(s, ONE, topology, instance_id="")
    join(s, ONE, topology, task_offsets=offsets)
    join(s, ONE, topology, task_offsets=[])
    join(s, ONE, topology, task_end_offsets=offsets)
    join(s, ONE, topology, warmup_tasks=tasks(_0=[0]))
    join(s, ONE, one_of(subtopology("0", source_topic_regex=["a.*"])))
    beat(s, ONE, LEAVING_STATIC, instance_id="fixed")
    s.quietly(HEARTBEAT, 0, **join_fields(s, ONE, topology))
    beat(s, ONE, 2, task_offsets=offsets)
    beat(s, ONE, 2, **owning(warmup=tasks(_0=[0])))
    described(s)


@case(HEARTBEAT)
def unknown_members(s: Session, _version: int) -> None:
    topology = ready(s)
    for epoch in (2, LEAVING):
        beat(s, ONE, epoch)
    s.quietly(HEARTBEAT, 0, **join_fields(s, ONE, topology))
    for epoch in (2, LEAVING):
        beat(s, "nobody", epoch)
    described(s)


@case(HEARTBEAT)
def epochs(s: Session, _version: int) -> None:
    topology = joined(s)
    beat(s, ONE, 1)
    beat(s, ONE, 3)
    join(s, TWO, topology)
    beat(s, ONE, 2, **owning(tasks(_0=[0], _1=[0])))
    beat(s, ONE, 2)
    beat(s, ONE, 2, **owning(tasks(_0=[0, 1])))
    beat(s, ONE, 2, **owning(tasks(_0=[0], _1=[0])))
    beat(s, ONE, 2, **owning(tasks(_0=[1], _1=[1])))
    beat(s, ONE, 2, **owning(standby=tasks(_1=[0])))
    beat(s, ONE, 2, **owning())
    beat(s, ONE, 4)
    beat(s, TWO, 2)
    beat(s, TWO, 3)
    described(s)


@case(HEARTBEAT)
def topologies(s: Session, _version: int) -> None:
    """Another one than the group's is refused, an older one is warned of."""
    prepare(s)
    lines, words, counts, other = known_topics(s, 2, 2, 2, 2)
    mine = word_count(lines, words, counts, epoch=3)
    join(s, ONE, mine)
    join(s, TWO, {**mine, "subtopologies": mine["subtopologies"][::-1]})
    join(s, THREE, word_count(lines, words, counts, epoch=4))
    join(s, THREE, word_count(other, words, counts, epoch=3))
    join(s, THREE, word_count(other, words, counts, epoch=2))
    beat(s, THREE, 4)
    described(s)
    join(s, THREE, mine)
    beat(s, ONE, LEAVING)
    beat(s, TWO, LEAVING)
    beat(s, THREE, LEAVING)
    join(s, ONE, word_count(other, words, counts, epoch=4))
    described(s)


@case(HEARTBEAT)
def wrong_topologies(s: Session, _version: int) -> None:
    prepare(s)
    topic = new_topic(s)
    for name, changes in (
        ("changelog", {"state_changelog_topics": [internal(f"{s.name}.c", partitions=2)]}),
        ("internal", {"source_topics": ["__consumer_offsets"]}),
        ("both", {"source_topics": ["__consumer_offsets", "no such topic!"]}),
        ("name", {"source_topics": ["no such topic!", ""]}),
        ("sink", {"repartition_sink_topics": ["."]}),
        ("source", {"repartition_source_topics": [internal("..")]}),
        ("state", {"state_changelog_topics": [internal("a" * 250)]}),
    ):
        join(s, ONE, one_of(subtopology(name, **{"source_topics": [topic], **changes})))
    s.ask("DescribeGroups", 6, groups=[s.name])


@case(HEARTBEAT)
def empty_topologies(s: Session, _version: int) -> None:
    prepare(s)
    new_topic(s)
    join(s, ONE, one_of())
    described(s)
    beat(s, ONE, 2)
    beat(s, ONE, LEAVING)
    s.quietly("DeleteGroups", 2, groups_names=[s.name])
    join(s, ONE, one_of(subtopology("0")))
    described(s)


@case(HEARTBEAT)
def missing_source_topics(s: Session, _version: int) -> None:
    prepare(s)
    topic = new_topic(s)
    answer = join(s, ONE, simple(topic, f"{s.name}.none"))
    described(s)
    beat(s, ONE, answer["member_epoch"])
    beat(s, ONE, answer["member_epoch"], **owning(tasks(_0=[0], none=[7])))
    join(s, TWO, simple(topic, f"{s.name}.none"))
    described(s)


@case(HEARTBEAT)
def a_source_topic_comes(s: Session, _version: int) -> None:
    prepare(s)
    new_topic(s)
    join(s, ONE, simple(f"{s.name}.2"))
    beat(s, ONE, 2)
    assert s.topic(3) == f"{s.name}.2"
    s.ask_until(
        HEARTBEAT, 0, lambda answer: answer["active_tasks"], **beat_fields(s, ONE, 2, **owning())
    )
    described(s)


@case(HEARTBEAT)
def internal_topics_are_created(s: Session, _version: int) -> None:
    """By the coordinator, as the topology says."""
    prepare(s)
    lines = new_topic(s, 3)
    compact = [{"key": "cleanup.policy", "value": "compact"}]
    words = internal(f"{s.name}.words", replication_factor=1)
    more = internal(f"{s.name}.more", partitions=5)
    counts = internal(f"{s.name}.counts", topic_configs=compact)
    sinks = [words["name"], more["name"]]
    topology = one_of(
        subtopology("0", source_topics=[lines], repartition_sink_topics=sinks),
        subtopology("1", repartition_source_topics=[words], state_changelog_topics=[counts]),
        subtopology("2", repartition_source_topics=[more]),
    )
    join(s, ONE, topology)
    s.ask_until(
        HEARTBEAT, 0, lambda answer: answer["active_tasks"], **beat_fields(s, ONE, 2, **owning())
    )
    described(s)
    names = [topic["name"] for topic in (words, more, counts)]
    for name, count in zip(names, (3, 5, 3), strict=True):
        topic = s.await_topic(name, count)
        partitions = [
            (each["partition_index"], each["replica_nodes"]) for each in topic["partitions"]
        ]
        s.record("Metadata", {"partitions": sorted(partitions)})
        resource = {"resource_type": 2, "resource_name": name, "configuration_keys": None}
        answer = s.quietly("DescribeConfigs", 4, resources=[resource])
        own = [each for each in answer["results"][0]["configs"] if each["config_source"] == 1]
        s.record("DescribeConfigs", {each["name"]: each["value"] for each in own})


@case(HEARTBEAT)
def internal_topics_are_not_created(s: Session, _version: int) -> None:
    """The next heartbeats say why."""
    prepare(s)
    lines = new_topic(s)
    counts = internal(f"{s.name}.counts", replication_factor=7)
    topology = one_of(
        subtopology("0", source_topics=[lines], state_changelog_topics=[counts]),
    )
    join(s, ONE, topology)
    s.ask_until(HEARTBEAT, 0, is_not_created, **beat_fields(s, ONE, 2, **owning()))
    described(s)


@case(HEARTBEAT)
def internal_topics_with_wrong_settings(s: Session, _version: int) -> None:
    prepare(s)
    lines = new_topic(s)
    wrong = [{"key": "retention.ms", "value": "much"}]
    counts = internal(f"{s.name}.counts", topic_configs=wrong)
    topology = one_of(
        subtopology("0", source_topics=[lines], state_changelog_topics=[counts]),
    )
    join(s, ONE, topology)
    s.ask_until(HEARTBEAT, 0, is_not_created, **beat_fields(s, ONE, 2, **owning()))


@case(HEARTBEAT)
def partitions_that_do_not_fit(s: Session, _version: int) -> None:
    prepare(s)
    lines, words, counts = known_topics(s, 2, 3, 2)
    join(s, ONE, word_count(lines, words, counts))
    described(s)
    beat(s, ONE, 2, **owning(tasks(_0=[5])))


@case(HEARTBEAT)
def topics_that_are_joined(s: Session, _version: int) -> None:
    """Sources of a join have as many partitions."""
    prepare(s)
    two, three, also_two = known_topics(s, 2, 3, 2)
    together = [
        {"source_topics": [0, 1], "source_topic_regex": [], "repartition_source_topics": []}
    ]

    def both(*topics: str) -> dict[str, Any]:
        fields = {"source_topics": list(topics), "copartition_groups": together}
        return one_of(subtopology("0", **fields))

    join(s, ONE, both(two, three))
    described(s)
    beat(s, ONE, LEAVING)
    s.quietly("DeleteGroups", 2, groups_names=[s.name])
    join(s, ONE, both(two, also_two))
    described(s)


@case(HEARTBEAT)
def tasks_that_are_none(s: Session, _version: int) -> None:
    joined(s)
    for active in (tasks(none=[0]), tasks(_0=[2]), tasks(_0=[-1]), tasks(_1=[0, 7])):
        beat(s, ONE, 2, **owning(active))
    beat(s, ONE, 2, **owning(standby=tasks(_0=[2])))
    beat(s, ONE, 2, **owning(tasks(_0=[0, 0], _1=[0])))
    described(s)


@case(HEARTBEAT)
def tasks_that_it_never_had(s: Session, _version: int) -> None:
    topology = joined(s)
    join(s, TWO, topology)
    beat(s, TWO, 3, **owning(tasks(_0=[0])))
    beat(s, TWO, 3, **owning(standby=tasks(_1=[0])))
    described(s)


@case(HEARTBEAT)
def endpoints(s: Session, _version: int) -> None:
    """Members with an address tell the others which partitions they answer for."""
    topology = ready(s, 2, **{"streams.num.standby.replicas": "1"})
    one, two = ({"user_endpoint": {"host": "h", "port": port}} for port in (1001, 1002))
    join(s, ONE, topology, **one)
    beat(s, ONE, 2, endpoint_information_epoch=0)
    beat(s, ONE, 2, endpoint_information_epoch=1)
    join(s, TWO, topology, **two)
    described(s)
    beat(s, ONE, 2, endpoint_information_epoch=1, **owning())
    beat(s, TWO, 3, endpoint_information_epoch=0)
    beat(s, TWO, 3, endpoint_information_epoch=3)
    join(s, THREE, topology)
    beat(s, ONE, 3, endpoint_information_epoch=2, **owning())
    beat(s, ONE, LEAVING)
    beat(s, TWO, 3, endpoint_information_epoch=-1, **owning())
    described(s)


@case(HEARTBEAT)
def another_address(s: Session, _version: int) -> None:
    topology = ready(s)
    join(s, ONE, topology)
    beat(s, ONE, 2, user_endpoint={"host": "h", "port": 1001})
    beat(s, ONE, 3, user_endpoint={"host": "h", "port": 1001})
    beat(s, ONE, 3, user_endpoint={"host": "h", "port": 65535})
    described(s)


@case(HEARTBEAT)
def the_application_shuts_down(s: Session, _version: int) -> None:
    topology = joined(s)
    join(s, TWO, topology)
    beat(s, ONE, 2, shutdown_application=True)
    beat(s, TWO, 3)
    beat(s, TWO, 3, shutdown_application=True)
    join(s, THREE, topology)
    beat(s, ONE, LEAVING, shutdown_application=True)
    beat(s, TWO, 3)
    leave(s, TWO, THREE)
    described(s)
    join(s, ONE, topology)


@case(HEARTBEAT)
def the_last_member_shuts_down(s: Session, _version: int) -> None:
    topology = joined(s)
    join(s, TWO, topology)
    beat(s, TWO, LEAVING, shutdown_application=True)
    beat(s, ONE, 2)


@case(HEARTBEAT)
def settings_of_the_group(s: Session, _version: int) -> None:
    topology = joined(s)
    configure(
        s,
        **{
            "streams.heartbeat.interval.ms": "6000",
            "streams.session.timeout.ms": "50000",
            "streams.num.standby.replicas": "1",
        },
    )
    s.ask_until(
        HEARTBEAT,
        0,
        lambda answer: answer["heartbeat_interval_ms"] == 6000,
        **beat_fields(s, ONE, 2),
    )
    join(s, TWO, topology)
    described(s)


@case(HEARTBEAT)
def the_first_assignment_waits(s: Session, _version: int) -> None:
    topology = ready(s, **{"streams.initial.rebalance.delay.ms": "900000"})
    join(s, ONE, topology)
    beat(s, ONE, 1)
    beat(s, ONE, 0)
    join(s, TWO, topology)
    described(s)
    beat(s, TWO, LEAVING)
    described(s)


@case(HEARTBEAT)
def the_next_assignment_waits(s: Session, _version: int) -> None:
    topology = joined(s, **{"streams.assignment.interval.ms": "15000"})
    join(s, TWO, topology)
    beat(s, ONE, 2)
    described(s)
    beat(s, TWO, LEAVING)


@case(HEARTBEAT)
def to_groups_of_other_types(s: Session, _version: int) -> None:
    topology = ready(s)
    member = stable_classic(s)
    join(s, ONE, topology)
    beat(s, ONE, 2)
    beat(s, ONE, LEAVING)
    classic_leave(s, 3, member["member_id"])
    join(s, ONE, topology)
    described(s)


@case(HEARTBEAT)
def to_consumers(s: Session, _version: int) -> None:
    topology = ready(s)
    fields = consumer_fields(s, ONE, lines_of(topology))
    s.quietly("ConsumerGroupHeartbeat", 1, **fields)
    join(s, ONE, topology)
    beat(s, ONE, 2)
    s.quietly("ConsumerGroupHeartbeat", 1, group_id=s.name, member_id=ONE, member_epoch=LEAVING)
    join(s, ONE, topology)
    s.ask("DescribeGroups", 6, groups=[s.name])


@case(HEARTBEAT)
def to_offsets_alone(s: Session, _version: int) -> None:
    """A group that has committed offsets, and no members, may become one of streams."""
    topology = ready(s)
    commit(s, lines_of(topology), "", -1)
    join(s, ONE, topology)
    s.ask("OffsetFetch", 8, groups=[{"group_id": s.name, "topics": None}])
