"""Walks of one classic group: dynamic and static members, and such beside consumer members.

JoinGroup and SyncGroup may wait for others, so each member has a connection of its own, and each
step ends with a description of the group, which tells what must have been answered. A member that
waits sends nothing else by JoinGroup or SyncGroup: Kafka forgets the answer it owes.

Ids of members are random, and Kafka's choices follow their order: each member subscribes to a topic
of its own, and no leader leaves two others, one of which would lead.

The last consumer member leaves a stable group (docs/limits.md), and nobody joins a group without
members by an id it has not: Kafka forgets a consumer group then.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from compat.conformance.walks.walk import Walk

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from compat.conformance.session import Session

STEPS = 60
INSTANCES = {"a": None, "b": None, "c": "i"}
NEW_MEMBERS = ("x", "y")
LONG_MS = 300_000
ANSWERS_WITHIN_S = 0.05
SETTLES_WITHIN_S = 1.0
MAY_SETTLE_WITHIN_S = 0.1  # with a member that has an id and has not joined: at a first rebalance
MEMBER_ID_REQUIRED = 79
LOST = (25, 82)  # UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID
PUT_OUT = (25, 69, 110)  # UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, FENCED_MEMBER_EPOCH
JOIN, SYNC = "JoinGroup", "SyncGroup"


class Waiting(NamedTuple):
    """A request that is not answered yet."""

    api: str
    version: int
    sent: tuple[str, int]
    member_id: str


class Member:
    """A member of the classic protocol, as its broker has answered so far."""

    def __init__(self, name: str, topic: str) -> None:
        self.name, self.topic, self.instance = name, topic, INSTANCES[name]
        self.member_id, self.generation = "", -1
        self.others: list[str] = []
        self.waiting: Waiting | None = None


class Classic(Walk):
    """One group of a walk."""

    def __init__(self, session: Session, rng: random.Random) -> None:
        super().__init__(session, rng)
        names = (*INSTANCES, *NEW_MEMBERS)
        topics, ids = self.topics_with_ids(*(2 for _ in names))
        self.topics = dict(zip(names, topics, strict=True))
        self.ids = dict(zip(names, ids, strict=True))
        session.coordinator()
        self.configure(consumer_assignment_interval_ms="0")
        self.members = [Member(name, self.topics[name]) for name in INSTANCES]
        self.epochs = dict.fromkeys(NEW_MEMBERS, 0)
        self.owned: dict[str, list[Any]] = {}
        self.given: set[str] = set()
        self.leader, self.size = "", 0

    # ---- answers that wait ---------------------------------------------------------------------

    def _send(self, member: Member, api: str, version: int, **fields: Any) -> None:
        sent = self.session.send(
            api, version, connection=member.name, group_id=self.session.name, **fields
        )
        member.waiting = Waiting(api, version, sent, fields["member_id"])
        self.given.discard(fields["member_id"])
        self._answered_within(member, ANSWERS_WITHIN_S)

    def _answered_within(self, member: Member, wait_s: float) -> bool:
        return self.session.connection(member.name).has_answer(wait_s)

    def settle(self) -> None:
        """Take the answers that have come, and record what the group is now."""
        while True:
            group = self._described()
            due = [one for one in self.members if one.waiting and self._is_due(one, group)]
            for one in due:
                self._take(one)
            if not due:
                break
        self.size = len(group["members"])
        if group["group_state"] == "Dead":  # of the other protocol, if any
            self.leader = ""
        self.session.record("DescribeGroups", group)

    def _described(self) -> dict[str, Any]:
        """A description that is not about to change."""
        end = time.monotonic() + (MAY_SETTLE_WITHIN_S if self.given else SETTLES_WITHIN_S)
        while True:
            answer = self.session.quietly("DescribeGroups", 6, groups=[self.session.name])
            group: dict[str, Any] = answer["groups"][0]
            if not self._is_moving(group) or time.monotonic() > end:
                return group
            time.sleep(0.005)

    def _is_moving(self, group: dict[str, Any]) -> bool:
        """All have joined, so that the rebalance ends."""
        if group["group_state"] != "PreparingRebalance":
            return False
        joining = {
            key
            for one in self.members
            if one.waiting and one.waiting.api == JOIN
            for key in (one.waiting.member_id, one.instance)
            if key
        }
        return all(
            one["member_id"] in joining or one["group_instance_id"] in joining
            for one in group["members"]
        )

    def _is_due(self, member: Member, group: dict[str, Any]) -> bool:
        assert member.waiting
        state = {JOIN: "PreparingRebalance", SYNC: "CompletingRebalance"}[member.waiting.api]
        return group["group_state"] != state or self._answered_within(member, 0)

    def _take(self, member: Member) -> None:
        """An answer to a JoinGroup or SyncGroup."""
        assert member.waiting
        api, version, sent, asked_as = member.waiting
        member.waiting = None
        answer = self.session.receive(api, version, sent)
        code = answer["error_code"]
        if code in LOST and asked_as == member.member_id:
            member.member_id, member.generation = "", -1
        if api == JOIN and code in (0, MEMBER_ID_REQUIRED):
            member.member_id = answer["member_id"]
            member.generation = answer["generation_id"]
            self.leader = answer["leader"] or self.leader
            member.others = [one["member_id"] for one in answer["members"]]
            if code:
                self.given.add(member.member_id)

    def _consumer_group(self) -> dict[str, Any]:
        """The group as one of the consumer protocol."""
        asked = {"group_ids": [self.session.name]}
        answer = self.session.quietly("ConsumerGroupDescribe", 1, **asked)
        group: dict[str, Any] = answer["groups"][0]
        return group

    # ---- requests ------------------------------------------------------------------------------

    def _member(self) -> Member:
        return self.rng.choice(self.members)

    def _who(self, member: Member) -> dict[str, Any]:
        """Mostly the member's own id and generation."""
        own = member.generation
        number = self.any_of((88, own), (5, own - 1), (5, own + 1), (2, -1))
        name = self.any_of((93, member.member_id), (4, "nobody"), (3, ""))
        instance = self.any_of((94, member.instance), (3, "other"), (3, None))
        return {"generation_id": number, "member_id": name, "group_instance_id": instance}

    def join(self) -> None:
        """JoinGroup; the id it is given is mostly used at once."""
        member = self._member()
        if member.waiting:
            return
        again = self.chance(93)
        own = self.any_of((95, member.member_id), (5, "nobody"))
        if not self.size and not self._consumer_group()["members"]:
            own = ""
        lists = ((60, ["range"]), (35, ["range", "roundrobin"]), (3, ["roundrobin"]), (2, []))
        metadata = subscription(member.topic)
        fields = {
            "session_timeout_ms": self.any_of((98, LONG_MS), (2, 100)),
            "rebalance_timeout_ms": LONG_MS,
            "member_id": own,
            "protocol_type": self.any_of((97, "consumer"), (2, "other"), (1, "")),
            "protocols": [{"name": one, "metadata": metadata} for one in self.any_of(*lists)],
            "group_instance_id": self.any_of((97, member.instance), (3, "other")),
        }
        version = self.any_of((1, 5), (1, 7), (1, 9))
        before = set(self.given)
        self._send(member, JOIN, version, **fields)
        self.settle()
        if self.given - before and again:
            self._send(member, JOIN, version, **fields | {"member_id": member.member_id})

    def sync(self) -> None:
        """SyncGroup, with what a leader has shared out."""
        member = self._member()
        if member.waiting:
            return
        version = self.any_of((1, 3), (1, 5))
        fields = self._who(member)
        if version >= 5:
            fields["protocol_type"] = self.any_of((97, "consumer"), (2, None), (1, "other"))
            fields["protocol_name"] = self.any_of((97, "range"), (2, None), (1, "other"))
        by_id = {one.member_id: one.topic for one in self.members}
        assignments = [
            {"member_id": one, "assignment": assignment(by_id[one])}
            for one in member.others
            if one in by_id
        ]
        self._send(member, SYNC, version, **fields, assignments=assignments)

    def beat(self) -> None:
        """Heartbeat."""
        member = self._member()
        who = self._who(member)
        version = self.any_of((1, 3), (1, 4))
        answer = self.session.ask("Heartbeat", version, group_id=self.session.name, **who)
        is_own = (
            who["member_id"] == member.member_id and who["group_instance_id"] == member.instance
        )
        if answer["error_code"] in LOST and is_own and not member.waiting:
            member.member_id, member.generation = "", -1

    def leave(self) -> None:
        """LeaveGroup of one member, or of two."""
        able = [
            one
            for one in self.members
            if (not one.waiting or one.waiting.api == JOIN)
            and (self.leader not in ("", one.member_id) or self.size <= 2)
        ]
        leaving = self.rng.sample(able, min(len(able), self.any_of((80, 1), (20, 2))))
        rows = [
            {
                "member_id": self.any_of((93, one.member_id), (4, "nobody"), (3, "")),
                "group_instance_id": self.any_of((95, one.instance), (3, "other"), (2, None)),
            }
            for one in leaving
        ]
        version = self.any_of((1, 3), (1, 5))
        self.session.ask("LeaveGroup", version, group_id=self.session.name, members=rows)
        self.given -= {row["member_id"] for row in rows}

    def offsets(self) -> None:
        """OffsetCommit or OffsetFetch, of a member or of nobody."""
        member = self._member()
        if self.chance(40):
            topics = [{"name": member.topic, "partition_indexes": [0, 1]}]
            asked = {"group_id": self.session.name, "topics": self.any_of((1, topics), (1, None))}
            self.session.ask("OffsetFetch", 8, groups=[asked], require_stable=False)
            return
        who = self._who(member)
        if self.chance(10):
            who = {"generation_id": -1, "member_id": "", "group_instance_id": None}
        who["generation_id_or_member_epoch"] = who.pop("generation_id")
        place = {"partition_index": self.rng.randrange(2), "committed_metadata": "m"}
        place["committed_offset"] = self.rng.randrange(9)
        topics = [{"name": member.topic, "partitions": [place]}]
        self.session.ask("OffsetCommit", 8, group_id=self.session.name, **who, topics=topics)

    def describe(self) -> None:
        """What an administrator asks."""
        kind = self.any_of((3, "list"), (3, "describe"), (2, "delete"))
        if kind == "delete":
            self.session.ask("DeleteGroups", 2, groups_names=[self.session.name])
        elif kind == "describe":
            api = self.any_of((2, "ConsumerGroupDescribe"), (1, "ShareGroupDescribe"))
            self.session.ask(api, 1, group_ids=[self.session.name])
        else:
            answer = self.session.quietly("ListGroups", 5)
            mine = [one for one in answer["groups"] if one["group_id"] == self.session.name]
            self.session.record("ListGroups", {**answer, "groups": mine})

    def new_beat(self) -> None:
        """ConsumerGroupHeartbeat of a member of the new protocol."""
        name = self.rng.choice(NEW_MEMBERS)
        own = self.epochs[name]
        epoch = self.any_of((80, own), (4, own - 1), (4, 0), (12, -1))
        if epoch == -1 and self._consumer_group()["group_state"] != "Stable":
            epoch = own
        owned = self.owned.get(name, [])
        fields = {"topic_partitions": self.any_of((50, None), (50, owned))}
        if epoch == 0:
            fields = {"topic_partitions": [], "subscribed_topic_names": [self.topics[name]]}
        answer = self.session.ask(
            "ConsumerGroupHeartbeat",
            1,
            group_id=self.session.name,
            member_id=name,
            member_epoch=epoch,
            rebalance_timeout_ms=LONG_MS if epoch == 0 else -1,
            server_assignor=None,
            **fields,
        )
        if answer["error_code"] in PUT_OUT or answer["member_epoch"] < 0:
            self.epochs[name] = 0
            self.owned.pop(name, None)
        elif not answer["error_code"]:
            self.epochs[name] = answer["member_epoch"]
            if answer["assignment"] is not None:
                self.owned[name] = answer["assignment"]["topic_partitions"]


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def subscription(topic: str) -> bytes:
    """A ConsumerProtocolSubscription, version 0."""
    return struct.pack(">hi", 0, 1) + string(topic) + struct.pack(">i", -1)


def assignment(topic: str) -> bytes:
    """A ConsumerProtocolAssignment of both partitions, version 0."""
    return struct.pack(">hi", 0, 1) + string(topic) + struct.pack(">iiii", 2, 0, 1, -1)


def _walk_of(share_of_new: int) -> Callable[[Session, random.Random], None]:
    def walk(session: Session, rng: random.Random) -> None:
        group = Classic(session, rng)
        for _ in range(STEPS):
            group.any_of(
                (30, Classic.join),
                (20, Classic.sync),
                (12, Classic.beat),
                (7, Classic.leave),
                (8, Classic.offsets),
                (6, Classic.describe),
                (share_of_new, Classic.new_beat),
            )(group)
            group.settle()

    return walk


KINDS = {"classic": _walk_of(0), "mixed": _walk_of(25)}
