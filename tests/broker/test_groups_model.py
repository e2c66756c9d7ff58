"""Random lives of a group: whatever happens in whatever order, its promises hold."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidelog.coordinators.groups.classic.group import Group, GroupLimits, GroupState
from tidelog.coordinators.groups.classic.member import (
    CompleteJoin,
    CompleteSync,
    JoinRequest,
    JoinResult,
    LeavingMember,
    Persist,
    SyncRequest,
    SyncResult,
)
from tidelog.coordinators.groups.now import Now
from tidelog_protocol.errors import ErrorCode

NONE = ErrorCode.NONE
CLIENTS = 4
REBALANCE_TIMEOUT_MS = 20_000
SESSION_TIMEOUT_MS = 6000


class Client:
    """One consumer as the group's protocol has it; static if it has an instance id."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.instance = f"instance-{number}" if number == 0 else None
        self.member_id = ""
        self.generation = self.last_generation = -1
        self.leads: tuple[str, ...] = ()
        self.join_open = False
        self.synced = False
        self.assignment: bytes | None = None

    def reset(self) -> None:
        self.synced = False
        self.member_id, self.generation, self.leads, self.assignment = "", -1, (), None


class GroupLife(RuleBasedStateMachine):
    """Requests, deaths, time and late writes, from five clients."""

    @initialize(
        delay_ms=st.sampled_from([0, 3000]), size_max=st.sampled_from([3, 100]), known=st.booleans()
    )
    def begin(self, delay_ms: int, size_max: int, known: bool) -> None:
        self.ticks_ms = 0
        self.known = known
        self.group = Group("group", self.now, GroupLimits(delay_ms, size_max, 60_000))
        self.clients = [Client(number) for number in range(CLIENTS)]
        self.writes: list[Persist] = []
        self.leaders: dict[int, str] = {}
        self.generation = 0
        self.emptied_generation = 0
        self.next_id = 0
        self.open_requests = 0

    @property
    def now(self) -> Now:
        return Now(self.ticks_ms, self.ticks_ms)

    def perform(self, effects) -> None:
        for effect in effects:
            if isinstance(effect, CompleteJoin | CompleteSync):
                effect.answer()
            else:
                assert effect.assignments.keys() == self.group.members.keys()
                if effect.then is None:
                    assert self.group.generation > self.emptied_generation
                    self.emptied_generation = self.group.generation
                self.writes.append(effect)

    @rule(count=st.integers(1, 16), writes_finish=st.booleans())
    def go_on(self, count: int, writes_finish: bool) -> None:
        """Everyone in turn does what a consumer does next."""
        for step in range(count):
            client = self.clients[step % CLIENTS]
            if client.join_open:
                self.wait(1)
            elif client.generation < 0:
                self.join(client.number, 0)
            elif not client.synced:
                self.sync(client.number)
            else:
                self.heartbeat(client.number)
            if writes_finish:
                self.store(NONE)

    @rule(number=st.integers(0, CLIENTS - 1), version=st.integers(0, 2))
    def join(self, number: int, version: int) -> None:
        client = self.clients[number]
        client.join_open = True
        answered = False

        def waiter(result: JoinResult) -> None:
            nonlocal answered
            assert not answered, "a join is answered once"
            answered = True
            client.join_open = False
            self.on_join(client, result)

        self.next_id += 1
        request = JoinRequest(
            member_id=client.member_id,
            group_instance_id=client.instance,
            client_id=str(number),
            client_host="/",
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=(("a", bytes([version])), ("b", b"")),
            requires_known_member_id=self.known,
            supports_skipping_assignment=True,
            new_member_id=f"{number}-{self.next_id}",
        )
        self.perform(self.group.join(request, waiter, self.now))

    def on_join(self, client: Client, result: JoinResult) -> None:
        if result.error is NONE:
            assert result.leader is not None
            # One leader a generation, unless it is the same static member under a new id.
            known = self.leaders.setdefault(result.generation, result.leader)
            assert known.split("-")[0] == result.leader.split("-")[0]
            assert result.generation >= client.last_generation, "a generation never goes back"
            client.last_generation = result.generation
            assert bool(result.members) == (result.leader == result.member_id)
            client.member_id, client.generation = result.member_id, result.generation
            client.synced = False
            client.leads = tuple(member.member_id for member in result.members)
            if result.skip_assignment:
                client.leads = ()
        elif result.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = result.member_id
        elif result.error is not ErrorCode.REBALANCE_IN_PROGRESS:
            client.reset()

    @rule(number=st.integers(0, CLIENTS - 1))
    def sync(self, number: int) -> None:
        client = self.clients[number]
        if client.generation < 0:
            return
        generation = client.generation

        client.synced = True

        def waiter(result: SyncResult) -> None:
            if result.error is not NONE:
                client.generation = -1
            else:
                client.assignment = result.assignment
                # What anyone gets was made for this generation by its leader, or is empty.
                # (A static member that came back may be told of a later one by its answer.)
                assert result.assignment in {b"", str(generation).encode()}

        request = SyncRequest(
            client.member_id,
            client.instance,
            generation,
            "consumer",
            None,
            {member_id: str(generation).encode() for member_id in client.leads},
        )
        self.perform(self.group.sync(request, waiter, self.now))

    @rule(number=st.integers(0, CLIENTS - 1))
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        if not client.member_id:
            return
        before = self.group.next_deadline_ms()
        error = self.group.heartbeat(client.member_id, client.instance, client.generation, self.now)
        after = self.group.next_deadline_ms()
        if before is not None and after is not None:
            assert after >= before or before <= self.ticks_ms or error is NONE
        if error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            client.reset()
        elif error is not NONE:
            client.generation = -1  # joins again with its id

    @rule(number=st.integers(0, CLIENTS - 1))
    def leave(self, number: int) -> None:
        client = self.clients[number]
        leaving = [LeavingMember(client.member_id, client.instance)]
        _, effects = self.group.leave(leaving, self.now)
        self.perform(effects)
        client.reset()

    @rule(number=st.integers(0, CLIENTS - 1))
    def die(self, number: int) -> None:
        self.clients[number].reset()

    @rule(ms=st.sampled_from([1, 1000, 3000, 7000, 30_000]))
    def wait(self, ms: int) -> None:
        end_ms = self.ticks_ms + ms
        while True:
            at_ms = self.group.next_deadline_ms()
            if at_ms is None or at_ms > end_ms:
                break
            self.ticks_ms = max(self.ticks_ms, at_ms)
            self.perform(self.group.expire(self.now))
        self.ticks_ms = end_ms

    @rule(error=st.sampled_from([NONE, NONE, NONE, ErrorCode.NOT_COORDINATOR]))
    def store(self, error: ErrorCode) -> None:
        writes, self.writes = self.writes, []
        for write in writes:
            if write.then is not None:
                self.perform(self.group.stored(write.then, error, self.now))

    @invariant()
    def holds_together(self) -> None:
        group = self.group
        assert group.generation >= self.generation
        self.generation = group.generation
        assert (group.members.leader is None) == (not group.members)
        assert group.members.leader is None or group.members.leader in group.members
        assert set(group.members.static.values()) <= group.members.keys()
        assert not group.members.pending.keys() & group.members.keys()
        assert group.pending_sync <= group.members.keys()
        assert not group.is_empty or not group.members
        if group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
            assert group.members
            assert group.protocol_name in {"a", "b"}
        for member in group.members.values():
            waits = member.awaiting_join is not None or member.awaiting_sync is not None
            assert waits or member.deadline_ms is not None, "nobody lives for ever unheard"
            if member.deadline_ms is not None and not member.is_new:
                assert member.deadline_ms <= self.ticks_ms + SESSION_TIMEOUT_MS
            assert member.awaiting_sync is None or (group.state is GroupState.COMPLETING_REBALANCE)
        if group.state is GroupState.PREPARING_REBALANCE:
            assert group.join_deadline_ms is not None, "a rebalance ends"

    def teardown(self) -> None:
        """Nothing is left waiting once time passes and writes finish."""
        if not hasattr(self, "group"):
            return
        for _ in range(4):
            self.store(NONE)
            self.wait(60_000)
        assert not any(client.join_open for client in self.clients)


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, derandomize=True, database=None
)
