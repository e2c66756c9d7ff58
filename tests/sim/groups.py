"""Consumer groups: members that join, sync, beat and commit, and a group that only commits.

Nobody reads anything here: the committed numbers rise with every attempt, so that what a group has
committed tells which commits were lost.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from sim.history import Violation, require
from sim.wire import Client, Lost
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from tidelog_protocol.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from typing import Any

    from sim.world import World

NOT_NOW = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
REJOIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})
SESSION_MS = 1500


class GroupClient:
    """What members and simple groups do alike."""

    instance_id: str | None = None  # group.instance.id, of a static member (KIP-345)
    commit_version = 8  # of OffsetCommit

    def __init__(self, world: World, name: str, group: str) -> None:
        self.world, self.name, self.group = world, name, group
        self.rng = random.Random(f"{world.seed}:{name}")
        self.client = self.new_client()
        self.member_id = ""
        self.generation = -1

    def new_client(self) -> Any:
        """Who asks the coordinator."""
        return Client(self.world.machine, self.name)

    async def find_coordinator(self) -> None:
        """Until there is one; the first time this creates `__consumer_offsets`."""
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        while True:
            try:
                response = await self.client.ask(request, 4)
            except Lost:
                continue
            error = ErrorCode(response.coordinators[0].error_code)
            if error is ErrorCode.NONE:
                return
            require(error in NOT_NOW, f"FindCoordinator was answered {error.name}")
            await asyncio.sleep(0.05)

    async def commit(self, name: str, index: int) -> ErrorCode:
        """Commit the next number; the error."""
        committed = self.world.history.commits(self.group, name, index)
        number = committed.next()
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=number, committed_metadata="m" * 20
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=[partition])
            ],
        )
        response = await self.client.ask(request, self.commit_version)
        error = ErrorCode(response.topics[0].partitions[0].error_code)
        if error is ErrorCode.NONE:
            self.world.history.count("offsets committed")
            if not self.world.history.power_failed_since(self.client.life):
                committed.acked = max(committed.acked, number)
        return error

    async def check(self) -> None:
        """What is committed is no older than what was acknowledged."""
        failures = len(self.world.history.power_failures)
        acked = {
            (name, index): committed.acked
            for (group, name, index), committed in self.world.history.committed.items()
            if group == self.group
        }
        if not acked:
            return
        fetched = await self._fetch_committed(list(acked))
        if failures != len(self.world.history.power_failures):
            return
        for key, number in fetched.items():
            tried = self.world.history.commits(self.group, *key).tried
            require(
                acked[key] <= number <= tried,
                f"{self.group} committed {acked[key]} to {key}, tried {tried}, and has {number}",
            )

    async def _fetch_committed(self, keys: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=[index])
            for name, index in keys
        ]
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.group, topics=topics)
        while True:
            try:
                response = (await self.client.ask(OffsetFetchRequest(groups=[group]), 8)).groups[0]
            except Lost:
                continue
            if response.error_code == ErrorCode.NONE:
                return {
                    (topic.name, answer.partition_index): answer.committed_offset
                    for topic in response.topics
                    for answer in topic.partitions
                }
            error = ErrorCode(response.error_code)
            require(error in NOT_NOW, f"OffsetFetch {self.group} was answered {error.name}")
            await asyncio.sleep(0.05)


class SimpleGroup(GroupClient):
    """Commits without members."""

    async def run(self) -> None:
        """Commit, and look what is committed."""
        await self.find_coordinator()
        topics = self.world.base_topics
        for _ in range(self.rng.randint(10, 40)):
            topic = self.rng.choice(topics)
            try:
                error = await self.commit(topic.name, self.rng.randrange(topic.partitions_min))
            except Lost:
                continue
            require(
                error is ErrorCode.NONE or error in NOT_NOW,
                f"OffsetCommit {self.group} was answered {error.name}",
            )
            if self.rng.random() < 0.2:
                await self.check()
            await asyncio.sleep(self.rng.choice((0.01, 0.05, 0.2)))
        await self.check()
        self.client.close()


class Member(GroupClient):
    """A member of a group that balances all partitions of the base topics among its members."""

    session_ms = SESSION_MS

    def __init__(self, world: World, name: str, group: str) -> None:
        super().__init__(world, name, group)
        self.assigned: list[tuple[str, int]] = []
        self.beats = 0  # good heartbeats in this generation
        self.is_flighty = self.rng.random() < 0.3  # goes away now and then

    async def run(self) -> None:
        """Be a member until the run is over, then leave."""
        await self.find_coordinator()
        while not self.world.is_over:
            try:
                if await self._join():
                    await self._live()
            except Lost:
                self.beats = 0
                continue
        await self._leave()
        await self.check()
        self.client.close()

    async def _join(self) -> bool:
        """Join and sync; whether there is an assignment now."""
        self.beats = 0
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="all", metadata=b"")
        response = await self.client.ask(
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=self.session_ms,
                rebalance_timeout_ms=2000,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocols=[protocol],
            ),
            7,
        )
        error = ErrorCode(response.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        if error is not ErrorCode.NONE:
            await self._trouble(error, "JoinGroup")
            return False
        self.member_id, self.generation = response.member_id, response.generation_id
        members = [member.member_id for member in response.members]
        require(
            bool(members) == (response.leader == self.member_id), "members are for the leader alone"
        )
        if self.instance_id is None:  # one that comes back hears of the leader it was (KIP-345)
            self.world.note_leader(self.group, self.generation, response.leader, self.client.life)
        return await self._sync(members)

    async def _sync(self, members: list[str]) -> bool:
        shares: dict[str, list[str]] = {member: [] for member in members}
        if members:
            for number, (name, index) in enumerate(self.world.base_partitions()):
                shares[members[number % len(members)]].append(f"{name}:{index}")
        response = await self.client.ask(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                assignments=[
                    SyncGroupRequest.SyncGroupRequestAssignment(
                        member_id=member, assignment=",".join(share).encode()
                    )
                    for member, share in shares.items()
                ],
            ),
            4,
        )
        error = ErrorCode(response.error_code)
        if error is not ErrorCode.NONE:
            await self._trouble(error, "SyncGroup")
            return False
        words = [word for word in response.assignment.decode().split(",") if word]
        self.assigned = [
            (name, int(index)) for name, _, index in (word.partition(":") for word in words)
        ]
        self.world.history.count("group assignments")
        return True

    async def _live(self) -> None:
        """Beat and commit until the group wants a new round."""
        while not self.world.is_over:
            await asyncio.sleep(self.rng.uniform(0.05, 0.2))
            response = await self.client.ask(
                HeartbeatRequest(
                    group_id=self.group,
                    generation_id=self.generation,
                    member_id=self.member_id,
                    group_instance_id=self.instance_id,
                ),
                4,
            )
            error = ErrorCode(response.error_code)
            if error is ErrorCode.NONE and self.assigned and self.rng.random() < 0.5:
                error = await self.commit(*self.rng.choice(self.assigned))
            if error is not ErrorCode.NONE:
                await self._trouble(error, "Heartbeat or OffsetCommit")
                if error not in NOT_NOW:
                    return
                continue
            self.beats += 1
            if self.is_flighty and not self.world.is_quiet and self.rng.random() < 0.05:
                if self.rng.random() < 0.5:
                    await self._leave()
                await asyncio.sleep(self.rng.uniform(0.5, 3))
                return

    async def _trouble(self, error: ErrorCode, what: str) -> None:
        self.beats = 0
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id, self.generation = "", -1
        elif error not in REJOIN and error is not ErrorCode.MEMBER_ID_REQUIRED:
            if error not in NOT_NOW:
                raise Violation(f"{what} of {self.name} was answered {error.name}")
            await asyncio.sleep(0.05)

    async def _leave(self) -> None:
        member: Any = LeaveGroupRequest.MemberIdentity(member_id=self.member_id)
        while self.member_id:
            try:
                response = await self.client.ask(
                    LeaveGroupRequest(group_id=self.group, members=[member]), 5
                )
            except Lost:
                if not self.world.is_over:
                    return
                continue
            if response.error_code not in NOT_NOW:
                self.member_id, self.generation = "", -1
            else:
                await self._trouble(ErrorCode(response.error_code), "LeaveGroup")
