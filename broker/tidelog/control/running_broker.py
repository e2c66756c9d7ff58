"""Blocking handles on the brokers of a cluster in other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.control.blocking_cluster_calls import ClusterCalls
from tidelog.control.errors import ClusterError

if TYPE_CHECKING:
    from typing import Unpack

    from tidelog.control.brokers import Brokers, BrokerState
    from tidelog.control.credentials.wishes import Wishes

__all__ = ["RunningBroker", "RunningBrokers"]


class RunningBrokers(ClusterCalls):
    """The calls on a cluster in other processes, with those on its brokers."""

    def change_brokers(self, call: str, **args: Any) -> Brokers:
        """Perform a call on brokers, which may start or end; return all of them."""
        brokers: Brokers = self.ask(call, args)
        return brokers

    def start_brokers(self) -> None:
        """Start all brokers that are not running, on their data and their ports.

        Brokers of which no majority runs can only start together.
        """
        self.change_brokers("cluster.start_brokers")

    def add_broker(
        self, *, rack: str | None = None, advertised_listeners: str | None = None
    ) -> RunningBroker:
        """Start one more broker and return its handle. It is not a voter of the metadata quorum.

        If the cluster has `advertised.listeners`, so has this one: its own, or the next port if the
        cluster has one address for all.
        """
        asked = {"rack": rack, "advertised_listeners": advertised_listeners}
        added = self.change_brokers("cluster.add_broker", **asked).brokers[-1]
        return RunningBroker(self, added.node_id)

    def client_config(self, client: str, **wishes: Unpack[Wishes]) -> Any:
        """Return the configuration of a client library: see `Cluster.client_config`.

        It reads the folder of the cluster's credentials, which is on the machine of the brokers.
        """
        from tidelog.control.credentials.state import client_config  # noqa: PLC0415 - few ask for it

        return client_config(self.ask("cluster.security", {}), client, wishes)


class RunningBroker:
    """A handle on one broker of a cluster in other processes. ClusterError if a method fails."""

    def __init__(self, cluster: RunningBrokers, node_id: int) -> None:
        self.node_id = node_id
        self._cluster = cluster

    @property
    def is_running(self) -> bool:
        """Whether it is running."""
        return self._state().is_running

    @property
    def is_frozen(self) -> bool:
        """Whether it stands still."""
        return self._state().is_frozen

    @property
    def bootstrap_server(self) -> str:
        """Its `host:port`; ClusterError if it is not running."""
        address = self._state().address
        if address is None:
            raise ClusterError(f"broker {self.node_id} is not running")
        return address

    @property
    def pid(self) -> int:
        """Id of its process, which it may share; ClusterError if it is not running."""
        pid = self._state().pid
        if pid is None:
            raise ClusterError(f"broker {self.node_id} is not running")
        return pid

    def _state(self) -> BrokerState:
        states = self._cluster.change_brokers("brokers.describe").brokers
        return next(state for state in states if state.node_id == self.node_id)

    def stop(self) -> None:
        """Move its leaderships to other brokers, then stop it."""
        self._cluster.change_brokers("brokers.stop", broker=self.node_id)

    def kill(self) -> None:
        """End it like a crash: by SIGKILL if it has its own process."""
        self._cluster.change_brokers("brokers.kill", broker=self.node_id)

    def start(self) -> None:
        """Start it again on its data and its ports."""
        self._cluster.change_brokers("brokers.start", broker=self.node_id)

    def freeze(self) -> None:
        """Let it stand still until `thaw`: nothing passes its connections, no timer fires."""
        self._cluster.change_brokers("brokers.freeze", broker=self.node_id)

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        self._cluster.change_brokers("brokers.thaw", broker=self.node_id)
