"""The control calls as methods of a cluster, for asyncio: `Cluster` has them.

`blocking_cluster_calls.py` has the same for code without asyncio, and is generated from this file.
"""

# ruff: noqa: PLC0415 - a cluster that is never controlled pays for no calls

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from tidelog.control.faults.handles import Devices, Faults, Network
    from tidelog.control.handles import Clock, Groups, Logs, Tier, Topics, Transactions
    from tidelog.control.state import ClusterState

__all__ = ["ClusterCalls"]


class ClusterCalls(ABC):
    """The calls on a cluster, all by way of `ask`."""

    @abstractmethod
    async def ask(self, call: str, args: Mapping[str, Any]) -> Any:
        """Perform a control call by its name, with arguments in their JSON form.

        `faults` and its like do the same with names and types. ControlError if it is refused.
        """

    @property
    def faults(self) -> Faults:
        """What goes wrong with requests."""
        from tidelog.control.faults.handles import Faults

        return Faults(self.ask)

    @property
    def devices(self) -> Devices:
        """The disk and the remote store of each broker."""
        from tidelog.control.faults.handles import Devices

        return Devices(self.ask)

    @property
    def network(self) -> Network:
        """The links of brokers to each other and to clients."""
        from tidelog.control.faults.handles import Network

        return Network(self.ask)

    @property
    def clock(self) -> Clock:
        """The time of the brokers: advance, freeze, resume, speed, skew, reset."""
        from tidelog.control.handles import Clock

        return Clock(self.ask)

    @property
    def topics(self) -> Topics:
        """The topics: create, delete, and periodic work of their logs now."""
        from tidelog.control.handles import Topics

        return Topics(self.ask)

    @property
    def groups(self) -> Groups:
        """The consumer groups: move their coordinators, expire their members."""
        from tidelog.control.handles import Groups

        return Groups(self.ask)

    @property
    def transactions(self) -> Transactions:
        """The transactional ids: move their coordinators."""
        from tidelog.control.handles import Transactions

        return Transactions(self.ask)

    @property
    def tier(self) -> Tier:
        """The remote tier: copy and expire segments now."""
        from tidelog.control.handles import Tier

        return Tier(self.ask)

    @property
    def logs(self) -> Logs:
        """What the brokers log: levels of their parts."""
        from tidelog.control.handles import Logs

        return Logs(self.ask)

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, str | float | bool | None] | None = None,
    ) -> None:
        """Create a topic as `topics.create` does; a setting that is None has its default."""
        known = {key: value for key, value in (config or {}).items() if value is not None}
        await self.topics.create(name, partitions, replication_factor, known)

    async def delete_topic(self, name: str, *, missing_ok: bool = False) -> None:
        """Delete a topic as `topics.delete` does."""
        await self.topics.delete(name, missing_ok=missing_ok)

    async def reset(self) -> None:
        """Give the cluster back as new, for isolation between tests.

        Faults and changes of the clock end, transactions are aborted, and transactional ids, groups
        and topics are deleted. Brokers that are stopped stay stopped.
        """
        await self.ask("cluster.reset", {})

    async def move_controller(self) -> int:
        """Let the active controller resign; return the node id of the next one, once all running
        brokers know it."""
        node_id: int = (await self.ask("cluster.move_controller", {})).node_id
        return node_id

    async def state(
        self,
        *,
        topics: Sequence[str] | None = None,
        internal: bool = False,
        missing_ok: bool = False,
    ) -> ClusterState:
        """Return the state of topics, groups, transactions and running brokers.

        `topics` limits it to topics of these names; ControlError if one does not exist, unless
        `missing_ok` is True. Kafka's own topics are left out unless they are named or `internal` is
        True.
        """
        from tidelog.control.values import as_list

        asked = {"topics": as_list(topics), "internal": internal, "missing_ok": missing_ok}
        state: ClusterState = await self.ask("cluster.state", asked)
        return state

    async def wait_for(
        self,
        is_so: Callable[[ClusterState], object],
        *,
        timeout_s: float = 30.0,
        topics: Sequence[str] | None = None,
        internal: bool = False,
    ) -> ClusterState:
        """Read the state again and again until `is_so` returns something true; return that state.

        A LookupError of `is_so`, as for a topic that is not there yet, counts as not yet; `topics`
        may name such topics.
        ControlError after the limit of time; it shows the last state.
        """
        from asyncio import sleep

        from tidelog.control.waiting import Deadline

        deadline = Deadline(timeout_s)
        while True:
            state = await self.state(topics=topics, internal=internal, missing_ok=True)
            pause_s = deadline.pause_s(state, is_so)
            if pause_s is None:
                return state
            await sleep(pause_s)
