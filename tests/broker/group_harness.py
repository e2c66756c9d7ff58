"""A group machine with a clock of its own, and everything it answered."""

from __future__ import annotations

import itertools

from tidelog.coordinators.groups.classic.group import Group, GroupLimits, GroupState
from tidelog.coordinators.groups.classic.member import (
    CompleteJoin,
    CompleteSync,
    JoinRequest,
    JoinResult,
    Persist,
    SyncRequest,
    SyncResult,
)
from tidelog.coordinators.groups.now import Now
from tidelog_protocol.errors import ErrorCode

NONE = ErrorCode.NONE
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x05topic\xff\xff\xff\xff\x00\x00\x00\x00"


class Harness:
    """A group, its clock, and everything it answered, by the name of who asked."""

    def __init__(self, limits: GroupLimits | None = None) -> None:
        self.ticks_ms = 1000
        self.group = Group("group", self.now, limits or GroupLimits(initial_rebalance_delay_ms=0))
        self.joined: dict[str, list[JoinResult]] = {}
        self.synced: dict[str, list[SyncResult]] = {}
        self.writes: list[Persist] = []
        self.ids = itertools.count()

    @property
    def now(self) -> Now:
        return Now(self.ticks_ms, 1_700_000_000_000 + self.ticks_ms)

    def perform(self, effects) -> None:
        for effect in effects:
            if isinstance(effect, CompleteJoin | CompleteSync):
                effect.answer()
            else:
                self.writes.append(effect)

    def join(
        self, name: str, member_id: str = "", instance=None, protocols=("range",), **more
    ) -> None:
        request = JoinRequest(
            member_id=member_id,
            group_instance_id=instance,
            client_id=name,
            client_host="/127.0.0.1",
            rebalance_timeout_ms=more.pop("rebalance_timeout_ms", 60_000),
            session_timeout_ms=more.pop("session_timeout_ms", 10_000),
            protocol_type=more.pop("protocol_type", "consumer"),
            protocols=tuple(
                each if isinstance(each, tuple) else (each, SUBSCRIPTION) for each in protocols
            ),
            new_member_id=f"{name}-{next(self.ids)}",
            **more,
        )
        results = self.joined.setdefault(name, [])
        self.perform(self.group.join(request, results.append, self.now))

    def sync(self, name: str, member_id: str, generation=None, assignments=None, **more) -> None:
        request = SyncRequest(
            member_id=member_id,
            group_instance_id=more.pop("instance", None),
            generation=self.group.generation if generation is None else generation,
            protocol_type=more.pop("protocol_type", None),
            protocol_name=more.pop("protocol_name", None),
            assignments=assignments or {},
        )
        results = self.synced.setdefault(name, [])
        self.perform(self.group.sync(request, results.append, self.now))

    def wait(self, ms: int) -> None:
        """Let time pass, with a look at each deadline as the coordinator has it."""
        end_ms = self.ticks_ms + ms
        while True:
            at_ms = self.group.next_deadline_ms()
            if at_ms is None or at_ms > end_ms:
                break
            self.ticks_ms = max(at_ms, self.ticks_ms)
            self.perform(self.group.expire(self.now))
        self.ticks_ms = end_ms

    def store(self, error: ErrorCode = NONE) -> None:
        """Finish the writes that are under way."""
        writes, self.writes = self.writes, []
        for write in writes:
            if write.then is not None:
                self.perform(self.group.stored(write.then, error, self.now))

    def member(self, name: str) -> str:
        return self.joined[name][-1].member_id

    def heartbeat(self, name: str, **more) -> ErrorCode:
        generation = more.get("generation", self.group.generation)
        return self.group.heartbeat(self.member(name), more.get("instance"), generation, self.now)

    def stabilise(self, *names: str, **more) -> None:
        """Join all at once, sync all."""
        for name in names:
            self.join(name, **more)
        self.wait(0)
        assert self.group.state is GroupState.COMPLETING_REBALANCE
        self.sync_all(*names)

    def sync_all(self, *names: str) -> None:
        leader = self.group.members.leader
        given = {self.member(name): name.encode() for name in names}
        for name in names:
            member = self.member(name)
            self.sync(name, member, assignments=given if member == leader else None)
        self.store()
        assert self.group.state is GroupState.STABLE
