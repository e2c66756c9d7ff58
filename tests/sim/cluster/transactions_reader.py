"""Readers of committed records: what a consumer with isolation.level=read_committed makes of Fetch.

As clients do: the leader sends whole batches up to the last stable offset and a list of aborted
transactions; the consumer drops what belongs to those.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.cluster.client import PAUSE_S, ClusterClient
from sim.cluster.consumers import LATER, SESSIONLESS, later_of
from sim.cluster.transactions_ledger import ABORTED, OPEN
from sim.history import require
from sim.wire import Lost
from tidelog.simulation.machines import RACKS
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchRequest
from tidelog_protocol.records import (
    ControlType,
    control_type,
    crc_is_valid,
    iter_batches,
    iter_records,
)

if TYPE_CHECKING:
    from sim.history import PartitionHistory

READ_COMMITTED = 1


class Found(NamedTuple):
    """A committed record."""

    offset: int
    value: bytes


class CommittedPlace:
    """How far one partition was read, by whom."""

    def __init__(self, history: PartitionHistory, position: int = 0) -> None:
        self.history, self.position = history, position
        self.follower: int | None = None


class CommittedClient:
    """Fetches committed records, place by place."""

    def __init__(self, world: Any, name: str, rng: random.Random, *, rack: str = "") -> None:
        self.world, self.name, self.rng, self.rack = world, name, rng, rack
        self.cluster = ClusterClient(world.machines, name, rng)
        self.version = rng.choice((11, 12, 16, 18))
        self.partition_bytes = rng.choice((200, 2000, 50_000))

    async def fetch(self, place: CommittedPlace) -> list[Found]:
        """What comes next, if anything; Lost if nobody answers."""
        try:
            return await self._fetch(place)
        except Lost:
            place.follower = None
            await asyncio.sleep(PAUSE_S)
            await self.cluster.refresh()
            raise

    async def _fetch(self, place: CommittedPlace) -> list[Found]:
        epoch, leader = await self.cluster.leader(place.history)
        node_id = leader if place.follower is None else place.follower
        if node_id < 0:
            raise Lost("no leader")
        topic = place.history.topic
        asked = FetchRequest.FetchPartition(
            partition=place.history.index,
            current_leader_epoch=epoch,
            fetch_offset=place.position,
            # In the end it hurries: there may be a lot to read.
            partition_max_bytes=self.partition_bytes * (50 if self.world.is_quiet else 1),
        )
        request = FetchRequest(
            max_wait_ms=200,
            min_bytes=1,
            max_bytes=200_000,
            isolation_level=READ_COMMITTED,
            session_epoch=SESSIONLESS,
            topics=[
                FetchRequest.FetchTopic(
                    topic=topic.name, topic_id=topic.topic_id, partitions=[asked]
                )
            ],
            rack_id=self.rack,
        )
        response = await self.cluster.ask(node_id, request, self.version)
        answer = response.responses[0].partitions[0]
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and place.follower is not None:
            place.follower = None  # it is behind: the leader knows
            return []
        if error is not ErrorCode.NONE:
            require(
                error in LATER
                or error in later_of(topic)
                or self.world.rot.refuses(error, node_id, place.history),
                f"{self.name}: {place.history} at {place.position} gives {error.name}",
            )
            raise Lost(error.name)
        if answer.preferred_read_replica >= 0:
            place.follower = answer.preferred_read_replica
            return []
        if not answer.records and place.follower is not None and self.rng.random() < 0.2:
            place.follower = None
        data = bytes(answer.records or b"")
        for position, header in iter_batches(data):
            if not crc_is_valid(data, header, position):
                history = place.history
                require(
                    self.world.rot.seen(node_id, history),
                    f"{self.name}: {history}: a bad batch after {place.position} from {node_id}",
                )
                raise Lost("bad checksum")
        return self._committed(place, data, answer)

    def _committed(self, place: CommittedPlace, data: bytes, answer: Any) -> list[Found]:
        """Drop what was aborted, and move on."""
        aborted = sorted(
            (each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()
        )
        skipped: set[int] = set()
        found: list[Found] = []
        # A new leader may not know yet how much is stable; what was copied is. As in Kafka, reads
        # of the remote tier have no other end.
        topic = place.history.topic
        copied_to = self.world.tier.copied_to(topic.topic_id, place.history.index)
        for position, header in iter_batches(data):
            while aborted and aborted[0][0] <= header.last_offset:
                skipped.add(aborted.pop(0)[1])
            require(
                header.last_offset < max(answer.last_stable_offset, copied_to + 1),
                f"{self.name}: {place.history} at {header.last_offset}, and the last stable offset"
                f" is {answer.last_stable_offset}",
            )
            records = list(iter_records(data, position))
            if header.is_control:
                if control_type(records[0]) == ControlType.ABORT:
                    skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                found += [
                    Found(record.offset, record.value or b"")
                    for record in records
                    if record.offset >= place.position
                ]
            place.position = max(place.position, header.last_offset + 1)
        for each in found:
            attempt = self.world.transactions.ledger.of(each.value)
            require(
                attempt.outcome not in (OPEN, ABORTED),
                f"{self.name} reads {each.value[:40]!r} of {attempt} at {each.offset}"
                f" of {place.history}",
            )
        return found


class CommittedReader:
    """Reads all partitions to the end, from leaders and followers."""

    def __init__(self, world: Any, name: str) -> None:
        self.world, self.name = world, name
        self.rng = random.Random(f"{world.seed}:{name}")
        self.client = CommittedClient(world, name, self.rng, rack=self.rng.choice((*RACKS, "")))
        self.found: dict[PartitionHistory, list[Found]] = {}

    async def run(self) -> None:
        """Until all transactions are over, and all of them are read."""
        places = [CommittedPlace(each) for each in self.world.transactions.partitions()]
        self.found = {place.history: [] for place in places}
        ends: dict[PartitionHistory, int] | None = None
        while ends is None or any(place.position < ends[place.history] for place in places):
            for place in places:
                try:
                    self.found[place.history] += await self.client.fetch(place)
                except Lost:
                    continue
            if ends is None and self.world.transactions.are_over:
                ends = self.world.transactions.ends()
        self.client.cluster.close()
        for place in places:
            self.world.history.count("committed records read", len(self.found[place.history]))
