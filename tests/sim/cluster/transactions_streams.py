"""Copiers that are the instances of one Kafka Streams application, exactly once: members of a
streams group (KIP-1071) with a transactional id each, which commit offsets in the name of their
member epoch.

An instance looks at its tasks between transactions, so it gives them back with nothing open. What
keeps a zombie from committing is its epoch, and what keeps the next owner of its task from copying
twice is that offsets of an open transaction are waited for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sim.cluster.client import PAUSE_S
from sim.cluster.groups import NOT_NOW
from sim.cluster.streams_member import ABANDON, KEEP_ID, LEAVE
from sim.cluster.transactions_client import ANYBODY, GROUP, Membership
from sim.cluster.transactions_members import SESSION_MS, MemberCopier
from sim.cluster.transactions_reader import CommittedPlace
from sim.history import require
from sim.wire import Lost
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.streams_groups import StreamsGroupHeartbeatRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.cluster.transactions_client import TransactionalClient

APPLICATION = "an application exactly once"
SETTINGS: Mapping[str, str] = {
    "group.streams.assignment.interval.ms": "0",
    "group.streams.heartbeat.interval.ms": "100",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.min.session.timeout.ms": str(SESSION_MS),
    "group.streams.session.timeout.ms": str(SESSION_MS),
}
REBALANCE_MS = 2000
ONLY = "0"  # the subtopology


class StreamsCopier(MemberCopier):
    """One instance, with an active task for each partition that it copies."""

    def __init__(self, world: Any, name: str, group: str, acked: dict[int, int]) -> None:
        super().__init__(world, name, group, acked)
        self._told = frozenset[int]()  # partitions that it may have
        self._said: frozenset[int] | None = None  # that it has, as the coordinator knows

    async def is_current(self, client: TransactionalClient) -> bool:
        """Beat, give back what it may not have any more, and take what is new."""
        if not await self._beat(client):
            return False
        self.places = [each for each in self.places if each.history.index in self._told]
        new = self._told - self._held
        offsets = await self._committed(client) if new else {}
        if new and not offsets:
            return False  # the group went on without us meanwhile
        self.places += [
            CommittedPlace(each, max(0, offsets[each.index]))
            for each in self.world.transactions.sources
            if each.index in new & self._told
        ]
        if new:
            self.world.history.count("tasks of copiers")
        return True

    async def still(self, client: TransactionalClient) -> bool:
        """Whether it is worth to wait for the offsets."""
        return await self._beat(client)

    def lose_track(self) -> None:
        """Who comes after has the same place, or is a member of its own."""
        self.places = []
        if not self.world.is_quiet and self.rng.random() < 0.5:
            self.membership = ANYBODY

    def not_a_member(self) -> None:
        """Offsets are refused: nothing is known of what others have copied since."""
        self.places = []

    @property
    def _held(self) -> frozenset[int]:
        return frozenset(each.history.index for each in self.places)

    # -- the group ---------------------------------------------------------------------------------

    def _join_again(self, *, new_id: bool) -> None:
        name = self.membership.member_id
        if new_id or not name:
            name = f"{self.name}-{self.rng.getrandbits(64):016x}"
        self.membership = Membership(name, 0)
        self.places, self._told, self._said = [], frozenset(), None

    async def _beat(self, client: TransactionalClient) -> bool:
        """A heartbeat; whether the group has it that we are its member.

        An answer that is lost may have told of tasks, which no later one would: it joins again.
        """
        if not self.membership.member_id:
            self._join_again(new_id=True)
        held = self._held
        try:
            answer = await client.ask(self.group, GROUP, self._request(held), 0)
        except Lost:
            self._join_again(new_id=False)
            raise
        error = ErrorCode(answer.error_code)
        if error is not ErrorCode.NONE:
            await self._refused(client, error)
            return False
        self._said = held
        self.membership = self.membership._replace(generation=answer.member_epoch)
        if answer.active_tasks is not None:
            self._told = frozenset(n for each in answer.active_tasks for n in each.partitions)
        return True

    def _request(self, held: frozenset[int]) -> StreamsGroupHeartbeatRequest:
        member_id, epoch = self.membership
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group, member_id=member_id, member_epoch=epoch
        )
        if epoch == 0:
            source = self.world.transactions.sources[0].topic.name
            only = request.Subtopology(subtopology_id=ONLY, source_topics=[source])
            request.rebalance_timeout_ms, request.process_id = REBALANCE_MS, self.name
            request.topology = request.Topology(epoch=0, subtopologies=[only])
        if held != self._said:
            tasks = request.TaskIds(subtopology_id=ONLY, partitions=sorted(held))
            request.active_tasks = [tasks] if held else []
            request.standby_tasks, request.warmup_tasks = [], []
        return request

    async def _refused(self, client: TransactionalClient, error: ErrorCode) -> None:
        is_known = error in NOT_NOW or error in ABANDON
        require(is_known, f"StreamsGroupHeartbeat of {self.name} was answered {error.name}")
        if error in NOT_NOW:
            self._join_again(new_id=False)
            client.forget(self.group, GROUP)
            await asyncio.sleep(PAUSE_S)
        else:
            self._join_again(new_id=self.rng.random() >= KEEP_ID)

    async def leave(self) -> None:
        """Leave the group."""
        client = self._new_client()
        while self.membership.generation > 0:
            message = StreamsGroupHeartbeatRequest(
                group_id=self.group, member_id=self.membership.member_id, member_epoch=LEAVE
            )
            try:
                error = ErrorCode((await client.ask(self.group, GROUP, message, 0)).error_code)
            except Lost:
                continue
            if error not in NOT_NOW:
                is_known = error is ErrorCode.NONE or error in ABANDON
                require(is_known, f"an instance that leaves was answered {error.name}")
                self.membership = ANYBODY
            else:
                client.forget(self.group, GROUP)
                await asyncio.sleep(PAUSE_S)
        client.close()
