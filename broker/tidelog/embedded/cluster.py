"""`Cluster`: brokers in this event loop. `running.py` has `run()`, which starts another process.

Settings have Kafka's `server.properties` names, passed as a mapping or as keywords with underscores
for dots: `Cluster({"log.dirs": "x"})` is `Cluster(log_dirs="x")`. Without `data_dir` the
data lives in a temporary folder, which is removed at the end.

`brokers=3` starts three brokers. Each is also a voter of the metadata quorum. They share one
process (with `Cluster`, the event loop) or have one each (`isolated=True`). `cluster.brokers[1]` is
a handle on the second: `stop()`, `kill()` as a crash does, `start()` on the same data and ports.
"""

# ruff: noqa: PLC0415 - `import tidelog` and its users pay for what they use

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from tidelog.control.cluster_calls import ClusterCalls
from tidelog.embedded.cluster_settings import (
    ClusterError,
    Setting,
    advertised_at,
    beside,
    beside_inner,
    broker_properties,
    has_data_dir,
    metrics_listener,
    node_properties,
    properties_of,
    temporary_data_dir,
)
from tidelog.embedded.ports import Addresses, Ports
from tidelog.embedded.tiered import Tiered, tiered_settings, with_tier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self, Unpack

    from tidelog.control.cluster import ClusterControl
    from tidelog.control.cluster_time import ClockSetting
    from tidelog.control.credentials.state import SecurityState
    from tidelog.control.credentials.wishes import Wishes
    from tidelog.control.faults.rules import Count
    from tidelog.embedded.nodes import Node
    from tidelog.embedded.security import Security
    from tidelog.seams import Runtime
    from tidelog_protocol.messages.metadata_records import UserScramCredentialRecord

__all__ = [
    "Cluster",
    "ClusterError",
    "Setting",
    "broker_properties",
    "has_data_dir",
    "properties_of",
    "temporary_data_dir",
]

# A free port is found, released and bound again: another process may take it in between.
PORT_TRIES = 3


class Cluster(ClusterCalls):
    """Brokers in the running event loop; use `async with`, or `start()` and `stop()`.

    With `isolated`, each broker has its own process. `brokers` has a handle for each broker, in the
    order of their ids, whether it runs or not.
    """

    def __init__(
        self,
        settings: Mapping[str, Setting] | None = None,
        /,
        *,
        brokers: int = 1,
        isolated: bool = False,
        racks: Sequence[str] | None = None,
        host: str | None = None,
        port: int | Sequence[int] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        temporary: bool = False,
        tiered: Tiered = False,
        tiered_topics: Sequence[str] = (),
        security: str | Security | None = None,
        log_level: str = "warning",
        log_format: str = "text",
        runtime: Runtime | None = None,
        **more: Setting,
    ) -> None:
        """Take the parameters of `run`, and these:

        - `port`: also a list with the port of each broker.
        - `temporary`: remove `data_dir` at the end, and skip fsync.
        - `log_level`: what isolated brokers log on standard error: debug, info, warning or error.
        - `log_format`: how they log it: text, or json for one JSON object a line.
        - `runtime`: replacement of clock, network, files and threads; for a single broker only.
        """
        if brokers < 1:
            raise ClusterError(f"a cluster needs at least one broker, not {brokers}")
        if racks is not None and len(racks) != brokers:
            raise ClusterError(f"{len(racks)} racks for {brokers} brokers")
        self.brokers: list[Node[Any]] = []
        self.on_broker_failure: Callable[[Node[Any]], None] | None = None
        """Called with a broker that stopped on its own; its `failure` gives the reason."""
        self.on_failure: Callable[[], None] | None = None
        """Called after that if all brokers have failed."""
        self._count = brokers
        self._isolated = isolated
        self._racks = list(racks or ())
        self._data_dir = None if data_dir is None else os.fspath(data_dir)
        self._settings = tiered_settings(tiered, tiered_topics) | properties_of(settings, more)
        self._security = _security_of(security, self._settings)
        self._addresses = Addresses(host, port, brokers, is_listed="listeners" in self._settings)
        self._logging = {"log_level": log_level, "log_format": log_format}
        self._runtime = runtime
        self._is_temporary = temporary
        self._temporary: str | None = None
        self._ports = Ports()
        self._voters: dict[int, str] = {}
        self._cluster_id = ""
        self._control: ClusterControl | None = None
        self._fault_counts: dict[int, Count] = {}

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every running broker, for clients."""
        servers = [node.bootstrap_server for node in self.brokers if node.is_running]
        if not servers:
            raise ClusterError("the cluster is not running")
        return ",".join(servers)

    @property
    def security(self) -> SecurityState:
        """How clients authenticate; without secrets."""
        from tidelog.control.credentials.state import SecurityState

        if self._security is None:
            return SecurityState(self.bootstrap_servers)
        return self._security.state(self.bootstrap_servers, self.brokers)

    def client_config(self, client: str, **wishes: Unpack[Wishes]) -> Any:
        """Return the configuration of a client library: aiokafka, confluent-kafka, franz-go, java,
        kafka-python, kafkajs, kcat, spark or tidelog (for `tidelog.testing`).

        With `security`, and what works if left out:

        - `user`: admin (a super user), alice or bob; `password` replaces the user's.
        - `mechanism`: the SASL mechanism, PLAIN if left out; `token` is `"expired"`, or one in
          the place of the user's.
        - `certificate`: that of the brokers is bad: `"expired"`, `"wrong-host"`, `"self-signed"`.
        - `client_certificate`: the client's own is bad: `"expired"`, `"self-signed"`, `"none"`.

        ClusterError for what a cluster of this kind has not.
        """
        from tidelog.control.credentials.state import client_config

        return client_config(self.security, client, wishes)

    @property
    def failure(self) -> BaseException | None:
        """Why a broker stopped on its own; None if none did."""
        return next((node.failure for node in self.brokers if node.failure is not None), None)

    # -- start and stop ----------------------------------------------------------------------------

    async def start(self) -> Self:
        """Start all brokers and return when each knows all others.

        ConfigError or StartError give the reason of a failure in one line.
        """
        from tidelog.start_error import StartError, one_line

        if any(node.is_running for node in self.brokers):
            raise ClusterError("the cluster is already running")
        try:
            for attempt in range(1, PORT_TRIES + 1):
                self.brokers = await self._new_nodes()
                try:
                    await self._start_all()
                except OSError:
                    if attempt == PORT_TRIES:
                        raise
                    self._ports.forget()
                else:
                    break
        except BaseException as error:
            self._ports.release()
            self.remove_temporary()
            if isinstance(error, OSError):
                raise StartError(one_line(error)) from error
            raise
        return self

    async def _start_all(self) -> None:
        """Start all brokers. OSError if a port was taken."""
        from tidelog.embedded.nodes import start_together
        from tidelog.server import StartError

        try:
            await start_together(self.brokers)
        except StartError as error:
            is_late = str(error).startswith("cannot listen")
            if is_late and self._addresses.is_free:
                raise OSError(str(error)) from error
            raise

    async def _gathered(self, node: Node[Any]) -> None:
        """Return when all running brokers, with the new one, know each other."""
        from tidelog.embedded.nodes import until_whole

        whole = [node, *(other for other in self.brokers if other is not node)]
        if self._control is not None:
            from tidelog.control.starting import set_up

            await set_up(self._control, node)
            whole = [each for each in whole if not self._control.is_apart(each)]
        await until_whole(whole)

    async def _new_nodes(self) -> list[Node[Any]]:
        from tidelog.runtime import system_runtime

        folder = self._data_dir
        is_kept = folder is not None and not self._is_temporary
        runtime = self._runtime or system_runtime(durable=is_kept)
        if self._is_temporary and folder is not None:
            self._temporary = folder
        is_alone = self._count == 1 and not self._isolated
        if folder is None and not (is_alone and has_data_dir(self._settings)):
            if self._temporary is None:
                self._temporary = temporary_data_dir(runtime.rng)
                os.makedirs(self._temporary, 0o700)
            folder = self._temporary
        self._ports.release()
        logs = folder or self._settings.get("log.dirs", self._settings.get("log.dir", ""))
        first = logs.split(",")[0]
        if self._security is not None:
            self._security.make(first, self._addresses.host)
        if is_alone:
            return [await self._lone_node(runtime, folder, first)]
        assert folder is not None
        return await self._nodes_of_several(runtime, folder)

    @property
    def _bad_count(self) -> int:
        """How many listeners of each broker show a bad certificate."""
        return 0 if self._security is None else self._security.bad_count

    async def _lone_node(self, runtime: Runtime, folder: str | None, first: str) -> Node[Any]:
        """`first` is the first folder of data."""
        host, port = self._addresses.lone
        if not port and "listeners" not in self._settings:
            with suppress(OSError):  # the broker itself reports a bad host
                (port,) = await self._ports.take(runtime, self._addresses.host, 1)
        properties = broker_properties(self._settings, host=host, port=port, data_dir=folder)
        if self._racks:
            properties["broker.rack"] = self._racks[0]
        if self._security is not None:
            bad_ports = await self._ports.take(runtime, self._addresses.host, self._bad_count)
            properties = self._security.secured(properties, 0, bad_ports)
        node = self._new_node(with_tier(properties, first, 1))
        if self._security is not None:
            from tidelog.cluster.formatting import format_new

            format_new([node.config], runtime, users=partial(self._users, runtime))
        return node

    def _users(self, runtime: Runtime) -> Sequence[UserScramCredentialRecord]:
        """Return the first users of SCRAM."""
        return [] if self._security is None else self._security.scram_users(runtime)

    async def _nodes_of_several(self, runtime: Runtime, folder: str) -> list[Node[Any]]:
        from tidelog.cluster.formatting import format_new

        settings, bad_count = self._settings, self._bad_count
        advertised = settings.get("advertised.listeners")
        is_mapped = advertised is not None or self._security is not None
        each = (3 if is_mapped else 2) + bad_count
        ports = await self._ports.take(runtime, self._addresses.host, each * self._count)
        self._voters = {
            node_id: f"{self._addresses.inner_host}:{ports.pop()}"
            for node_id in range(1, self._count + 1)
        }
        nodes = []
        for index, node_id in enumerate(self._voters):
            own_port = self._addresses.port_of(index) or ports.pop()
            own = {"broker.rack": self._racks[index]} if self._racks else {}
            if advertised is not None:
                own["advertised.listeners"] = advertised_at(advertised, index, self._count)
            inner = f"{self._addresses.inner_host}:{ports.pop()}" if is_mapped else ""
            bad_ports = [ports.pop() for _ in range(bad_count)]
            nodes.append(
                self._node_of_several(
                    settings | own, node_id, folder, (own_port, *bad_ports), inner
                )
            )
        configs = [node.config for node in nodes]
        self._cluster_id = format_new(configs, runtime, users=partial(self._users, runtime))
        return nodes

    def _node_of_several(
        self,
        settings: dict[str, str],
        node_id: int,
        folder: str,
        ports: Sequence[int],
        inner: str,
    ) -> Node[Any]:
        """`ports` has that of clients, then those of bad certificates. The nodes reach each other
        at `inner` if it is no listener of clients."""
        index = node_id - 1
        advertised = settings.pop("advertised.listeners", None)
        properties = node_properties(
            settings | metrics_listener(settings, index),
            node_id=node_id,
            voters=self._voters,
            host=self._addresses.host,
            port=ports[0],
            data_dir=f"{folder}/broker-{node_id}",
        )
        if inner:
            properties |= beside_inner(properties, advertised, inner)
        if self._security is not None:
            properties = self._security.secured(properties, index, ports[1:])
        return self._new_node(with_tier(properties, folder, len(self._voters)))

    def _new_node(self, properties: Mapping[str, str]) -> Node[Any]:
        from tidelog.embedded.nodes import LocalNode, ProcessNode

        durable = self._temporary is None
        node: Node[Any]
        if self._isolated:
            node = ProcessNode(
                properties,
                **self._logging,
                durable=durable,
                on_start=self._gathered,
                on_end=self._node_failed,
            )
        else:
            node = LocalNode(
                properties,
                runtime=self._runtime,
                fault_counts=self._fault_counts,
                durable=durable,
                on_start=self._gathered,
                on_end=self._node_failed,
            )
        node.clock = self._clock_of
        return node

    def _clock_of(self, node_id: int) -> ClockSetting | None:
        """Return the clock of a broker that starts; None if time was never moved."""
        time = None if self._control is None else self._control.time
        return time.setting(node_id) if time is not None and time.is_moved else None

    def _node_failed(self, node: Node[Any]) -> None:
        if self.on_broker_failure is not None:
            self.on_broker_failure(node)
        if self.on_failure is not None and not any(node.is_running for node in self.brokers):
            self.on_failure()

    async def ask(self, call: str, args: Mapping[str, Any]) -> Any:
        """Perform it in this loop."""
        from tidelog.control.table import perform

        return await perform(self._controlled(), call, args)

    def _controlled(self) -> ClusterControl:
        """Return what calls act on, created on the first call."""
        if self._control is None:
            from tidelog.control.cluster import ClusterControl

            self._control = ClusterControl(self)
        return self._control

    async def start_brokers(self) -> None:
        """Start all brokers that are not running, on their data and their ports.

        Brokers of which no majority runs can only start together.
        """
        from tidelog.embedded.nodes import start_together

        if stopped := [node for node in self.brokers if not node.is_running]:
            await start_together(stopped)

    async def add_broker(
        self,
        settings: Mapping[str, Setting] | None = None,
        /,
        *,
        rack: str | None = None,
        **more: Setting,
    ) -> Node[Any]:
        """Start one more broker and return its handle. It is not a voter of the metadata quorum.

        If the cluster has `advertised.listeners`, so has this one: by `advertised_listeners=...`,
        or at the next port if the cluster has one address for all.
        """
        if not self._voters or not self.brokers:
            raise ClusterError("only a running cluster of several brokers can grow")
        from tidelog.cluster.formatting import format_new
        from tidelog.runtime import system_runtime

        folder = self._data_dir or self._temporary
        assert folder is not None
        runtime = system_runtime()
        node_id = max(node.node_id for node in self.brokers) + 1
        own = {**self._settings, **properties_of(settings, more)}
        advertised = self._advertised(properties_of(settings, more), node_id - 1)
        inner = ""
        if advertised is not None:
            own["advertised.listeners"] = advertised
        if advertised is not None or self._security is not None:
            (inner_port,) = await self._ports.take(runtime, self._addresses.host, 1)
            inner = f"{self._addresses.inner_host}:{inner_port}"
        ports = await self._ports.take(runtime, self._addresses.host, 1 + self._bad_count)
        if rack is not None:
            own["broker.rack"] = rack
        node = self._node_of_several(own, node_id, folder, ports, inner)
        format_new([node.config], runtime, self._cluster_id)
        await node.start()
        self.brokers.append(node)
        return node

    def _advertised(self, own: Mapping[str, str], index: int) -> str | None:
        """Return where clients reach one more broker; None if that is where it listens."""
        key = "advertised.listeners"
        mapped = self._settings.get(key)
        if mapped is None:
            if key in own:
                raise ClusterError(f"{key} must be that of the whole cluster: give it to all")
            return None
        if key in own:
            return advertised_at(own[key], 0, 1)
        if "," in mapped:
            raise ClusterError(f"{key} has no address for one more broker: give it one of its own")
        return advertised_at(mapped, index, index + 1)

    async def stop(self) -> None:
        """Stop all brokers together and remove temporary data. `start` takes the same ports again.

        ClusterError if a broker did not stop cleanly.
        """
        try:
            await self.stop_brokers()
        finally:
            self.remove_temporary()

    async def stop_brokers(self) -> None:
        """Stop the brokers, the first half of `stop`; data that is not temporary stays."""
        import asyncio

        moves_leaders, keeps = self._is_part_of_another, self._temporary is None
        nodes, self.brokers = self.brokers, []
        results = await asyncio.gather(
            *(
                node.stop(controlled=moves_leaders, keeps_data=keeps)
                for node in nodes
                if node.is_running
            ),
            return_exceptions=True,
        )
        self._ports.release()
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in errors:
            if not isinstance(error, ClusterError):
                raise error
        if errors:
            raise ClusterError("; ".join(map(str, errors)))

    @property
    def _is_part_of_another(self) -> bool:
        """Whether this is one node of a larger cluster, whose other brokers stay."""
        return len(self.brokers) == 1 and not self.brokers[0].config.is_alone()

    @property
    def leave_seconds_max(self) -> float:
        """How long it may take to move leaderships to brokers that stay."""
        if not self._is_part_of_another:
            return 0.0
        from tidelog.membership import LEAVE_S_MAX

        return LEAVE_S_MAX

    @property
    def flush_seconds_max(self) -> float:
        """How long logs may take to become durable when the brokers stop; temporary ones do not."""
        if self._temporary is not None:
            return 0.0
        return sum(node.flush_seconds_max for node in self.brokers if node.is_running)

    def remove_temporary(self) -> None:
        """Remove temporary data, the second half of `stop`; many files take a while."""
        if self._temporary is not None:
            from tidelog.runtime import system_runtime

            (self._runtime or system_runtime()).files.remove_tree(self._temporary)
            self._temporary = None

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with beside(error):
            await self.stop()


def _security_of(security: str | Security | None, settings: Mapping[str, str]) -> Security | None:
    if security is None:
        return None
    from tidelog.embedded.security import Security

    known = Security(security) if isinstance(security, str) else security
    known.check(settings)
    return known
