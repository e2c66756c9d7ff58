"""The calls that lose records: truncate a follower; let one lead that lacks the newest records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tidelog.cluster.controller.decisions import RefusedError
from tidelog.control.calls import Call
from tidelog.control.errors import REFUSED, ControlError
from tidelog.control.partitions import placed
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl
    from tidelog.control.partitions import Placed

__all__ = ["CALLS", "Lost"]


@dataclass(frozen=True)
class Cut:
    """The log of a follower, and the offset at which it shall end."""

    topic: str
    partition: int
    broker: int
    offset: int


@dataclass(frozen=True)
class CutHere:
    """A cut on its broker; with `stops` it fetches nothing more in this leader epoch."""

    topic: str
    partition: int
    broker: int
    offset: int
    stops: bool = False


@dataclass(frozen=True)
class End:
    """The offset at which a log ends now."""

    offset: int


@dataclass(frozen=True)
class Loss:
    """A partition, the first offset to lose, and the follower that shall lead; None: any."""

    topic: str
    offset: int
    partition: int = 0
    broker: int | None = None


@dataclass(frozen=True)
class Lost:
    """The new leader, and the offset at which the logs ended when it was elected."""

    leader: int
    offset: int


@dataclass(frozen=True)
class Behind:
    """A partition and the broker to elect."""

    topic: str
    partition: int
    broker: int


@dataclass(frozen=True)
class Elected:
    """Why the controller did not elect it; None if it did."""

    refusal: str | None = None


# -- the cluster -----------------------------------------------------------------------------------


async def _truncate(control: ClusterControl, args: Cut) -> End:
    """Truncate the log of a follower to an offset, or to the start of the batch that has it; it
    fetches the rest again. Return where it ended."""
    await placed(control, args.topic, args.partition)
    end: End = await control.node(args.broker).ask("broker.truncate", asdict(args))
    return end


async def _lose(control: ClusterControl, args: Loss) -> Lost:
    """Lose records as an unclean election does: a follower is truncated to an offset and leads in a
    new epoch; the others truncate their logs and follow it. Return when all are in sync."""
    where = await placed(control, args.topic, args.partition)
    broker = _successor(control, args, where)
    cut = {"topic": args.topic, "partition": args.partition, "broker": broker}
    ask = control.node(broker).ask
    end: End = await ask("broker.truncate", {**cut, "offset": args.offset, "stops": True})
    running = {node.node_id for node in control.running()}

    async def look() -> str | None:
        now = await placed(control, args.topic, args.partition)
        if now.leader == broker:
            missing = sorted(running.intersection(now.replicas) - set(now.isr))
            return f"brokers {missing} are not in sync" if missing else None
        controller = (await ask("broker.controller", {})).node_id
        if controller not in running:
            return f"broker {broker} knows no controller that runs"
        elected: Elected = await control.node(controller).ask("broker.elect_behind", cut)
        return elected.refusal or f"broker {broker} does not lead yet"

    await control.until(look)
    return Lost(broker, end.offset)


def _successor(control: ClusterControl, args: Loss, where: Placed) -> int:
    """Return the follower that shall lead."""
    name = f"{args.topic}-{args.partition}"
    followers = [
        node.node_id
        for node in control.running()
        if node.node_id in where.replicas and node.node_id != where.leader
    ]
    if where.leader == -1 or not followers:
        text = f"{name} has no leader" if where.leader == -1 else f"{name} has no other replica"
        raise ControlError(f"{text}: a follower must run", field="partition", status=REFUSED)
    if args.broker is None:
        return followers[0]
    control.node(args.broker)
    if args.broker not in followers:
        text = f"broker {args.broker} does not follow {name}; brokers {followers} do"
        raise ControlError(text, field="broker", status=REFUSED)
    return args.broker


# -- a broker --------------------------------------------------------------------------------------


def _truncate_here(control: BrokerControl, args: CutHere) -> End:
    """Truncate the log of a partition that this broker follows."""
    server = control.server
    replica = server.replicas.partition(args.topic, args.partition)
    name = f"{args.topic}-{args.partition}"
    if isinstance(replica, ErrorCode) or replica.is_leader:
        text = f"broker {args.broker} does not follow {name}"
        raise ControlError(text, field="broker", status=REFUSED)
    log = replica.log
    if not log.local_log_start_offset <= args.offset <= log.log_end_offset:
        text = (
            f"the log of {name} on broker {args.broker} has {log.local_log_start_offset} to"
            f" {log.log_end_offset}, not {args.offset}"
        )
        raise ControlError(text, field="offset", status=REFUSED)
    if not server.membership.truncate_follower(replica, args.offset, stops=args.stops):
        text = f"{name} is not fetched by broker {args.broker} now; it has no leader"
        raise ControlError(text, field="broker", status=REFUSED)
    return End(log.log_end_offset)


async def _elect_here(control: BrokerControl, args: Behind) -> Elected:
    """Elect a broker as if it were the only replica that runs, if this is the controller."""
    try:
        await control.server.membership.elect_behind(args.topic, args.partition, args.broker)
    except (RefusedError, StorageError) as error:
        return Elected(f"{error.code.name}: {error}")
    return Elected()


CALLS = (
    Call("topics.truncate", "cluster", Cut, End, _truncate),
    Call("topics.lose", "cluster", Loss, Lost, _lose),
    Call("broker.truncate", "broker", CutHere, End, _truncate_here),
    Call("broker.elect_behind", "broker", Behind, Elected, _elect_here),
)
