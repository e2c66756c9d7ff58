"""Walks of one share group: its members, sessions, records, acknowledgements and offsets.

It depends on the moment what a request finds until a share partition is loaded, so all are loaded
before, by a member whose session stays open: with a group's last session Kafka drops them. What
resets them ends the walk but for descriptions. Kafka lets go of the locks of a fetch after its
answer: there is a pause before the next one. It shares partitions out, and takes records of several
up to a limit, in the order of a hash table of random ids: members subscribe to one partition, and
have limits only where they read one. Its texts say whether it keeps the state of a batch or of an
offset, which is not compared.

DescribeShareGroupOffsets asks for no partition that a topic does not have: Kafka takes 30 s. Nor
does AlterShareGroupOffsets when the group may be gone: Kafka makes the group.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from compat.conformance.batches import batch, records
from compat.conformance.cases_share_consumers import MEGABYTE
from compat.conformance.walks.walk import UNKNOWN_ID, Walk
from compat.eventually import eventually

if TYPE_CHECKING:
    import random

    from compat.conformance.session import Session

STEPS = 60
PAUSE_S = 0.02
MEMBERS = ("a", "b", "c")
COUNTS = (2, 1)
PUT_OUT = (25, 69, 110)  # UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, FENCED_MEMBER_EPOCH
NO_SESSION = (122, 133)  # SHARE_SESSION_NOT_FOUND, SHARE_SESSION_LIMIT_REACHED
TEXTS = {"error_message", "acknowledge_error_message"}
TYPES = "acknowledge_types"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Place = tuple[bytes, int]


class Shares(Walk):
    """One share group of a walk, as its broker has answered so far."""

    def __init__(self, session: Session, rng: random.Random) -> None:
        super().__init__(session, rng)
        self.topics, self.ids = self.topics_with_ids(*COUNTS)
        self.places: list[Place] = [
            (one, index)
            for one, count in zip(self.ids, COUNTS, strict=True)
            for index in range(count)
        ]
        session.coordinator()
        self.configure(share_assignment_interval_ms="0", share_auto_offset_reset="earliest")
        self.epochs: dict[str, int] = {}
        self.sessions: dict[str, int] = {}
        self.held: dict[str, list[tuple[Place, int, int]]] = {member: [] for member in MEMBERS}
        self.over = False
        self.read = self.any_of((1, self.places), (1, self.places[:1]))
        for _ in range(4):
            self.produce()
        self.load()

    def load(self) -> None:
        """Have all share partitions initialized, and loaded by their leader."""
        who = {"group_id": self.session.name, "member_id": "z"}
        beat = {**who, "subscribed_topic_names": self.topics, "member_epoch": 0}

        def assigned(answer: dict[str, Any]) -> bool:
            beat["member_epoch"] = answer["member_epoch"]
            beat["subscribed_topic_names"] = None
            given = (answer["assignment"] or {}).get("topic_partitions", [])
            return sum(len(one["partitions"]) for one in given) == sum(COUNTS)

        self._until("ShareGroupHeartbeat", 1, assigned, beat)
        self.session.quietly("ShareGroupHeartbeat", 1, **who, member_epoch=-1)
        fetch = self._fetch_fields({place: [] for place in self.places})
        fetch |= {**who, "share_session_epoch": 0, "max_wait_ms": 500, "min_bytes": 1}
        seen: dict[Place, list[Any]] = {}

        def loaded(answer: dict[str, Any]) -> bool:
            fetch["share_session_epoch"] += 1
            fetch["topics"] = []
            for place, first, last in acquired(answer):
                row = {"first_offset": first, "last_offset": last, "acknowledge_types": [RELEASE]}
                seen.setdefault(place, []).append(row)
            return len(seen) == len(self.places)

        self._until("ShareFetch", 2, loaded, fetch)
        rows = {"topics": topics_of(seen), "share_session_epoch": fetch["share_session_epoch"]}
        self.session.quietly("ShareAcknowledge", 2, **who, **rows)

    def _until(self, api: str, version: int, done: Any, fields: dict[str, Any]) -> None:
        eventually(lambda: self.session.quietly(api, version, **fields), done, 20.0)

    def produce(self) -> None:
        """A batch to each partition."""
        for name, count in zip(self.topics, COUNTS, strict=True):
            for partition in range(count):
                size = self.any_of((2, 1), (3, 2), (3, 5))
                self.session.produce(name, batch(records(size)), partition=partition)

    # ---- members -------------------------------------------------------------------------------

    def beat(self) -> None:
        """ShareGroupHeartbeat of one of three members."""
        member = self.rng.choice(MEMBERS)
        own = self.epochs.get(member, 0)
        wrong = ((6, own - 1), (3, own + 1), (6, 0), (6, -1), (2, -2), (1, 100))
        epoch = int(self.any_of((76, own), *wrong))
        one = self.topics[1:]
        names = self.any_of((40, None), (50, one), (5, ["none"]), (3, []))
        if epoch == 0 and not self.chance(10):
            names = names or one
        answer = self.session.ask(
            "ShareGroupHeartbeat",
            1,
            group_id=self.session.name,
            member_id=self.any_of((97, member), (1, ""), (1, "z" * 37)),
            member_epoch=epoch,
            rack_id=self.any_of((90, None), (8, "r"), (1, "")),
            subscribed_topic_names=names,
        )
        if answer["error_code"] in PUT_OUT or answer["member_epoch"] < 0:
            self.epochs[member] = 0
        elif not answer["error_code"]:
            self.epochs[member] = answer["member_epoch"]

    # ---- records -------------------------------------------------------------------------------

    def _types(self, count: int, *, version: int) -> list[int]:
        renew = 8 if version > 1 else 0
        kinds = ((45, ACCEPT), (30, RELEASE), (15, REJECT), (5, GAP), (renew, RENEW), (1, 5))
        if count > 1 and self.chance(30):
            return [self.any_of(*kinds) for _ in range(count - self.chance(5))]
        return [self.any_of(*kinds)]

    def _acknowledged(self, member: str, version: int) -> dict[Place, list[Any]]:
        """Some of what the member holds, or another does."""
        owner = self.any_of((92, member), (8, self.rng.choice(MEMBERS)))
        rows: dict[Place, list[Any]] = {}
        for one in list(self.held[owner]):
            if self.rng.random() < 0.5:
                continue
            place, first, last = one
            if not self.chance(15):
                self.held[owner].remove(one)
            part = self.any_of((70, (first, last)), (10, (first, first)), (10, (last, last)))
            first, last = self.any_of((95, part), (2, (first, last + 1)), (1, (last, first - 1)))
            types = self._types(last - first + 1, version=version)
            row = {"first_offset": first, "last_offset": last, "acknowledge_types": types}
            rows.setdefault(place, []).append(row)
        if not self.chance(3):
            for several in rows.values():
                several.sort(key=lambda row: int(row["first_offset"]))
        return rows

    def _fetch_fields(self, rows: dict[Place, list[Any]]) -> dict[str, Any]:
        return {
            "group_id": self.session.name,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": MEGABYTE,
            "max_records": 500,
            "batch_size": 500,
            "topics": topics_of(rows),
        }

    def _session_of(self, member: str) -> int:
        own = self.sessions.get(member, 0)
        return int(self.any_of((88, own), (2, own - 1), (2, own + 1), (3, 0), (5, -1)))

    def _answered(self, member: str, epoch: int, answer: dict[str, Any]) -> None:
        code = answer["error_code"]
        if code in NO_SESSION or (not code and epoch == -1):
            self.sessions[member] = 0
        elif not code:
            self.sessions[member] = epoch + 1
        if epoch in (0, -1) and not code:
            self.held[member].clear()

    def _ask(self, api: str, version: int, **fields: Any) -> dict[str, Any]:
        answer = self.session.quietly(api, version, **fields)
        for topic in answer.get("responses", ()):
            for one in topic["partitions"]:
                for name in TEXTS & one.keys():
                    one[name] = one[name] and one[name].replace("batch", "offset")[:38]
        self.session.record(api, answer)
        return answer

    def fetch(self) -> None:
        """ShareFetch of one of three members."""
        member, version = self.rng.choice(MEMBERS), self.any_of((3, 2), (1, 1))
        epoch = self._session_of(member)
        rows = self._acknowledged(member, version) if epoch else {}
        added = self.read if epoch == 0 else [one for one in self.read if self.chance(30)]
        if epoch != -1 or self.chance():
            for place in added:
                rows.setdefault(place, [])
        if self.chance(2):
            rows[self.ids[0], 7] = []
        forgotten = [one for one in self.read if self.chance()] if epoch > 0 else []
        limits = [(20, 1), (30, 3)] if len(self.read) == 1 else []
        fields = self._fetch_fields(rows) | {
            "max_records": self.any_of((50, 500), (2, 0), *limits),
            "batch_size": self.any_of((60, 500), (40, 2)),
            "forgotten_topics_data": [
                {"topic_id": topic_id, "partitions": [index]} for topic_id, index in forgotten
            ],
        }
        if version > 1:
            kinds = {ack for acks in rows.values() for row in acks for ack in row[TYPES]}
            renews = (RENEW in kinds) != self.chance(10)
            fields["is_renew_ack"] = renews
            fields["share_acquire_mode"] = self.any_of((60, 0), (40, 1))
            if renews and not self.chance(10):
                fields |= {"max_records": 0, "max_bytes": 0, "batch_size": 0}
        time.sleep(PAUSE_S)
        answer = self._ask(
            "ShareFetch", version, member_id=member, share_session_epoch=epoch, **fields
        )
        self._answered(member, epoch, answer)
        self.held[member] += acquired(answer)
        self.held[member].sort(key=lambda one: (self.places.index(one[0]), *one[1:]))

    def acknowledge(self) -> None:
        """ShareAcknowledge of one of three members."""
        member, version = self.rng.choice(MEMBERS), self.any_of((3, 2), (1, 1))
        epoch = self._session_of(member)
        rows = self._acknowledged(member, version)
        fields: dict[str, Any] = {"topics": topics_of(rows)}
        if self.chance(2):
            fields["topics"].append(
                {"topic_id": UNKNOWN_ID, "partitions": [{"partition_index": 0}]}
            )
        if version > 1:
            kinds = {ack for acks in rows.values() for row in acks for ack in row[TYPES]}
            fields["is_renew_ack"] = (RENEW in kinds) != self.chance(10)
        who = {"group_id": self.session.name, "member_id": member, "share_session_epoch": epoch}
        answer = self._ask("ShareAcknowledge", version, **who, **fields)
        self._answered(member, epoch, answer)

    # ---- an administrator ----------------------------------------------------------------------

    def offsets(self) -> None:
        """What the offsets of the group are, or shall be."""
        name, group = self.rng.choice([*self.topics, "none"]), self.session.name
        kind = self.any_of((60, "describe"), (30, "alter"), (10, "delete"))
        if kind == "describe":
            parts = [{"topic_name": name, "partitions": [0]}]
            asked = {"group_id": group, "topics": self.any_of((70, None), (30, parts))}
            self.session.ask("DescribeShareGroupOffsets", 1, groups=[asked])
            return
        topic: dict[str, Any] = {"topic_name": name}
        if kind == "alter":
            index = 0 if self.over else self.any_of((90, 0), (10, 9))
            start = self.any_of((80, self.rng.randrange(8)), (10, 1000), (10, -1))
            topic["partitions"] = [{"partition_index": index, "start_offset": start}]
        api = kind.title() + "ShareGroupOffsets"
        answer = self.session.ask(api, 0, group_id=group, topics=[topic])
        self.over |= not answer["error_code"]

    def describe(self) -> None:
        """What an administrator asks; the group may be of another type."""
        api, version, field = self.any_of(
            (40, ("ShareGroupDescribe", 1, "group_ids")),
            (10, ("ConsumerGroupDescribe", 1, "group_ids")),
            (10, ("DescribeGroups", 6, "groups")),
            (20, ("DeleteGroups", 2, "groups_names")),
        )
        answer = self.session.ask(api, version, **{field: [self.session.name]})
        self.over |= api == "DeleteGroups" and not answer["results"][0]["error_code"]


def topics_of(rows: dict[Place, list[Any]]) -> list[dict[str, Any]]:
    """Acknowledgements by topic."""
    topics: dict[bytes, list[Any]] = {}
    for (topic_id, index), acks in rows.items():
        one = {"partition_index": index, "acknowledgement_batches": acks}
        topics.setdefault(topic_id, []).append(one)
    return [{"topic_id": one, "partitions": parts} for one, parts in topics.items()]


def acquired(answer: dict[str, Any]) -> list[tuple[Place, int, int]]:
    """What a ShareFetch has acquired: a partition, the first offset and the last."""
    return [
        ((topic["topic_id"], one["partition_index"]), row["first_offset"], row["last_offset"])
        for topic in answer.get("responses", ())
        for one in topic["partitions"]
        for row in one["acquired_records"]
    ]


def walk(session: Session, rng: random.Random) -> None:
    """Sixty requests."""
    group = Shares(session, rng)
    describing = [(8, Shares.offsets), (8, Shares.describe)]
    acting = [
        (25, Shares.beat),
        (35, Shares.fetch),
        (15, Shares.acknowledge),
        (5, Shares.produce),
    ]
    for _ in range(STEPS):
        group.any_of(*describing, *([] if group.over else acting))(group)
        if group.over and group.chance(20):
            return


KINDS = {"shares": walk}
