"""The calls on whole brokers: describe, stop, kill, start, add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.control.calls import Call, Nothing
from tidelog.control.errors import REFUSED, ControlError
from tidelog.control.starting import set_up
from tidelog_storage.base_error import TidelogError

if TYPE_CHECKING:
    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl, ControlledNode

__all__ = ["CALLS", "BrokerState", "Brokers", "Running"]


@dataclass(frozen=True)
class Running:
    """A running broker, as it sees itself."""

    cluster_id: str
    broker_epoch: int
    controller_id: int
    """The active controller that it knows; -1 if none."""
    metrics_port: int | None
    """The port of its Prometheus endpoint (`metrics.prometheus.listener`), if it has one."""


@dataclass(frozen=True)
class BrokerState:
    """A broker of the cluster; `running` is None if it does not run or is frozen."""

    node_id: int
    is_running: bool
    is_frozen: bool
    address: str | None
    failure: str | None
    """Why it stopped on its own."""
    running: Running | None
    pid: int | None = None
    """Its process, which it may share; None if it does not run."""


@dataclass(frozen=True)
class Brokers:
    """All brokers, in the order of their ids, and the addresses of those that run."""

    bootstrap_servers: str
    brokers: tuple[BrokerState, ...]


@dataclass(frozen=True)
class OneBroker:
    """A broker by its node id."""

    broker: int


@dataclass(frozen=True)
class AddBroker:
    """A broker to add, its rack, and where clients reach it if the cluster's ports are mapped."""

    rack: str | None = None
    advertised_listeners: str | None = None


def _describe(control: BrokerControl, _: Nothing) -> Running:
    """Describe this broker."""
    server = control.server
    image = server.metadata.image
    own = image.brokers.get(server.config.node_id)
    return Running(
        cluster_id=image.cluster_id,
        broker_epoch=-1 if own is None else own.epoch,
        controller_id=image.controller_id,
        metrics_port=server.metrics_port,
    )


async def _describe_all(control: ClusterControl, _: Nothing) -> Brokers:
    """Describe all brokers, whether they run or not."""
    running = await control.ask_all("broker.describe", {})
    states = tuple(
        BrokerState(
            node_id=node.node_id,
            is_running=node.is_running,
            is_frozen=node.is_frozen,
            address=node.bootstrap_server if node.is_running else None,
            failure=None if node.failure is None else " ".join(str(node.failure).split()),
            running=running.get(node.node_id),
            pid=node.pid if node.is_running else None,
        )
        for node in control.cluster.brokers
    )
    return Brokers(_servers(control), states)


def _servers(control: ClusterControl) -> str:
    try:
        return control.cluster.bootstrap_servers
    except TidelogError:
        return ""  # no broker is left


async def _stop(control: ClusterControl, args: OneBroker) -> Brokers:
    """Move a broker's leaderships to other brokers, then stop it."""
    async with control.one_at_a_time:
        await control.node(args.broker).stop()
    return await _describe_all(control, Nothing())


async def _kill(control: ClusterControl, args: OneBroker) -> Brokers:
    """End a broker like a crash: by SIGKILL if it has its own process."""
    async with control.one_at_a_time:
        await control.node(args.broker).kill()
    return await _describe_all(control, Nothing())


async def _start(control: ClusterControl, args: OneBroker) -> Brokers:
    """Start a broker again on its data and its ports."""
    async with control.one_at_a_time:
        node = control.node(args.broker)
        if node.is_running:
            text = f"broker {args.broker} is already running"
            raise ControlError(text, field="broker", status=REFUSED)
        _check_majority(control, node)
        await node.start()
    return await _describe_all(control, Nothing())


def _check_majority(control: ClusterControl, node: ControlledNode) -> None:
    """Refuse a start that waits for others, which no call could start meanwhile."""
    voters = [one for one in control.cluster.brokers if one.is_voter]
    running = [one for one in voters if one.is_running or one is node]
    if voters and 2 * len(running) <= len(voters):
        text = (
            f"broker {node.node_id} cannot start yet: {len(running)} of {len(voters)} voters of the"
            " metadata quorum would run, which is no majority; start all brokers at once"
        )
        raise ControlError(text, field="broker", status=REFUSED)


async def _start_brokers(control: ClusterControl, _: Nothing) -> Brokers:
    """Start all brokers that are not running, at once, on their data and their ports."""
    async with control.one_at_a_time:
        await control.cluster.start_brokers()
    return await _describe_all(control, Nothing())


async def _freeze(control: ClusterControl, args: OneBroker) -> Brokers:
    """Freeze a broker: nothing passes its connections until it thaws. Isolated, it gets SIGSTOP."""
    async with control.one_at_a_time:
        node = control.node(args.broker)
        if not node.is_running or node.is_frozen:
            state = "is frozen already" if node.is_running else "is not running"
            raise ControlError(f"broker {args.broker} {state}", field="broker", status=REFUSED)
        await node.freeze()
    return await _describe_all(control, Nothing())


async def _thaw(control: ClusterControl, args: OneBroker) -> Brokers:
    """Let a frozen broker go on."""
    async with control.one_at_a_time:
        node = control.node(args.broker)
        if not node.is_frozen:
            text = f"broker {args.broker} is not frozen"
            raise ControlError(text, field="broker", status=REFUSED)
        await node.thaw()
        await set_up(control, node)
    return await _describe_all(control, Nothing())


async def _add(control: ClusterControl, args: AddBroker) -> Brokers:
    """Start one more broker, the last of the result. It is no voter of the metadata quorum."""
    async with control.one_at_a_time:
        settings = {"advertised.listeners": args.advertised_listeners}
        await control.cluster.add_broker(settings, rack=args.rack)
    return await _describe_all(control, Nothing())


CALLS = (
    Call("broker.describe", "broker", Nothing, Running, _describe),
    Call("brokers.describe", "cluster", Nothing, Brokers, _describe_all),
    Call("brokers.stop", "cluster", OneBroker, Brokers, _stop),
    Call("brokers.kill", "cluster", OneBroker, Brokers, _kill),
    Call("brokers.start", "cluster", OneBroker, Brokers, _start),
    Call("cluster.start_brokers", "cluster", Nothing, Brokers, _start_brokers),
    Call("brokers.freeze", "cluster", OneBroker, Brokers, _freeze),
    Call("brokers.thaw", "cluster", OneBroker, Brokers, _thaw),
    Call("cluster.add_broker", "cluster", AddBroker, Brokers, _add),
)
