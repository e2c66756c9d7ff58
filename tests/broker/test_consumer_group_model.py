"""Random lives of a consumer group: lost answers, failed writes, new coordinators, late members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.consumer_groups import Life, held_of
from tidelog.coordinators.groups.consumer.requests import Heartbeat
from tidelog.coordinators.groups.modern.requests import Answer, RefusedError
from tidelog.coordinators.groups.modern.states import ModernGroupState
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.coordinators.groups.modern.member import Partitions

CLIENTS = st.integers(0, 3)
NAMES = ("ta", "tb", "u")
ROUNDS = 12
REFUSALS = frozenset(
    {
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class Client:
    """A consumer as KIP-848 has it: it gives up at once what it is not assigned any more."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.instance = "i" if number == 0 else None
        self.lives = 0
        self.epoch = 0
        self.owned: Partitions = {}
        self.assigned: Partitions = {}
        self.topics: tuple[str, ...] = ("ta",)
        self.regex: str | None = None
        self.is_in = False
        self.is_complete = True  # the next heartbeat says all

    @property
    def member_id(self) -> str:
        return f"m{self.number}-{self.lives}"

    def join(self) -> Heartbeat:
        self.owned = self.assigned = {}
        self.epoch = 0
        return self._whole({})

    def heartbeat(self) -> Heartbeat:
        if self.is_complete:
            return self._whole(self.owned)
        return Heartbeat(self.member_id, self.epoch, self.instance, owned=self.owned)

    def _whole(self, owned: Partitions) -> Heartbeat:
        return Heartbeat(
            self.member_id,
            self.epoch,
            self.instance,
            rebalance_timeout_ms=20_000,
            topic_names=self.topics,
            topic_regex=self.regex or "",
            owned=owned,
        )

    def answered(self, answer: Answer) -> None:
        self.is_complete = False
        self.epoch = answer.epoch
        if answer.assigned is not None:
            self.owned = self.assigned = answer.assigned

    def fenced(self) -> None:
        self.is_in = False
        self.lives += 1
        self.owned = self.assigned = {}


class GroupLife(RuleBasedStateMachine):
    """Four clients, one of them static, and a cluster whose topics change."""

    def __init__(self) -> None:
        super().__init__()
        self.life = Life(ta=3, tb=2, u=1)
        self.clients = [Client(number) for number in range(4)]
        self.epochs = (0, 0)

    def send(self, client: Client, request: Heartbeat, *, is_lost: bool = False) -> None:
        answer = self.answer(request)
        if answer is None:
            client.fenced()
            return
        if is_lost:
            client.is_complete = True
        else:
            client.answered(answer)

    def answer(self, request: Heartbeat) -> Answer | None:
        """The answer, None if the member must begin again."""
        try:
            return self.life.heartbeat(request)
        except RefusedError as refusal:
            if refusal.code not in REFUSALS:
                raise
            return None

    @rule(number=CLIENTS, is_lost=st.booleans())
    def beat(self, number: int, is_lost: bool) -> None:
        client = self.clients[number]
        request = client.heartbeat() if client.is_in else client.join()
        client.is_in = True
        self.send(client, request, is_lost=is_lost)

    @rule(number=CLIENTS)
    def beat_without_a_write(self, number: int) -> None:
        """The append fails, so the client gets an error and says all again."""
        client = self.clients[number]
        if client.is_in:
            client.is_complete = True
            try:
                self.life.group.heartbeat(client.heartbeat(), self.life.topics, self.life.now)
            except RefusedError:
                client.fenced()

    @rule(number=CLIENTS, is_away=st.booleans())
    def leave(self, number: int, is_away: bool) -> None:
        client = self.clients[number]
        if client.is_in:
            epoch = -2 if is_away and client.instance else -1
            self.send(client, Heartbeat(client.member_id, epoch, client.instance))
            client.fenced()

    @rule(
        number=CLIENTS,
        topics=st.lists(st.sampled_from(NAMES), unique=True, max_size=3),
        regex=st.sampled_from([None, "t*", "u*"]),
    )
    def subscribe(self, number: int, topics: list[str], regex: str | None) -> None:
        client = self.clients[number]
        client.topics, client.regex = tuple(topics), regex
        client.is_complete = True

    @rule(name=st.sampled_from(NAMES), count=st.integers(0, 5))
    def change_topic(self, name: str, count: int) -> None:
        """More partitions, or the topic is deleted."""
        counts = self.life.topics.counts
        if count == 0:
            counts.pop(name, None)
        else:
            counts[name] = max(count, counts.get(name, 0))
        self.life.group.topics_changed()

    @rule(ms=st.integers(1, 30_000))
    def pass_time(self, ms: int) -> None:
        self.life.ticks_ms += ms
        self.life.expire()

    @precondition(lambda self: self.life.group.members)
    @rule()
    def move_coordinator(self) -> None:
        again = self.life.loaded()
        for name in ("epoch", "assignment_epoch", "members", "targets", "patterns"):
            assert getattr(again, name) == getattr(self.life.group, name)
        again.resume(self.life.now)
        self.life.group = again

    @invariant()
    def no_partition_is_owned_twice(self) -> None:
        held_of(self.life.group)
        owners: dict[tuple[bytes, int], str] = {}
        for client in self.clients:
            member = self.life.group.members.get(client.member_id)
            if member is None or not client.is_in:
                continue  # fenced: its commits are refused
            for topic, partitions in client.owned.items():
                for partition in partitions:
                    assert owners.setdefault((topic, partition), client.member_id) == (
                        client.member_id
                    )

    @invariant()
    def epochs_never_go_back(self) -> None:
        group = self.life.group
        now = (group.epoch, group.assignment_epoch)
        assert now >= self.epochs
        assert group.assignment_epoch <= group.epoch
        assert group.targets.keys() <= group.members.keys()
        self.epochs = now

    def teardown(self) -> None:
        """Once faults stop, every member reaches its target, and each partition has an owner."""
        life = self.life
        life.ticks_ms += 100_000
        life.expire()
        for _ in range(ROUNDS):
            for client in self.clients:
                request = client.heartbeat() if client.is_in else client.join()
                client.is_in = True
                self.send(client, request)
        group = life.group
        assert group.state is ModernGroupState.STABLE
        wanted: set[tuple[bytes, int]] = set()
        for client in self.clients:
            member = group.members[client.member_id]
            mine = {topic: frozenset(each) for topic, each in member.assigned.items()}
            target = group.targets.get(client.member_id, {})  # none without a subscription
            assert mine == target == client.owned
            matching = life.topics.matching(client.regex) if client.regex else frozenset()
            for name in {*client.topics, *matching}:
                found = life.topics.find(name)
                if found is not None:
                    wanted |= {(found[0], partition) for partition in range(found[1])}
        assert held_of(group).keys() == wanted


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(
    derandomize=True, database=None, deadline=None, max_examples=40, stateful_step_count=30
)
