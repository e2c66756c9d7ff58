"""Transactional producers, and copiers that read, write and commit offsets in one transaction.

Instances of a transactional id come and go: some die in the middle of a transaction, some go on
after their successor has begun (zombies), some wait for so long that the coordinator ends it.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.cluster.client import PAUSE_S
from sim.cluster.groups import NOT_NOW
from sim.cluster.transactions_client import (
    ANYBODY,
    GROUP,
    Abort,
    Fenced,
    Membership,
    TransactionalClient,
)
from sim.cluster.transactions_ledger import ABORTED, COMMITTED
from sim.cluster.transactions_reader import CommittedClient, CommittedPlace, Found
from sim.history import require
from sim.wire import Lost
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.group_offsets import OffsetFetchRequest

if TYPE_CHECKING:
    from sim.cluster.transactions_ledger import Attempt

PAUSES_S = (0.0, 0.0, 0.005, 0.02, 0.1, 0.5)
TIMEOUT_MS_SHORT = 3000  # the coordinator ends it soon enough
LONG_S = (1.0, 2.0, 5.0)  # some transactions run out of time


class Transactional:
    """What both kinds do alike: one instance after the other."""

    def __init__(self, world: Any, name: str) -> None:
        self.world, self.name = world, name
        self.rng = random.Random(f"{world.seed}:{name}")
        self.hosts = [f"{name}-{side}" for side in "ab"]
        self._instances = 0
        self._is_open_for_long = False  # the last instance may have left a transaction open
        self._zombies: list[asyncio.Task[Any]] = []

    def is_done(self) -> bool:
        """Whether there is nothing more to do."""
        raise NotImplementedError

    async def prepare(self, client: TransactionalClient) -> None:
        """What an instance does first."""

    async def fill(self, client: TransactionalClient, attempt: Attempt) -> bool:
        """Write one transaction; False if there is nothing to write now."""
        raise NotImplementedError

    async def before_end(self) -> None:
        """When all is written."""

    async def settled(self, client: TransactionalClient, attempt: Attempt) -> None:
        """It is committed, or it is not."""

    def lose_track(self) -> None:
        """An instance is gone, and how its last transaction ended is not known."""

    async def run(self) -> None:
        """Until everything is done."""
        while not self.is_done():
            client = self._new_client()
            is_left_alone = is_lost = False
            try:
                await client.init()
                await self.prepare(client)
                while not self.is_done() and not is_left_alone:
                    is_left_alone = await self._transaction(client)
            except Fenced:
                self.world.history.count("transactional instances fenced")
                is_lost = True
            if is_lost or is_left_alone:
                self.lose_track()
            self._is_open_for_long = client.timeout_ms > TIMEOUT_MS_SHORT
            if not is_left_alone:
                client.close()
            await self._pause(PAUSES_S)
        for zombie in self._zombies:
            await zombie
        if self._is_open_for_long:
            client = self._new_client()
            await client.init()
            client.close()

    def _new_client(self) -> TransactionalClient:
        self._instances += 1
        self._is_open_for_long = False
        host = self.hosts[self._instances % 2]
        name = f"{self.name}#{self._instances}"
        return TransactionalClient(self.world, self.name, name, host, self.rng)

    async def _transaction(self, client: TransactionalClient) -> bool:
        """One transaction; whether the instance is left to itself, or dead."""
        attempt = client.begin()
        try:
            if not await self.fill(client, attempt):
                return False
            await self.before_end()
            if not self.world.is_quiet:
                chance = self.rng.random()
                if chance < 0.08:
                    return self._leave(client, attempt)
                if chance < 0.13:
                    await self._pause(LONG_S)
        except Abort:
            await client.abort(attempt)
            await self.settled(client, attempt)
            return False
        if self.rng.random() < (0.02 if self.world.is_quiet else 0.15):
            await client.abort(attempt)
        else:
            await client.commit(attempt)
        await self.settled(client, attempt)
        await self._pause(PAUSES_S)
        return False

    def _leave(self, client: TransactionalClient, attempt: Attempt) -> bool:
        """It dies, or (a zombie) sleeps while another takes over."""
        self.world.history.count("transactional instances left alone")
        if self.rng.random() < 0.5:
            client.close()
            attempt.end(ABORTED)
        else:
            client.rng = random.Random(f"{self.world.seed}:{client.name}")
            zombie = self.world.spawn(client.name, self._wake(client, attempt))
            self._zombies.append(zombie)
        return True

    async def _wake(self, client: TransactionalClient, attempt: Attempt) -> None:
        await asyncio.sleep(client.rng.choice((0.0, 0.02, 0.2, 1.0)))
        try:
            await client.commit(attempt)
        except Fenced:
            self.world.history.count("zombies fenced")
        client.close()

    async def _pause(self, choices: tuple[float, ...]) -> None:
        if not self.world.is_quiet:
            await asyncio.sleep(self.rng.choice(choices))


class TransactionalProducer(Transactional):
    """Some records for some partitions, again and again."""

    def __init__(self, world: Any, name: str, transactions: int) -> None:
        super().__init__(world, name)
        self._left = transactions

    def is_done(self) -> bool:
        """All are tried, or it is time to end."""
        return self._left <= 0

    async def fill(self, client: TransactionalClient, attempt: Attempt) -> bool:
        """Some batches."""
        self._left -= 1
        places = self.world.transactions.sources
        for _ in range(self.rng.randint(1, 5)):
            target = self.rng.choice(places)
            place = (target.topic.name, target.index)
            size = self.rng.choice((0, 20, 300))
            values = [attempt.new_value(place, "." * size) for _ in range(self.rng.randint(1, 3))]
            await client.send(target, values)
            await self._pause((0.0, 0.0, 0.01, 0.05))
        return True


class Copier(Transactional):
    """Reads what is committed in the source topic, writes it to the other one and commits how far
    it has read, all in one transaction."""

    def __init__(self, world: Any, name: str) -> None:
        super().__init__(world, name)
        self.group = f"{name}-group"
        self.reader = CommittedClient(world, name, self.rng)
        self.places: list[CommittedPlace] = []
        self._acked: dict[int, int] = {}  # offsets by partition that are committed for sure

    def is_done(self) -> bool:
        """Everything is copied."""
        workload = self.world.transactions
        if not workload.sources_are_written or not self.places:
            return False
        ends = workload.ends()
        return all(place.position >= ends[place.history] for place in self.places)

    async def prepare(self, client: TransactionalClient) -> None:
        """Go on where the group is."""
        sources = self.world.transactions.sources
        offsets = await self._committed(client)
        self.places = [CommittedPlace(each, max(0, offsets[each.index])) for each in sources]

    async def _committed(self, client: TransactionalClient) -> dict[int, int]:
        """Offsets of the group, when no transaction is open; none if it is not `still` ours."""
        sources = self.world.transactions.sources
        acked = dict(self._acked)
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(
            name=sources[0].topic.name, partition_indexes=[each.index for each in sources]
        )
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.group, topics=[topic])
        message = OffsetFetchRequest(groups=[group], require_stable=True)
        while await self.still(client):
            try:
                answer = (await client.ask(self.group, GROUP, message, 8)).groups[0]
            except Lost:
                continue
            if not client.is_witness:
                # An earlier coordinator that does not know of its end tells old offsets, as Apache
                # Kafka's does; whoever goes on from there copies twice.
                client.forget(self.group, GROUP)
                await asyncio.sleep(PAUSE_S)
                continue
            partitions = answer.topics[0].partitions if answer.topics else []
            errors = {ErrorCode(answer.error_code), *(ErrorCode(p.error_code) for p in partitions)}
            errors.discard(ErrorCode.NONE)
            if not errors:
                break
            require(
                errors <= NOT_NOW | {ErrorCode.UNSTABLE_OFFSET_COMMIT},
                f"OffsetFetch of {self.group} gives {errors}",
            )
            client.forget(self.group, GROUP)
            await asyncio.sleep(PAUSE_S)
        else:
            return {}
        offsets = {each.partition_index: each.committed_offset for each in partitions}
        for index, offset in acked.items():
            require(
                offsets[index] >= offset,
                f"{self.group} committed {offset} of partition {index} in a transaction, and has"
                f" {offsets[index]}",
            )
        self._acked |= {index: offset for index, offset in offsets.items() if offset >= 0}
        return offsets

    async def still(self, client: TransactionalClient) -> bool:
        """Whether there is nothing better to do than to wait for the offsets."""
        del client
        return True

    async def before_offsets(self) -> None:
        """When records are sent, and the offsets are not."""

    def member(self) -> Membership:
        """In whose name offsets are committed."""
        return ANYBODY

    def lose_track(self) -> None:
        """The group knows how far it is."""
        self.places = []

    async def fill(self, client: TransactionalClient, attempt: Attempt) -> bool:
        """Copy what some partition has now."""
        place = self.rng.choice(self.places)
        before = place.position
        try:
            found: list[Found] = await self.reader.fetch(place)
        except Lost:
            return False
        if place.position == before:
            return False
        targets = self.world.transactions.targets
        target = targets[place.history.index % len(targets)]
        attempt.source = (place.history.index, before, place.position)
        name = (target.topic.name, target.index)
        values = [attempt.new_value(name, f"{place.history.index}:{each.offset}") for each in found]
        while values:
            count = 20 if self.world.is_quiet else self.rng.randint(1, 4)
            await client.send(target, values[:count])
            values = values[count:]
        await self.before_offsets()
        source = (place.history.topic.name, place.history.index)
        await client.send_offset(self.group, source, place.position, self.member())
        return True

    async def settled(self, client: TransactionalClient, attempt: Attempt) -> None:
        """Only what is committed is behind us."""
        if attempt.source is None:
            return
        index, before, after = attempt.source
        if attempt.outcome == COMMITTED:
            self._acked[index] = max(self._acked.get(index, 0), after)
            self.world.history.count("copies committed")
        else:
            for place in self.places:
                if place.history.index == index:
                    place.position = before
