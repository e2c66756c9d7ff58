"""A member of a group by the classic protocol, which may become a group of KIP-848 and back.

An eager one gives everything up before it joins. A cooperative one (KIP-429) says what it has,
gives up what it is not assigned, and joins again then. Where it leads it divides the partitions.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Any

from sim.cluster.client import PAUSE_S
from sim.cluster.groups import NOT_NOW
from sim.cluster.member_process import BEAT_S, COMMIT, MemberProcess
from sim.history import Violation
from sim.observed_beats import assigned_topics, owned_topics
from sim.wire import Lost
from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ErrorCode
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

AGAIN = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})
VERSION = 1  # of the bytes of Kafka's ConsumerProtocol
_INT16 = Struct(">h")
_Assigned = ConsumerProtocolAssignment.TopicPartition
_Owned = ConsumerProtocolSubscription.TopicPartition


class ClassicMember(MemberProcess):
    """One process."""

    late = AGAIN | {ErrorCode.UNKNOWN_MEMBER_ID}

    _is_in = False
    _counts: tuple[tuple[str, int], ...] = ()  # partitions by topic, as it has divided them

    async def run(self) -> None:
        """Join, and beat."""
        while not self.is_leaving:
            try:
                await asyncio.sleep(self.rng.uniform(*BEAT_S))
                if self._is_in:
                    await self._beat()
                else:
                    await self._join()
            except Lost:
                self.beats = 0
        self.client.close()

    async def _join(self) -> None:
        if not self.habits.is_cooperative:
            self.held = self.target = frozenset()
        subscription = ConsumerProtocolSubscription(
            topics=list(self.subscription.names), user_data=None, owned_partitions=self._owned()
        )
        metadata = _INT16.pack(VERSION) + codec(type(subscription), VERSION).encode(subscription)
        response = await self.client.ask(
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=self.habits.session_ms,
                rebalance_timeout_ms=self.habits.rebalance_ms,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[
                    JoinGroupRequest.JoinGroupRequestProtocol(
                        name=self._protocol, metadata=metadata
                    )
                ],
            ),
            7,
        )
        error = ErrorCode(response.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif error is not ErrorCode.NONE:
            await self._trouble(error, "JoinGroup")
        else:
            self.member_id, self.generation = response.member_id, response.generation_id
            leads = response.leader == self.member_id
            await self._sync(self._divided(response.members) if leads else [])

    @property
    def _protocol(self) -> str:
        return "cooperative-sticky" if self.habits.is_cooperative else "range"

    def _owned(self) -> list[Any]:
        names = {
            topic.topic_id.hex(): name for name, topic in self.world.machines.image().topics.items()
        }
        return [
            _Owned(topic=names[topic_id], partitions=[index])
            for topic_id, index in sorted(self.held)
            if topic_id in names
        ]

    def _divided(self, members: Iterable[Any]) -> list[Any]:
        """What it assigns to each as the leader; to none what another one has yet."""
        names = sorted(member.member_id for member in members)
        owners: dict[tuple[str, int], list[str]] = {}
        for member in members:
            for topic, indexes in owned_topics(member.metadata):
                for index in indexes:
                    owners.setdefault((topic, index), []).append(member.member_id)
        self._counts = self._counted()
        shares: dict[str, dict[str, list[int]]] = {name: {} for name in names}
        places = [(topic, index) for topic, count in self._counts for index in range(count)]
        for number, (topic, index) in enumerate(places):
            name = names[number % len(names)]
            if owners.get((topic, index), [name]) == [name]:
                shares[name].setdefault(topic, []).append(index)
        return [
            SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=name,
                assignment=_INT16.pack(VERSION)
                + codec(ConsumerProtocolAssignment, VERSION).encode(
                    ConsumerProtocolAssignment(
                        assigned_partitions=[
                            _Assigned(topic=topic, partitions=indexes)
                            for topic, indexes in share.items()
                        ]
                    )
                ),
            )
            for name, share in shares.items()
        ]

    def _counted(self) -> tuple[tuple[str, int], ...]:
        """Its topics and how many partitions they have, as fresh metadata says."""
        topics = self.world.machines.image().topics
        return tuple(
            (name, len(topics[name].partitions))
            for name in self.subscription.names
            if name in topics
        )

    async def _sync(self, assignments: list[Any]) -> None:
        response = await self.client.ask(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                assignments=assignments,
            ),
            4,
        )
        error = ErrorCode(response.error_code)
        if error is not ErrorCode.NONE:
            await self._trouble(error, "SyncGroup")
            return
        topics = self.world.machines.image().topics
        before = self.held
        self.held = self.target = frozenset(
            (topics[name].topic_id.hex(), index)
            for name, indexes in assigned_topics(response.assignment)
            for index in indexes
        )
        self._is_in = before <= self.held
        self.world.history.count("classic members in a mixed group")

    async def _beat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        error = ErrorCode((await self.client.ask(request, 4)).error_code)
        if error is ErrorCode.NONE and self.rng.random() < COMMIT:
            error = await self.commit_some(self.held)
        if error is not ErrorCode.NONE:
            await self._trouble(error, "Heartbeat or OffsetCommit")
            return
        self.beats += 1
        if self._counts and self._counts != self._counted():
            self._counts, self._is_in = (), False  # topics have grown: the leader joins again

    async def _trouble(self, error: ErrorCode, what: str) -> None:
        self.beats = 0
        if error in NOT_NOW:
            self.client.forget()
            await asyncio.sleep(PAUSE_S)
        elif error in AGAIN:
            self._is_in = False
            if error is ErrorCode.ILLEGAL_GENERATION:
                self.held = self.target = frozenset()
        elif error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id, self.generation, self._is_in = "", -1, False
            self.held = self.target = frozenset()
            self.world.history.count("classic members put out of a mixed group")
        else:
            raise Violation(f"{what} of {self.name} was answered {error.name}")

    async def leave(self) -> None:
        """Leave for good."""
        self.held = frozenset()
        member: Any = LeaveGroupRequest.MemberIdentity(member_id=self.member_id)
        while self.member_id:
            try:
                response = await self.client.ask(
                    LeaveGroupRequest(group_id=self.group, members=[member]), 5
                )
            except Lost:
                if not self.world.is_quiet:
                    return
                continue
            if response.error_code not in NOT_NOW:
                return
            self.client.forget()
            await asyncio.sleep(PAUSE_S)
