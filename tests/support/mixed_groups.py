"""Clients of both group protocols over a `GroupBroker`: what they own, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from tidelog_protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from tidelog_protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.group_broker import GroupBroker, Pending

Owned = set[tuple[str, int]]
VERSION = 3


def by_topic(owned: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Partitions by the name of their topic."""
    found: dict[str, list[int]] = {}
    for name, n in sorted(owned):
        found.setdefault(name, []).append(n)
    return found


def subscription_bytes(
    *names: str, owned: Iterable[tuple[str, int]] = (), version: int = VERSION, rack: str = ""
) -> bytes:
    """A classic member's metadata."""
    topic = ConsumerProtocolSubscription.TopicPartition
    listed = [topic(topic=name, partitions=each) for name, each in by_topic(owned).items()]
    said = ConsumerProtocolSubscription(
        topics=list(names),
        user_data=None,
        owned_partitions=listed,
        rack_id=rack or None,
    )
    return version.to_bytes(2, "big") + codec(ConsumerProtocolSubscription, version).encode(said)


def assignment_of(owned: Iterable[tuple[str, int]], user_data: bytes | None = None) -> bytes:
    """What a leader assigns."""
    topic = ConsumerProtocolAssignment.TopicPartition
    listed = [topic(topic=name, partitions=each) for name, each in by_topic(owned).items()]
    said = ConsumerProtocolAssignment(assigned_partitions=listed, user_data=user_data)
    return VERSION.to_bytes(2, "big") + codec(ConsumerProtocolAssignment, VERSION).encode(said)


def read_assignment(data: bytes) -> Owned:
    """The partitions of a member's assignment."""
    if not data:
        return set()
    said = codec(ConsumerProtocolAssignment, VERSION).decode(data, 2)
    return {(each.topic, n) for each in said.assigned_partitions for n in each.partitions}


class ClassicClient:
    """A member of the classic protocol; `is_cooperative` if it keeps partitions as it joins."""

    def __init__(
        self,
        broker: GroupBroker,
        *names: str,
        instance_id: str | None = None,
        is_cooperative: bool = False,
        version: int = 9,
    ) -> None:
        self.broker = broker
        self.names = names or ("a",)
        self.instance_id = instance_id
        self.is_cooperative = is_cooperative
        self.version = version
        self.member_id = ""
        self.generation = -1
        self.owned: Owned = set()
        self.joining: Pending | None = None
        self.syncing: Pending | None = None
        self.must_join = True
        self.session_timeout_ms = 10_000

    def begin_join(self, **more: Any) -> Pending:
        if not self.is_cooperative:
            self.owned.clear()
        owned = self.owned if self.is_cooperative else ()
        name = "cooperative-sticky" if self.is_cooperative else "range"
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(
            name=name, metadata=subscription_bytes(*self.names, owned=owned)
        )
        fields = {
            "group_id": "g",
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": [protocol],
        }
        self.must_join = False
        self.joining = self.broker.send(JoinGroupRequest(**(fields | more)), self.version)
        return self.joining

    def begin_sync(self, joined: Any) -> Pending:
        given = []
        if joined.members:
            given = assigned_by_leader(self.broker, joined.members)
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=given,
        )
        self.syncing = self.broker.send(request, 5)
        return self.syncing

    def join(self) -> Any:
        """Join, and sync if that is answered at once; return the JoinGroup's answer."""
        self.begin_join()
        answer = self.poll()
        if answer is not None and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.begin_join()
            answer = self.poll()
        return answer

    def poll(self) -> Any:
        """Look for answers; return the one of JoinGroup."""
        answer = None
        if self.joining is not None and not self.joining.parked:
            answer, self.joining = self.joining.answer, None
            if answer.error_code == ErrorCode.NONE:
                self.member_id, self.generation = answer.member_id, answer.generation_id
                self.begin_sync(answer)
            else:
                self.failed(answer.error_code, answer.member_id)
        if self.syncing is not None and not self.syncing.parked:
            synced, self.syncing = self.syncing.answer, None
            if synced.error_code == ErrorCode.NONE:
                assigned = read_assignment(bytes(synced.assignment))
                self.must_join = self.is_cooperative and not self.owned <= assigned
                self.owned = assigned
            else:
                self.failed(synced.error_code, self.member_id)
        return answer

    def failed(self, error: int, member_id: str) -> None:
        self.must_join = True
        if error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = member_id
        elif error in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.FENCED_INSTANCE_ID,
        ):
            self.owned.clear()
            self.generation = -1
            if error != ErrorCode.ILLEGAL_GENERATION:
                self.member_id = ""

    def beat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        error = ErrorCode(self.broker.ask(request, 4).error_code)
        if error is not ErrorCode.NONE:
            self.failed(error, self.member_id)
        return error

    def step(self) -> None:
        """What a client does next."""
        self.poll()
        if self.joining is None and self.syncing is None:
            if self.must_join:
                self.join()
            else:
                self.beat()

    def leave(self) -> Any:
        self.owned.clear()
        member = LeaveGroupRequest.MemberIdentity(
            member_id=self.member_id, group_instance_id=self.instance_id
        )
        return self.broker.ask(LeaveGroupRequest(group_id="g", members=[member]), 5)


def assigned_by_leader(broker: GroupBroker, members: Any) -> list[Any]:
    """Each topic's partitions in turn, but none that another member still has."""
    given: dict[str, Owned] = {each.member_id: set() for each in members}
    topics: dict[str, list[str]] = {}
    holders: dict[tuple[str, int], str] = {}
    for each in members:
        data = bytes(each.metadata)
        version = int.from_bytes(data[:2], "big")
        said = codec(ConsumerProtocolSubscription, version).decode(data, 2)
        for name in said.topics:
            topics.setdefault(name, []).append(each.member_id)
        for owned in said.owned_partitions:
            holders |= {(owned.topic, n): each.member_id for n in owned.partitions}
    for name, takers in topics.items():
        for n in range(len(broker.image.topics[name].partitions)):
            taker = sorted(takers)[n % len(takers)]
            if holders.get((name, n), taker) == taker:
                given[taker].add((name, n))
    return [
        SyncGroupRequest.SyncGroupRequestAssignment(
            member_id=member_id, assignment=assignment_of(owned)
        )
        for member_id, owned in given.items()
    ]


class ConsumerClient:
    """A member of the consumer protocol, which revokes as soon as it is asked to."""

    def __init__(
        self, broker: GroupBroker, member_id: str, *names: str, instance_id: str | None = None
    ) -> None:
        self.broker = broker
        self.member_id = member_id
        self.names = names or ("a",)
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: Owned = set()

    def beat(self, epoch: int | None = None) -> Any:
        fields: dict[str, Any] = {}
        sent = self.epoch if epoch is None else epoch
        if sent == 0:
            fields = {
                "rebalance_timeout_ms": 60_000,
                "subscribed_topic_names": list(self.names),
                "topic_partitions": [],
            }
        elif sent > 0:
            fields = {"topic_partitions": self.listed()}
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.member_id,
            member_epoch=sent,
            instance_id=self.instance_id,
            **fields,
        )
        answer = self.broker.ask(request, 1)
        if answer.error_code != ErrorCode.NONE:
            if answer.error_code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.GROUP_ID_NOT_FOUND,
            ):
                self.owned, self.epoch = set(), 0
            return answer
        if sent >= 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {
                    (self.broker.image.topic_names[each.topic_id], n)
                    for each in answer.assignment.topic_partitions
                    for n in each.partitions
                }
        return answer

    def listed(self) -> list[Any]:
        return [
            ConsumerGroupHeartbeatRequest.TopicPartitions(
                topic_id=self.broker.image.topics[name].topic_id, partitions=each
            )
            for name, each in by_topic(self.owned).items()
        ]

    def step(self) -> None:
        self.beat()

    def leave(self) -> Any:
        self.owned.clear()
        return self.beat(-1)


Client = ClassicClient | ConsumerClient


def owners(clients: Iterable[Client]) -> dict[tuple[str, int], Client]:
    """The owner of each partition; none has two."""
    found: dict[tuple[str, int], Client] = {}
    for each in clients:
        for partition in each.owned:
            assert partition not in found, f"{partition} is owned twice"
            found[partition] = each
    return found


def settle(
    broker: GroupBroker, clients: Iterable[Client], *, rounds: int = 30, pause_s: float = 0.5
) -> None:
    """Let all clients go on until the group is stable; no partition is ever owned twice."""
    clients = list(clients)
    for _ in range(rounds):
        for each in clients:
            each.step()
            owners(clients)
        broker.time.pass_(pause_s)
        owners(clients)
