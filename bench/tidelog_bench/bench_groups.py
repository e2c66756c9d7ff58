"""How soon a large group is stable, and what its heartbeats cost: `python -m
tidelog_bench.bench_groups`.

100 members share 1,000 partitions, with the classic protocol and with that of KIP-848, against
tidelog and Apache Kafka. Members have a connection each, join at once and beat without pauses until
all have their partitions, so that the figure is the broker's part: heartbeat intervals are left
out, and assignments do not wait for each other (`consumer.assignment.interval.ms` 0). Groups come
one after the other, and the middle of the last ones counts: a JVM has compiled by then what it
needs. Then 1,000 members of KIP-848 beat every 5 s, on cores of their own, and the broker's CPU is
counted. Prints one JSON object. The members of KIP-848 are in `group_members.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import struct
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tidelog.embedded.simple_client import SimpleClient, create_topic
from tidelog_bench.group_members import (
    SIZE,
    TOPIC,
    WAIT_S_MAX,
    Group,
    Size,
    consume,
    decoded,
    encoded,
    refusal,
)
from tidelog_bench.peers.apache_kafka import ApacheKafka
from tidelog_bench.peers.process import apart
from tidelog_bench.peers.tidelog import Tidelog
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest
from tidelog_protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from tidelog_protocol.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog_bench.peers.peer import Peer
    from tidelog_protocol.schema import Message

__all__ = ["Connection", "Size", "await_coordinator", "check", "compare", "measure"]

PEERS: dict[str, Callable[[Path], Peer]] = {"tidelog": Tidelog, "kafka": ApacheKafka}
SETTLED_INTERVALS = 3  # to revoke, to be given, and to say so
LAST = 5  # groups that count
PAUSE_S = 0.005  # a turn for the other members
SESSION_MS = 45_000
GROUP_RESOURCE, SET = 32, 0
JOIN_VERSION, SYNC_VERSION, BEAT_VERSION, CONSUMER_VERSION = 3, 3, 3, 1
# A subscription of the consumer protocol, version 0, to TOPIC.
METADATA = b"\0\0\0\0\0\1\0\7" + TOPIC.encode() + b"\xff\xff\xff\xff"
NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class Connection(asyncio.Protocol):
    """One member's connection: one request at a time, with little work of its own."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._turn = asyncio.Lock()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, bootstrap: str) -> Connection:
        """Connect to `host:port`."""
        host, _, port = bootstrap.rpartition(":")
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(cls, host, int(port)))[1]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send to this one."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Hand an answer over when it is whole."""
        self._received += data
        if len(self._received) < SIZE.size or self._answer is None:
            return
        if len(self._received) == SIZE.size + SIZE.unpack_from(self._received)[0]:
            if not self._answer.done():  # else the member has ended
                self._answer.set_result(bytes(self._received))
            self._received.clear()
            self._answer = None

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the request that has no answer yet."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("no answer"))

    async def ask(self, request: Message, version: int) -> Any:
        """Send a request and return its answer."""
        async with self._turn:
            assert self._transport is not None
            answer = self._answer = asyncio.get_running_loop().create_future()
            self._transport.write(encoded(request, version))
            return decoded(request, version, await answer)

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.close()


async def consume_classic(group: Group, number: int, connection: Connection) -> None:
    """Be a classic member until the group is stable; the leader assigns."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=METADATA)
    member_id, has_joined = "", False
    while not group.stable_at:
        joined = await connection.ask(
            JoinGroupRequest(
                group_id=group.name,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=60_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[protocol],
            ),
            JOIN_VERSION,
        )
        check(joined)
        member_id = joined.member_id
        if not has_joined:
            has_joined = True
            group.joined()
        synced = await connection.ask(
            SyncGroupRequest(
                group_id=group.name,
                generation_id=joined.generation_id,
                member_id=member_id,
                assignments=_divided(group.size, joined),
            ),
            SYNC_VERSION,
        )
        if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            continue
        check(synced)
        data = bytes(synced.assignment)
        mine = frozenset(struct.unpack(f">{len(data) // 4}i", data))
        group.holds(number, joined.generation_id, mine)
        beat = HeartbeatRequest(
            group_id=group.name, generation_id=joined.generation_id, member_id=member_id
        )
        while not group.stable_at:
            answer = await connection.ask(beat, BEAT_VERSION)
            if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                break
            check(answer)
            await asyncio.sleep(PAUSE_S)


def _divided(size: Size, joined: Any) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
    """Assign as the leader; other members have an empty list of members."""
    names = [each.member_id for each in joined.members]
    return [
        SyncGroupRequest.SyncGroupRequestAssignment(
            member_id=name,
            assignment=struct.pack(f">{len(mine)}i", *mine),
        )
        for n, name in enumerate(names)
        for mine in [range(n, size.partitions, len(names))]
    ]


def check(answer: Any) -> None:
    """RuntimeError if an answer, or a part of it, is an error."""
    if answer.error_code:
        raise refusal(answer)


async def join_classic(bootstrap: str, group: Group) -> None:
    """Have all classic members of a group come, until it is stable."""
    opened = [await Connection.open(bootstrap) for _ in range(group.size.members)]
    try:
        async with asyncio.timeout(WAIT_S_MAX), asyncio.TaskGroup() as tasks:
            for number, connection in enumerate(opened):
                tasks.create_task(consume_classic(group, number, connection))
    finally:
        for connection in opened:
            connection.close()


class Beating:
    """Members that follow their assignment and beat at intervals, over few connections."""

    def __init__(self, group: str, size: Size, opened: Sequence[Connection]) -> None:
        self._group, self._size, self._opened = group, size, opened
        self._epochs: dict[int, int] = {}
        self._told: dict[int, list[Any]] = {}  # what members got, and say once that they have

    async def beat(self, number: int) -> None:
        """Send one heartbeat of a member; the first one joins."""
        epoch = self._epochs.get(number, 0)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=f"m-{number}", member_epoch=epoch
        )
        if not epoch:
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names, request.topic_partitions = [TOPIC], []
        elif number in self._told:
            request.topic_partitions = self._told.pop(number)
        answer = await self._opened[number % len(self._opened)].ask(request, CONSUMER_VERSION)
        check(answer)
        self._epochs[number] = answer.member_epoch
        if answer.assignment is not None:
            self._told[number] = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(
                    topic_id=each.topic_id, partitions=each.partitions
                )
                for each in answer.assignment.topic_partitions
            ]

    async def spread(self) -> None:
        """Have all members beat until this is cancelled, evenly spread over the interval."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._size.beating):
                tasks.create_task(self._every(number))

    async def _every(self, number: int) -> None:
        await asyncio.sleep(self._size.interval_s * number / self._size.beating)
        while True:
            await self.beat(number)
            await asyncio.sleep(self._size.interval_s)


async def beat_cost(peer: Peer, group: str, size: Size) -> float:
    """Return the share of a core, in percent, that heartbeats of a large group take."""
    opened = [await Connection.open(peer.bootstrap) for _ in range(size.connections)]
    try:
        members = Beating(group, size, opened)
        for number in range(size.beating):
            await members.beat(number)
        async with asyncio.TaskGroup() as tasks:
            beating = tasks.create_task(members.spread())
            await asyncio.sleep(SETTLED_INTERVALS * size.interval_s)
            before, began = peer.cpu_seconds(), time.perf_counter()
            await asyncio.sleep(size.seconds)
            share = (peer.cpu_seconds() - before) / (time.perf_counter() - began)
            beating.cancel()
        return 100 * share
    finally:
        for connection in opened:
            connection.close()


def measure(peer: Peer, size: Size) -> dict[str, float]:
    """Measure one broker."""
    create_topic(peer.bootstrap, TOPIC, size.partitions, {})
    large, *names = (f"group-{time.monotonic_ns()}-{n}" for n in range(1 + 2 * size.groups))
    consumers, classics = names[::2], names[1::2]
    with SimpleClient(peer.bootstrap) as client:
        for name in (large, *names):
            await_coordinator(client, name)
        assign_at_once(client, consumers)

    modern, classic = ([Group(name, size) for name in part] for part in (consumers, classics))
    for group in modern:
        consume(peer.bootstrap, group)
    for group in classic:
        asyncio.run(join_classic(peer.bootstrap, group))
    figures = {
        "KIP-848 ms": median(group.milliseconds for group in modern[-LAST:]),
        "classic ms": median(group.milliseconds for group in classic[-LAST:]),
    }
    with apart(peer.child.pid):
        figures["heartbeats, % of a core"] = asyncio.run(beat_cost(peer, large, size))
    return {name: round(value, 1) for name, value in figures.items()}


def assign_at_once(client: SimpleClient, groups: Sequence[str]) -> None:
    """Have assignments of these groups not wait for each other."""
    setting = IncrementalAlterConfigsRequest.AlterableConfig(
        name="consumer.assignment.interval.ms", config_operation=SET, value="0"
    )
    resources = [
        IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=name, configs=[setting]
        )
        for name in groups
    ]
    client.ask(IncrementalAlterConfigsRequest(resources=resources))


def await_coordinator(client: SimpleClient, group: str) -> None:
    """Wait until the coordinator of a group has loaded."""
    end = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < end:
        found = client.ask(FindCoordinatorRequest(key=group), version_max=3)
        if found.error_code == ErrorCode.NONE:
            asked = HeartbeatRequest(group_id=group, generation_id=1, member_id="none")
            if client.ask(asked, version_max=BEAT_VERSION).error_code not in NOT_YET:
                return
        time.sleep(0.05)
    raise TimeoutError(f"no coordinator of {group}")


def compare(question: str | None, measured: Callable[[Peer], dict[str, float]]) -> None:
    """Measure the peers in turns, as the command line says, and print one JSON object."""
    parser = argparse.ArgumentParser(description=question)
    parser.add_argument("--peer", action="append", choices=[*PEERS], help="by default all")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    results: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for name in options.peer or PEERS:
            with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
                peer = PEERS[name](Path(folder) / name)
                try:
                    peer.start()
                    results.setdefault(name, []).append(measured(peer))
                finally:
                    peer.remove()
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    compare(__doc__, lambda peer: measure(peer, Size()))
