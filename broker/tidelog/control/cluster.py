"""What the calls on a cluster act on: its nodes, in this loop or in processes of their own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tidelog.control.cluster_time import ClusterTime
from tidelog.control.errors import MISSING, REFUSED, UNANSWERED, ControlError
from tidelog.control.faults.link_values import Links

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tidelog.control.credentials.state import SecurityState
    from tidelog.control.faults.device_faults import Device
    from tidelog.control.faults.rules import Count, Rule

__all__ = ["ClusterControl", "ControlledCluster", "ControlledNode"]

SETTLE_S_MAX = 30.0
LOOK_AGAIN_S = (0.001, 0.016)  # doubled each time: most waits are short


class ControlledNode(Protocol):
    """A node of a cluster, as calls see it; `embedded/nodes.py` has both kinds."""

    failure: BaseException | None

    @property
    def node_id(self) -> int:
        """Its id in the cluster."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether it is running."""
        ...

    @property
    def is_frozen(self) -> bool:
        """Whether it is frozen."""
        ...

    @property
    def is_isolated(self) -> bool:
        """Whether it has its own process."""
        ...

    @property
    def is_voter(self) -> bool:
        """Whether it votes in the metadata quorum."""
        ...

    @property
    def bootstrap_server(self) -> str:
        """Its `host:port`, while it is running."""
        ...

    @property
    def pid(self) -> int:
        """Id of its process, while it is running."""
        ...

    async def ask(self, call: str, args: Mapping[str, Any]) -> Any:
        """Perform a call of scope "broker" and return its result."""
        ...

    async def start(self) -> None:
        """Start it."""
        ...

    async def stop(self) -> None:
        """Stop it cleanly."""
        ...

    async def kill(self) -> None:
        """End it like a crash."""
        ...

    async def freeze(self) -> None:
        """Let it stand still."""
        ...

    async def thaw(self) -> None:
        """Let it go on."""
        ...


class ControlledCluster(Protocol):
    """A cluster, as calls see it; `embedded/cluster.py` has it."""

    @property
    def brokers(self) -> Sequence[ControlledNode]:
        """A handle for each broker, whether it runs or not."""
        ...

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every running broker."""
        ...

    @property
    def security(self) -> SecurityState:
        """How clients authenticate."""
        ...

    async def start_brokers(self) -> None:
        """Start the brokers that are not running."""
        ...

    async def add_broker(
        self, settings: Mapping[str, str | None], /, *, rack: str | None = None
    ) -> ControlledNode:
        """Start one more broker."""
        ...


class ClusterControl:
    """The control of a cluster, in the process of its `Cluster`."""

    SCOPE: ClassVar = "cluster"

    def __init__(self, cluster: ControlledCluster) -> None:
        self.cluster = cluster
        self.one_at_a_time = asyncio.Lock()
        """Held while a broker starts or ends, and while time moves."""
        self.time = ClusterTime()
        self.fault_rules: tuple[Rule, ...] = ()
        self.fault_counts: dict[int, Count] = {}
        """Of isolated brokers together; brokers of this process count on their own."""
        self.followed: dict[int, asyncio.Future[None]] = {}
        self.next_fault_id = 1
        self.links = Links()
        self.devices: tuple[Device, ...] = ()
        self.devices_added = 0
        self.log_levels: dict[str, str] = {}
        """The level of each part that was given one."""

    @property
    def counts_for_processes(self) -> bool:
        """Whether this process counts for several isolated brokers."""
        nodes = self.cluster.brokers
        return (
            len(nodes) > 1
            and all(node.is_isolated for node in nodes)
            and any(rule.trigger.is_limited for rule in self.fault_rules)
        )

    def is_apart(self, node: ControlledNode) -> bool:
        """Return whether other brokers may not know a running broker: frozen, or its links cut."""
        return node.is_frozen or any(node.node_id in link.ends for link in self.links.links)

    def apart(self) -> tuple[int, ...]:
        """Return the ids of the brokers that others may wait for in vain."""
        nodes = self.cluster.brokers
        return tuple(each.node_id for each in nodes if not each.is_running or self.is_apart(each))

    def node(self, node_id: int) -> ControlledNode:
        """Return a broker by its id; ControlError if there is none."""
        for node in self.cluster.brokers:
            if node.node_id == node_id:
                return node
        ids = ", ".join(str(node.node_id) for node in self.cluster.brokers)
        text = f"there is no broker {node_id}; the brokers are {ids or 'none'}"
        raise ControlError(text, field="broker", status=MISSING)

    def running(self) -> list[ControlledNode]:
        """Return the brokers that run and are not frozen."""
        return [node for node in self.cluster.brokers if node.is_running and not node.is_frozen]

    def first(self) -> ControlledNode:
        """Return a broker that runs; ControlError if none does."""
        running = self.running()
        if not running:
            raise ControlError("no broker is running; start one first", status=REFUSED)
        return running[0]

    def first_of_majority(self) -> ControlledNode:
        """Return a broker that runs, to ask the controller by it.

        ControlError if no majority of the voters runs: no controller would answer.
        """
        first = self.first()
        voters = [node for node in self.cluster.brokers if node.is_voter]
        running = [node for node in self.running() if node.is_voter]
        if voters and 2 * len(running) <= len(voters):
            text = (
                f"{len(running)} of {len(voters)} voters of the metadata quorum run, which is no"
                " majority; start the others"
            )
            raise ControlError(text, status=REFUSED)
        return first

    async def until(self, look: Callable[[], Awaitable[str | None]]) -> None:
        """Wait until `look` returns None; ControlError with what it returned last."""
        missing: str | None = "no answer"
        pause_s, pause_s_max = LOOK_AGAIN_S
        try:
            async with asyncio.timeout(SETTLE_S_MAX):
                while (missing := await look()) is not None:  # processes share no event
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, pause_s_max)
        except TimeoutError:
            text = f"{missing}, after {SETTLE_S_MAX:g} s"
            raise ControlError(text, status=UNANSWERED) from None

    async def ask_all(self, call: str, args: Mapping[str, Any]) -> dict[int, Any]:
        """Ask all running brokers at once; return their results by node id."""
        nodes = self.running()
        results = await asyncio.gather(*(node.ask(call, args) for node in nodes))
        return {node.node_id: result for node, result in zip(nodes, results, strict=True)}
