"""Walks of one consumer or streams group and its offsets.

No member changes its instance id (docs/limits.md). Without members no commit has metadata that is
too large, which makes a group on Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.walks.walk import UNKNOWN_ID, Walk

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from compat.conformance.session import Session

STEPS = 60
INSTANCES = {"a": None, "b": None, "c": "i"}
PUT_OUT = (25, 69, 110)  # UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, FENCED_MEMBER_EPOCH
AT_ONCE = {
    "consumer_assignment_interval_ms": "0",
    "streams_assignment_interval_ms": "0",
    "streams_initial_rebalance_delay_ms": "0",
}


class Group(Walk):
    """One group of a walk, as its broker has answered so far."""

    def __init__(self, session: Session, rng: random.Random) -> None:
        super().__init__(session, rng)
        self.topics, self.ids = self.topics_with_ids(3, 4)
        session.coordinator()
        self.configure(**AT_ONCE)
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Any] = {}

    def epoch_of(self, member: str) -> int:
        """Mostly the member's own epoch; it joins if it has none."""
        own = self.epochs.get(member, 0)
        wrong = ((6, own - 1), (3, own + 1), (6, 0), (6, -1), (3, -2), (1, -3), (1, 100))
        return int(self.any_of((74, own), *wrong))

    def answered(self, member: str, answer: dict[str, Any], owned: Any) -> None:
        """Note a member's epoch, and what it owns if that has changed."""
        if answer["error_code"] in PUT_OUT or answer.get("member_epoch", 0) < 0:
            self.epochs[member] = 0
            self.owned.pop(member, None)
        elif not answer["error_code"]:
            self.epochs[member] = answer["member_epoch"]
            if owned is not None:
                self.owned[member] = owned

    # ---- requests ------------------------------------------------------------------------------

    def beat(self) -> None:
        """ConsumerGroupHeartbeat of one of three members."""
        member = self.rng.choice(tuple(INSTANCES))
        epoch = self.epoch_of(member)
        first, both = [self.topics[0]], self.topics
        names = self.any_of((40, None), (25, first), (25, both), (5, ["none"]), (3, []))
        owned = self.owned.get(member, [])
        bogus = [{"topic_id": self.ids[0], "partitions": [0, 7]}]
        unknown = [{"topic_id": UNKNOWN_ID, "partitions": [0]}]
        fields = {
            "rebalance_timeout_ms": self.any_of((60, -1), (40, 60_000)),
            "subscribed_topic_names": names,
            "topic_partitions": self.any_of(
                (40, None), (40, owned), (15, []), (2, bogus), (2, unknown)
            ),
        }
        if epoch == 0 and self.rng.random() < 0.9:
            fields |= {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
            fields["subscribed_topic_names"] = names or both
        answer = self.session.ask(
            "ConsumerGroupHeartbeat",
            self.any_of((4, 1), (1, 0)),
            group_id=self.session.name,
            member_id=member,
            member_epoch=epoch,
            instance_id=INSTANCES[member],
            rack_id=self.any_of((90, None), (8, "r"), (1, "")),
            server_assignor="range",
            **fields,
        )
        assignment = answer["assignment"]
        self.answered(member, answer, assignment and assignment["topic_partitions"])

    def streams(self) -> None:
        """StreamsGroupHeartbeat of one of three members of an application."""
        member = self.rng.choice(tuple(INSTANCES))
        epoch = self.epoch_of(member)
        one = {"subtopology_id": "0", "source_topics": self.topics[:1]}
        two = {"subtopology_id": "1", "source_topics": self.topics[1:]}
        outside = one | {"copartition_groups": [{"source_topics": [3]}]}
        kinds = ((60, [one]), (20, [one, two]), (3, [one, one]), (3, [outside]), (3, []))
        topology = None
        if epoch == 0 or self.rng.random() < 0.03:
            number = self.any_of((85, 0), (8, 1), (2, -1))
            topology = {"epoch": number, "subtopologies": self.any_of(*kinds)}
        tasks = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        if epoch:
            tasks = self.any_of((50, dict.fromkeys(tasks)), (50, self.owned.get(member, tasks)))
        answer = self.session.ask(
            "StreamsGroupHeartbeat",
            0,
            group_id=self.session.name,
            member_id=member,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if epoch == 0 else -1,
            topology=topology,
            process_id=self.any_of((80, "of " + member), (20, "shared")),
            client_tags=[] if epoch == 0 else None,
            shutdown_application=self.chance(2),
            **tasks,
        )
        has_tasks = answer["active_tasks"] is not None
        self.answered(member, answer, {kind: answer[kind] for kind in tasks} if has_tasks else None)

    def offsets(self) -> None:
        """OffsetCommit or OffsetFetch, with a member or without one."""
        member = self.any_of((80, self.rng.choice(tuple(INSTANCES))), (20, ""))
        own = self.epochs.get(member) or -1  # without an epoch, outside the group
        epoch = self.any_of((80, own), (10, own - 1), (5, own + 1), (5, -1))
        topic = {"topic_id": self.any_of((90, self.ids[0]), (10, UNKNOWN_ID))}
        index = self.any_of((90, 0), (10, 9))
        if self.rng.random() < 0.5:
            place = {"partition_index": index, "committed_offset": self.rng.randrange(9)}
            metadata = self.any_of((90, "m"), (10, "m" * 5000))
            place["committed_metadata"] = metadata if any(self.epochs.values()) else "m"
            self.session.ask(
                "OffsetCommit",
                10,
                group_id=self.session.name,
                generation_id_or_member_epoch=epoch,
                member_id=member,
                topics=[topic | {"partitions": [place]}],
            )
        else:
            topics = self.any_of((50, None), (50, [topic | {"partition_indexes": [index]}]))
            asked = {"group_id": self.session.name, "topics": topics}
            if member:
                asked |= {"member_id": member, "member_epoch": epoch}
            self.session.ask("OffsetFetch", 10, groups=[asked], require_stable=False)

    def describe(self) -> None:
        """What an administrator asks; the group may be of another type."""
        api, version, field = self.rng.choice(
            [
                ("ConsumerGroupDescribe", 1, "group_ids"),
                ("StreamsGroupDescribe", 0, "group_ids"),
                ("ShareGroupDescribe", 1, "group_ids"),
                ("DescribeGroups", 6, "groups"),
                ("DeleteGroups", 2, "groups_names"),
            ]
        )
        self.session.ask(api, version, **{field: [self.session.name]})


def _walk_of(beat: Callable[[Group], None]) -> Callable[[Session, random.Random], None]:
    def walk(session: Session, rng: random.Random) -> None:
        group = Group(session, rng)
        for _ in range(STEPS):
            group.any_of((70, beat), (15, Group.offsets), (15, Group.describe))(group)

    return walk


KINDS = {"consumer": _walk_of(Group.beat), "streams": _walk_of(Group.streams)}
