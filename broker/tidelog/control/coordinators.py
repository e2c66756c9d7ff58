"""The calls that move the controller and coordinators, and expire members and producer ids."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from tidelog.control.actions import Chosen, LogCount, replicas_of
from tidelog.control.calls import Call, Nothing
from tidelog.control.errors import MISSING, REFUSED, ControlError
from tidelog.control.partitions import lead
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl

__all__ = ["CALLS"]

NO_NODE = -1
NOT_HERE = -1
_FIELDS = {"group": "group_id", "transaction": "transactional_id"}


@dataclass(frozen=True)
class Controller:
    """The active controller's node id; -1 if it is not known."""

    node_id: int


@dataclass(frozen=True)
class GroupMove:
    """A group, and the broker that shall coordinate it."""

    group_id: str
    broker: int


@dataclass(frozen=True)
class TransactionMove:
    """A transactional id, and the broker that shall coordinate it."""

    transactional_id: str
    broker: int


@dataclass(frozen=True)
class Coordinated:
    """What a coordinator owns, by its id."""

    kind: Literal["group", "transaction"]
    key: str


@dataclass(frozen=True)
class Coordination:
    """The partition that decides about a coordinator, and whether this broker serves it now."""

    topic: str
    partition: int
    is_served: bool


@dataclass(frozen=True)
class Members:
    """A member of a group; without an id all of them."""

    group_id: str
    member_id: str | None = None


@dataclass(frozen=True)
class MemberCount:
    """How many members have left; -1 if this broker does not coordinate the group."""

    count: int


@dataclass(frozen=True)
class ProducerLogs:
    """How many logs of a broker know a producer id, and how many that it leads forgot it."""

    known: int
    count: int


@dataclass(frozen=True)
class Producer:
    """A producer id in the logs of a topic or of one partition; without a topic, of all topics."""

    producer_id: int
    topic: str | None = None
    partition: int | None = None


# -- the cluster -----------------------------------------------------------------------------------


async def _move_controller(control: ClusterControl, _: Nothing) -> Controller:
    """Let the active controller resign, and wait until another node is it; return its id."""
    if sum(node.is_voter for node in control.running()) < 2:
        text = "another controller needs two running voters; start a cluster of three brokers"
        raise ControlError(text, status=REFUSED)
    before = found = NO_NODE

    async def look() -> str | None:
        nonlocal before, found
        known = await control.ask_all("broker.controller", {})
        ids = {one.node_id for one in known.values()}
        if len(ids) == 1:
            (found,) = ids
            before = found if before == NO_NODE else before
        if len(ids) == 1 and found not in (NO_NODE, before):
            return None
        if before in known:  # again if it was elected once more
            await control.node(before).ask("broker.resign_controller", {})
        return f"the brokers know {sorted(ids)} as controller"

    await control.until(look)
    return Controller(found)


async def _move_group(control: ClusterControl, args: GroupMove) -> Nothing:
    """Let another broker coordinate a group, and wait until it does."""
    await _move(control, Coordinated("group", args.group_id), args.broker)
    return Nothing()


async def _move_transaction(control: ClusterControl, args: TransactionMove) -> Nothing:
    """Let another broker coordinate a transactional id, and wait until it does."""
    await _move(control, Coordinated("transaction", args.transactional_id), args.broker)
    return Nothing()


async def _move(control: ClusterControl, what: Coordinated, broker: int) -> None:
    node = control.node(broker)
    if node not in control.running():
        text = f"broker {broker} is not running; start it first"
        raise ControlError(text, field="broker", status=REFUSED)
    where = await node.ask("broker.coordination", asdict(what))
    await lead(control, where.topic, where.partition, broker)

    async def look() -> str | None:
        served = (await node.ask("broker.coordination", asdict(what))).is_served
        return None if served else f"broker {broker} has not loaded {what.kind} {what.key}"

    await control.until(look)


async def _expire_members(control: ClusterControl, args: Members) -> MemberCount:
    """Let the sessions of a group's members time out now; return how many have left."""
    answers = await control.ask_all("broker.expire_members", asdict(args))
    counts = [one.count for one in answers.values() if one.count != NOT_HERE]
    if not counts:
        text = f"no running broker coordinates a group {args.group_id!r}"
        raise ControlError(text, field="group_id", status=MISSING)
    return MemberCount(sum(counts))


async def _expire_producer(control: ClusterControl, args: Producer) -> LogCount:
    """Let logs forget a producer id, as after `producer.id.expiration.ms`; return how many
    leaders' logs did. One in an open transaction stays."""
    control.first()
    answers = (await control.ask_all("broker.expire_producer", asdict(args))).values()
    if not any(one.known for one in answers):
        text = f"no log knows producer id {args.producer_id}"
        raise ControlError(text, field="producer_id", status=MISSING)
    return LogCount(sum(one.count for one in answers))


# -- a broker --------------------------------------------------------------------------------------


def _controller_here(control: BrokerControl, _: Nothing) -> Controller:
    """Return the controller that this broker knows."""
    return Controller(control.server.metadata.image.controller_id)


def _resign_here(control: BrokerControl, _: Nothing) -> Nothing:
    """Let another voter be the active controller, if this one is."""
    control.server.membership.resign_controller()
    return Nothing()


def _coordination_here(control: BrokerControl, args: Coordinated) -> Coordination:
    """Return the partition of a group or transactional id."""
    server = control.server
    coordinators = server.parts
    owner = coordinators.groups if args.kind == "group" else coordinators.transactions.coordinator
    topic = owner.topic.name
    if topic not in server.metadata.image.topics:
        text = f"there is no {topic} yet; a client's first {args.kind} creates it"
        raise ControlError(text, field=_FIELDS[args.kind], status=MISSING)
    is_served = not isinstance(owner.shard_of(args.key), ErrorCode)
    return Coordination(topic, owner.partition_for(args.key), is_served)


def _expire_members_here(control: BrokerControl, args: Members) -> MemberCount:
    """Expire members of a group that this broker coordinates."""
    ended = control.server.parts.groups.end_sessions(args.group_id, args.member_id)
    if ended is None:
        text = f"group {args.group_id} has no member {args.member_id!r}"
        raise ControlError(text, field="member_id", status=MISSING)
    return MemberCount(NOT_HERE if isinstance(ended, ErrorCode) else ended)


def _expire_producer_here(control: BrokerControl, args: Producer) -> ProducerLogs:
    """Expire a producer id in the logs of this broker; one in a transaction stays."""
    known = [
        replica
        for replica in replicas_of(control, Chosen(args.topic, args.partition))
        if args.producer_id in replica.log.producers.producers
    ]
    forgot = [each for each in known if each.log.producers.forget(args.producer_id)]
    return ProducerLogs(len(known), sum(each.is_leader for each in forgot))


CALLS = (
    Call("cluster.move_controller", "cluster", Nothing, Controller, _move_controller),
    Call("groups.move", "cluster", GroupMove, Nothing, _move_group),
    Call("groups.expire", "cluster", Members, MemberCount, _expire_members),
    Call("transactions.move", "cluster", TransactionMove, Nothing, _move_transaction),
    Call("topics.expire_producer", "cluster", Producer, LogCount, _expire_producer),
    Call("broker.controller", "broker", Nothing, Controller, _controller_here),
    Call("broker.resign_controller", "broker", Nothing, Nothing, _resign_here),
    Call("broker.coordination", "broker", Coordinated, Coordination, _coordination_here),
    Call("broker.expire_members", "broker", Members, MemberCount, _expire_members_here),
    Call("broker.expire_producer", "broker", Producer, ProducerLogs, _expire_producer_here),
)
