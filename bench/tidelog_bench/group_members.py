"""The members of a group of KIP-848: they revoke and take what the answers say until all is shared.

They cost little, so that the time until a group is stable is the broker's: one loop over plain
sockets, requests that are encoded when they change, answers that are decoded when they do.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.apis import API
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.frames import RequestHeader, request_frame
from tidelog_protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest

if TYPE_CHECKING:
    from typing import Any

    from tidelog_protocol.schema import Message

__all__ = [
    "SIZE",
    "TOPIC",
    "WAIT_S_MAX",
    "Group",
    "Size",
    "consume",
    "decoded",
    "encoded",
    "refusal",
]

SIZE = struct.Struct(">i")  # of a frame
TOPIC = "grouped"
READ_BYTES = 1 << 16
VERSION = 1
WAIT_S_MAX = 120.0


class Size(NamedTuple):
    """How much is measured."""

    members: int = 100
    partitions: int = 1000
    groups: int = 10  # of each protocol, one after the other
    beating: int = 1000
    connections: int = 100  # of those that beat
    interval_s: float = 5.0
    seconds: float = 30.0  # a virtual machine is now fast, now slow


class Group:
    """A group while its members come: when the last has joined, and when all is shared."""

    def __init__(self, name: str, size: Size) -> None:
        self.name = name
        self.size = size
        self.joined_at = 0.0
        self.stable_at = 0.0
        self._waiting = size.members
        self._epoch = 0  # the latest that a member is in
        self._settled: dict[int, frozenset[int]] = {}  # partitions of members with their part of it

    @property
    def milliseconds(self) -> float:
        """The time from the last join to a stable group."""
        return (self.stable_at - self.joined_at) * 1000

    def joined(self) -> None:
        """Note that one more member has joined."""
        self._waiting -= 1
        if not self._waiting:
            self.joined_at = time.perf_counter()

    def holds(self, member: int, epoch: int, partitions: frozenset[int]) -> None:
        """Note what a member has; all is shared when each has its part of one epoch."""
        if epoch > self._epoch:
            self._epoch = epoch
            self._settled.clear()
        share = self.size.partitions // self.size.members
        if epoch < self._epoch or len(partitions) != share:
            self._settled.pop(member, None)
            return
        self._settled[member] = partitions
        if len(self._settled) == self.size.members and not self.stable_at:
            shared = frozenset[int]().union(*self._settled.values())
            if len(shared) == self.size.partitions:
                self.stable_at = time.perf_counter()


def encoded(request: Message, version: int) -> bytes:
    """Return the frame of a request."""
    assert request.API_KEY is not None
    api = API[request.API_KEY]
    return b"".join(request_frame(api, RequestHeader(api.key, version, 1, "bench"), request))


def decoded(request: Message, version: int, frame: bytes) -> Any:
    """Return the answer in a frame."""
    assert request.API_KEY is not None
    api = API[request.API_KEY]
    offset = SIZE.size + 4 + (api.response_header_version(version) >= 1)
    return api.response_codec(version).decode(frame, offset)


def refusal(answer: Any) -> RuntimeError:
    """Return the error of an answer that is one."""
    return RuntimeError(f"{type(answer).__name__}: {ErrorCode(answer.error_code).name}")


class _Member:
    """One member and its connection. As Kafka's consumer, it says only what is new."""

    def __init__(self, group: Group, number: int, connection: socket.socket) -> None:
        self._group, self._number, self._connection = group, number, connection
        self._member_id = f"member-{number}"
        self._epoch = 0
        self._owned = frozenset[int]()
        self._frame = self._encoded(
            rebalance_timeout_ms=60_000, subscribed_topic_names=[TOPIC], topic_partitions=[]
        )
        self._nothing_new = self._frame
        self._received = b""
        self._answer = b""  # the last one

    def _encoded(self, **said: Any) -> bytes:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group.name, member_id=self._member_id, member_epoch=self._epoch, **said
        )
        return encoded(request, VERSION)

    def beat(self) -> None:
        """Send a heartbeat; the first one joins."""
        self._connection.sendall(self._frame)
        self._frame = self._nothing_new

    def read(self) -> None:
        """Follow an answer once it is whole, and beat again."""
        data = self._connection.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError("no answer")
        self._received += data
        if len(self._received) < SIZE.size + SIZE.unpack_from(self._received)[0]:
            return
        frame, self._received = self._received, b""
        if frame != self._answer:
            self._answer = frame
            self._follow(decoded(ConsumerGroupHeartbeatRequest(), VERSION, frame))
        if not self._group.stable_at:
            self.beat()

    def _follow(self, answer: Any) -> None:
        if answer.error_code:
            raise refusal(answer)
        if not self._epoch:
            self._group.joined()
        self._epoch = answer.member_epoch
        self._frame = self._nothing_new = self._encoded()
        if answer.assignment is not None:
            given = answer.assignment.topic_partitions
            self._owned = frozenset(given[0].partitions) if given else frozenset()
            owned = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(
                    topic_id=each.topic_id, partitions=each.partitions
                )
                for each in given
            ]
            self._frame = self._encoded(topic_partitions=owned)
        self._group.holds(self._number, self._epoch, self._owned)


def consume(bootstrap: str, group: Group) -> None:
    """Have all members of a group come, and beat until it is stable."""
    host, _, port = bootstrap.rpartition(":")
    end = time.monotonic() + WAIT_S_MAX
    with selectors.DefaultSelector() as selector, ExitStack() as stack:
        members = []
        for number in range(group.size.members):
            connection = stack.enter_context(
                socket.create_connection((host, int(port)), WAIT_S_MAX)
            )
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            member = _Member(group, number, connection)
            selector.register(connection, selectors.EVENT_READ, member)
            members.append(member)
        for member in members:
            member.beat()
        while not group.stable_at:
            if time.monotonic() > end:
                raise TimeoutError(f"group {group.name} is not stable")
            for key, _ in selector.select(1.0):
                key.data.read()
