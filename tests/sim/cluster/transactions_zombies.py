"""A group's coordinator dies again and again, while offsets are committed in transactions: they
never go back, and nobody takes those of a member or a producer that has been replaced meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from sim.cluster.groups import NOT_NOW
from sim.cluster.transactions_client import GROUP, Abort, Fenced, Membership, NotMember
from sim.cluster.transactions_ledger import ABORTED, COMMITTED
from sim.cluster.transactions_steps import SETTLED_S_MAX, TOPIC, Case, StepWorld
from sim.history import Violation, require
from sim.wire import Lost
from tidelog.cluster.metadata.image import GROUP_METADATA_TOPIC
from tidelog.simulation.loop import SimLoop
from tidelog.simulation.machine import in_lane
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from tidelog_protocol.messages.groups import JoinGroupRequest, SyncGroupRequest

if TYPE_CHECKING:
    from sim.cluster.transactions_client import TransactionalClient

ROUNDS = 6
SUCCESSORS = 12
MOMENT_S_MAX = 1.0
GONE_ON = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class ZombieWorld(StepWorld):
    """One story at a time; every client is whole, and only coordinators die."""

    def __init__(self, loop: SimLoop, story: str, *, is_v2: bool, seed: int) -> None:
        super().__init__(loop, Case(story, "", is_v2, seed=seed))
        self.killed = 0  # nobody dies at a step
        self._is_over = False

    async def run(self) -> None:
        """From empty disks to the end of the story."""
        for machine in self.machines:
            in_lane("test", self._keep(machine))
        await self.within(SETTLED_S_MAX, self.unready)
        await self._create()
        await self._choose()
        await getattr(self, "_" + self.case.step.replace(" ", "_"))()
        await self.within(SETTLED_S_MAX, self.checkers.unsettled)
        self.checkers.check()

    async def _kill_coordinator(self) -> None:
        """The group's dies, and another one takes over."""
        before = self._leader_of(GROUP_METADATA_TOPIC, self.home)
        self.machines.by_id[before].die("kill")

        def is_moved() -> str | None:
            leader = self._leader_of(GROUP_METADATA_TOPIC, self.home)
            return f"the group is still {before}'s" if leader in (-1, before) else None

        await self.within(SETTLED_S_MAX, is_moved)

    async def _all_back(self) -> None:
        """Everybody runs, so that the next one may die."""
        await self.within(SETTLED_S_MAX, self.unready)
        await self.within(SETTLED_S_MAX, self._not_in_sync)

    def _not_in_sync(self) -> str | None:
        image = self.machines.image()
        for topic in () if image is None else image.topics.values():
            for state in topic.partitions:
                if len(state.isr) < len(state.replicas):
                    return f"{topic.name}-{state.partition} has {state.isr} in sync"
        return None

    # -- what the group has ------------------------------------------------------------------------

    async def _fetched(self, client: TransactionalClient, *, is_stable: bool) -> int | None:
        """The group's offset; None if nobody says, or who says may be deposed."""
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.group, topics=[topic])
        message = OffsetFetchRequest(groups=[group], require_stable=is_stable)
        try:
            answer = (await client.ask(self.group, GROUP, message, 8)).groups[0]
        except Lost:
            return None
        partition = answer.topics[0].partitions[0] if answer.topics else None
        if answer.error_code or (partition is not None and partition.error_code):
            client.forget(self.group, GROUP)
            return None
        offset: int = -1 if partition is None else partition.committed_offset
        return offset if client.is_witness else None

    async def _watch(self, name: str, *, is_stable: bool) -> list[int]:
        """What is seen all the while."""
        client = self._client(name)
        seen = [-1]
        while not self._is_over:
            offset = await self._fetched(client, is_stable=is_stable)
            if offset is not None:
                require(
                    offset >= seen[-1], f"{self.case}: {offset} is committed, and {seen[-1]} was"
                )
                seen.append(offset)
            await asyncio.sleep(0.01)
        client.close()
        return seen

    # -- the stories -------------------------------------------------------------------------------

    async def _offsets_never_go_back(self) -> None:
        watchers = [
            in_lane("watcher", self._watch(f"watcher-{is_stable}", is_stable=is_stable))
            for is_stable in (False, True)
        ]
        client = self._client("committer")
        await client.init()
        committed = 0
        for number in range(1, ROUNDS + 1):
            attempt = client.begin()
            dying = in_lane("test", self._kill_at(number % 4))
            try:
                await client.send(self.topic.partition(0), [attempt.new_value((TOPIC, 0), "")])
                await client.send_offset(self.group, (TOPIC, 0), number)
                is_commit = number % 3 != 0
            except Abort:  # its coordinator agreed, and then another one led the group
                is_commit = False
            await (client.commit if is_commit else client.abort)(attempt)
            committed = number if is_commit else committed
            await dying
            await self._all_back()
            seen = [await self._fetched(client, is_stable=True) for _ in range(20)]
            last = next((each for each in reversed(seen) if each is not None), None)
            require(last == committed, f"{self.case}: {committed} is committed, {last} is told")
        self._is_over = True
        for watcher in watchers:
            seen_all = await watcher
            require(seen_all[-1] == committed, f"{self.case}: {seen_all[-1]} seen in the end")
        client.close()

    async def _kill_at(self, moment: int) -> None:
        """At once, or with offsets that wait, or when their transaction is decided."""

        def is_not_yet() -> str | None:
            if moment < 2:
                return None
            transaction = self.transaction()
            seen = self._look()
            if moment == 2:
                return None if seen is not None and seen.end[2] > seen.committed[2] else "no"
            return None if transaction is not None and transaction.pending is not None else "no"

        with contextlib.suppress(Violation):
            await self.within(MOMENT_S_MAX, is_not_yet, look_s=0.0003)
        await self._kill_coordinator()

    async def _offsets_that_are_open(self) -> None:
        """Who has taken a partition over waits for the end of its predecessor's transaction."""
        self.machines.network.latency_s = (0.001, 0.01)
        chatter = [in_lane(f"chatter-{n}", self._chat(f"chatter-{n}")) for n in range(2)]
        client = self._client("committer")
        await client.init()
        committed = -1
        for number in range(1, ROUNDS + 1):
            attempt = client.begin()
            # As soon as they hear anything it has to be how the transaction has ended.
            asking = []
            try:
                await client.send_offset(self.group, (TOPIC, 0), number)
                if number == ROUNDS // 2:
                    await self._kill_coordinator()
                for n in range(SUCCESSORS):
                    name = f"successor-{number}-{n}"
                    asking.append(in_lane(name, self._first_told(name, n / 1000)))
                await asyncio.sleep(self.rng.uniform(0.02, 0.1))
                is_commit = number % 3 != 0
            except Abort:  # its coordinator agreed, and then another one led the group
                is_commit = False
            await (client.commit if is_commit else client.abort)(attempt)
            committed = number if is_commit else committed
            told = {await each for each in asking} or {committed}
            require(told == {committed}, f"{self.case}: {told} is told, {committed} is committed")
            await self._all_back()
        self._is_over = True
        await asyncio.wait(chatter)
        client.close()

    async def _chat(self, name: str) -> None:
        """Commit something else all the while, so that there is always something to wait for."""
        client = self._client(name)
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=1, committed_offset=1, committed_metadata=""
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
        while not self._is_over:
            await self._answered(
                client, OffsetCommitRequest(group_id=self.group, topics=[topic]), 8
            )
        client.close()

    async def _first_told(self, name: str, after_s: float) -> int:
        await asyncio.sleep(after_s)
        client = self._client(name)
        found = None
        while found is None:
            found = await self._fetched(client, is_stable=True)
            await asyncio.sleep(0.001)
        client.close()
        return found

    async def _a_member_that_was_replaced(self) -> None:
        old, new = self._client("old"), self._client("new")
        new.transactional_id = f"{self.transactional_id}-of-another"
        member = await self._join(old, "")
        await old.init()
        attempt = old.begin()
        await old.send(self.topic.partition(0), [attempt.new_value((TOPIC, 0), "")])
        await self._kill_coordinator()
        successor = await self._join(new, "")
        require(successor.generation > member.generation, f"{member} and then {successor}")
        for _ in range(2):  # this coordinator, and the one after it
            require(await self._is_refused(old, member), f"{self.case}: {member} commits")
            try:
                await old.send_offset(self.group, (TOPIC, 0), 99, member)
                require(False, f"{self.case}: {member} commits in a transaction")
            except NotMember:
                pass
            await self._all_back()
            await self._kill_coordinator()
        await old.abort(attempt)
        await new.init()
        second = new.begin()
        await new.send_offset(self.group, (TOPIC, 0), 7, successor)
        await new.commit(second)
        require(attempt.outcome == ABORTED and second.outcome == COMMITTED, f"{self.case}")
        await self._expect(7)
        for client in (old, new):
            client.close()

    async def _is_refused(self, client: TransactionalClient, member: Membership) -> bool:
        """Outside of transactions."""
        topic_of = OffsetCommitRequest.OffsetCommitRequestTopic
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=99, committed_metadata=""
        )
        message = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            topics=[topic_of(name=TOPIC, partitions=[partition])],
        )
        answer = await self._answered(client, message, 8)
        return ErrorCode(answer.topics[0].partitions[0].error_code) in GONE_ON

    async def _answered(self, client: TransactionalClient, message: Any, version: int) -> Any:
        """By the coordinator, wherever it is by then."""
        while True:
            try:
                answer = await client.ask(self.group, GROUP, message, version)
            except Lost:
                continue
            error = answer.topics[0].partitions[0] if hasattr(answer, "topics") else answer
            if ErrorCode(error.error_code) not in NOT_NOW:
                return answer
            client.forget(self.group, GROUP)
            await asyncio.sleep(0.05)

    async def _join(self, client: TransactionalClient, member_id: str) -> Membership:
        """A generation of its own: whoever else was there does not come back."""
        promised = None  # an id that was given with MEMBER_ID_REQUIRED
        while True:
            join = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=1500,
                rebalance_timeout_ms=1500,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="all", metadata=b"")],
            )
            joined = await self._answered(client, join, 7)
            is_promised = joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID and member_id == promised
            member_id = "" if is_promised else joined.member_id
            if is_promised:
                continue  # the coordinator that gave the id is another one by now
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                promised = member_id
                continue
            require(joined.error_code == 0, f"JoinGroup gives {joined.error_code}")
            share = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"")
            sync = SyncGroupRequest(
                group_id=self.group,
                generation_id=joined.generation_id,
                member_id=member_id,
                assignments=[share],
            )
            if not (await self._answered(client, sync, 4)).error_code:
                return Membership(member_id, joined.generation_id)

    async def _a_producer_that_was_replaced(self) -> None:
        old, new = self._client("old"), self._client("new")
        await old.init()
        attempt = old.begin()
        await old.send(self.topic.partition(0), [attempt.new_value((TOPIC, 0), "")])
        await old.send_offset(self.group, (TOPIC, 0), 3)
        await self._kill_coordinator()
        await new.init()
        await self._expect(-1)
        await self._refuses(old, 4)
        second = new.begin()
        await new.send_offset(self.group, (TOPIC, 0), 8)
        await self._refuses(old, 5)
        await self._all_back()
        await self._kill_coordinator()
        await self._refuses(old, 6)
        await new.commit(second)
        await self._refuses(old, 9)
        try:
            await old.commit(attempt)
            require(False, f"{self.case}: who was replaced commits")
        except Fenced:
            pass
        attempt.end(ABORTED)
        await self._expect(8)
        for client in (old, new):
            client.close()

    async def _refuses(self, client: TransactionalClient, offset: int) -> None:
        """Whoever leads the group now, an epoch that was replaced commits nothing."""
        try:
            await client.send_offset(self.group, (TOPIC, 0), offset)
        except (Abort, Fenced):
            return
        require(False, f"{self.case}: offset {offset} of who was replaced is taken")

    async def _expect(self, offset: int) -> None:
        client = self._client("onlooker")
        found = None
        while found is None:
            found = await self._fetched(client, is_stable=True)
            await asyncio.sleep(0.01)
        client.close()
        require(found == offset, f"{self.case}: {found} is committed, not {offset}")


STORIES = (
    "offsets never go back",
    "offsets that are open",
    "a member that was replaced",
    "a producer that was replaced",
)


def tell(story: str, *, is_v2: bool, seed: int) -> str | None:
    """What went wrong; None if nothing did."""
    loop = SimLoop(f"{story}:{is_v2}:{seed}")
    world = ZombieWorld(loop, story, is_v2=is_v2, seed=seed)
    failure = None
    try:
        loop.run_until_complete(world.run())
    except (AssertionError, Abort, Fenced) as error:
        failure = f"{type(error).__name__}: {error}"
    finally:
        loop.close()
        world.machines.bury()
    return failure
