"""Copiers that are members of one consumer group (KIP-447): each has a transactional id of its own
and the partitions that the group gives it, and commits offsets in its generation's name.

Nobody takes a transactional id over when partitions change hands. What keeps a member that was
thought dead (a zombie) from committing is its generation alone, and what keeps its successor from
copying twice is that offsets of an open transaction are waited for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sim.cluster.client import PAUSE_S
from sim.cluster.groups import NOT_NOW
from sim.cluster.transactions_actors import Copier
from sim.cluster.transactions_client import ANYBODY, GROUP, Membership, NotMember
from sim.cluster.transactions_reader import CommittedPlace
from sim.history import require
from sim.wire import Lost
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from sim.cluster.transactions_client import TransactionalClient
    from sim.cluster.transactions_ledger import Attempt

SESSION_MS = 1500
ZOMBIE_S = (1.6, 2.5, 4.0)  # longer than a session
REJOIN = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
)


class MemberCopier(Copier):
    """One member; `acked` is the whole group's."""

    def __init__(self, world: Any, name: str, group: str, acked: dict[int, int]) -> None:
        super().__init__(world, name)
        self.group, self._acked = group, acked
        self.membership = ANYBODY
        self._is_assigned = False

    def is_done(self) -> bool:
        """The group has committed the ends of all partitions."""
        workload = self.world.transactions
        if not workload.sources_are_written:
            return False
        ends = workload.ends()
        return all(self._acked.get(each.index, 0) >= ends[each] for each in workload.sources)

    async def prepare(self, client: TransactionalClient) -> None:
        """An instance joins when it begins to copy."""

    def lose_track(self) -> None:
        """Who comes after is a member of its own, or another producer of the same member."""
        self._forget_assignment()
        if not self.world.is_quiet and self.rng.random() < 0.5:
            self.membership = ANYBODY

    def _forget_assignment(self) -> None:
        self._is_assigned = False
        self.places = []

    async def fill(self, client: TransactionalClient, attempt: Attempt) -> bool:
        """Copy what some partition of this member has now."""
        try:
            if not await self.is_current(client):
                return False
        except Lost:
            return False
        if not self.places:
            await asyncio.sleep(PAUSE_S)
            return False
        try:
            return await super().fill(client, attempt)
        except NotMember:
            self.world.history.count("zombie members refused")
            self.not_a_member()
            raise

    async def is_current(self, client: TransactionalClient) -> bool:
        """Whether the group has it that we are a member, with the partitions of `places`."""
        if not self._is_assigned and not await self._join(client):
            return False
        return await self._beats(client)

    def not_a_member(self) -> None:
        """Offsets are refused: the group has gone on."""
        self._forget_assignment()

    async def before_offsets(self) -> None:
        """Asleep with records that nobody may see, because the offsets come too late."""
        await self._perhaps_sleep()

    async def before_end(self) -> None:
        """Asleep with offsets that the group has to wait for."""
        await self._perhaps_sleep()

    async def _perhaps_sleep(self) -> None:
        """Now and then for so long that the group goes on without this member."""
        if not self.world.is_quiet and self.rng.random() < 0.06:
            self.world.history.count("members that sleep")
            await self._pause(ZOMBIE_S)

    def member(self) -> Membership:
        """In whose name offsets are committed."""
        return self.membership

    async def run(self) -> None:
        """Until everything is copied; then it leaves."""
        await super().run()
        await self.leave()

    async def leave(self) -> None:
        """Leave the group."""
        client = self._new_client()
        member: Any = LeaveGroupRequest.MemberIdentity(member_id=self.membership.member_id)
        message = LeaveGroupRequest(group_id=self.group, members=[member])
        while self.membership.member_id:
            try:
                answer = await client.ask(self.group, GROUP, message, 4)
            except Lost:
                continue
            if ErrorCode(answer.error_code) not in NOT_NOW:
                self.membership = ANYBODY
            else:
                await self._trouble(client, ErrorCode(answer.error_code), "LeaveGroup")
        client.close()

    # -- the group ---------------------------------------------------------------------------------

    async def _join(self, client: TransactionalClient) -> bool:
        """Join, sync and find out where to begin; whether all that is done."""
        answer = await client.ask(
            self.group,
            GROUP,
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=2000,
                member_id=self.membership.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="all", metadata=b"")],
            ),
            7,
        )
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.membership = Membership(answer.member_id, -1)
        if error is not ErrorCode.NONE:
            await self._trouble(client, error, "JoinGroup")
            return False
        self.membership = Membership(answer.member_id, answer.generation_id)
        mine = await self._sync(client, [member.member_id for member in answer.members])
        if mine is None:
            return False
        offsets = await self._committed(client) if mine else {}
        if mine and not offsets:
            return False  # the group went on without us meanwhile
        self.places = [
            CommittedPlace(each, max(0, offsets[each.index]))
            for each in self.world.transactions.sources
            if each.index in mine
        ]
        self._is_assigned = True
        self.world.history.count("assignments of copiers")
        return True

    async def _sync(self, client: TransactionalClient, members: list[str]) -> list[int] | None:
        """The partitions that are ours; None if the group wants a new round."""
        shares: dict[str, list[str]] = {member: [] for member in members}
        for number, source in enumerate(self.world.transactions.sources if members else ()):
            shares[members[number % len(members)]].append(str(source.index))
        answer = await client.ask(
            self.group,
            GROUP,
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.membership.generation,
                member_id=self.membership.member_id,
                assignments=[
                    SyncGroupRequest.SyncGroupRequestAssignment(
                        member_id=member, assignment=",".join(share).encode()
                    )
                    for member, share in shares.items()
                ],
            ),
            4,
        )
        error = ErrorCode(answer.error_code)
        if error is not ErrorCode.NONE:
            await self._trouble(client, error, "SyncGroup")
            return None
        return [int(word) for word in answer.assignment.decode().split(",") if word]

    async def still(self, client: TransactionalClient) -> bool:
        """Whether it is worth to wait for the offsets."""
        return await self._beats(client)

    async def _beats(self, client: TransactionalClient) -> bool:
        """A heartbeat; whether the group has it that we are its member."""
        answer = await client.ask(
            self.group,
            GROUP,
            HeartbeatRequest(
                group_id=self.group,
                generation_id=self.membership.generation,
                member_id=self.membership.member_id,
            ),
            4,
        )
        error = ErrorCode(answer.error_code)
        if error is not ErrorCode.NONE:
            await self._trouble(client, error, "Heartbeat")
        return error is ErrorCode.NONE

    async def _trouble(self, client: TransactionalClient, error: ErrorCode, what: str) -> None:
        require(
            error in REJOIN or error in NOT_NOW, f"{what} of {self.name} was answered {error.name}"
        )
        if error in NOT_NOW:
            client.forget(self.group, GROUP)
            await asyncio.sleep(PAUSE_S)
            return
        self._forget_assignment()
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.membership = ANYBODY
