"""The stage of `tidelog scenario`: brokers over real sockets. The actors run in this event loop or,
if isolated, in processes. Data is in a temporary folder and is not synced.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidelog.cluster.formatting import format_new
from tidelog.embedded.cluster_settings import node_properties, temporary_data_dir
from tidelog.embedded.nodes import LocalNode, start_together, until_whole
from tidelog.embedded.ports import Ports
from tidelog.embedded.tiered import tiered_settings, with_tier
from tidelog.runtime import system_runtime
from tidelog_scenarios.actor import Actor
from tidelog_scenarios.fetch_gate import FetchGate
from tidelog_scenarios.inside import Inside
from tidelog_scenarios.plan import broker_settings, metadata_on
from tidelog_scenarios.process import ActorNode
from tidelog_scenarios.rules import LEADER_EPOCHS
from tidelog_scenarios.stage import Stage
from tidelog_scenarios.vocabulary import VOTERS

if TYPE_CHECKING:
    from tidelog.embedded.nodes import Node
    from tidelog.server import BrokerServer
    from tidelog_scenarios.rules import Rule
    from tidelog_storage.seams import FileSystem

__all__ = ["HostStage"]

HOST = "127.0.0.1"
# A dead broker is fenced soon. Nothing else happens between steps.
SETTINGS = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3600000",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "86400000",
    "log.cleaner.enable": "false",
}
TIER_SETTINGS = {
    "remote.log.storage.manager.class.name": "tidelog_scenarios.store.TracedStore",
    "remote.log.manager.task.interval.ms": "86400000",
    "remote.partition.remover.task.interval.ms": "86400000",
    "remote.fetch.max.wait.ms": "30000",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
}


class HostStage(Stage):
    """The brokers of one play on this machine."""

    def __init__(
        self, document: dict[str, Any], *, isolated: bool, rule: Rule = LEADER_EPOCHS
    ) -> None:
        """Prepare for the vector `document`; isolated brokers know no other rule than today's."""
        assert not isolated or rule is LEADER_EPOCHS
        given = document["given"]
        self._runtime = system_runtime(durable=False)
        super().__init__(
            given["brokers"],
            self._runtime.clock,
            self._runtime.network,
            tiered="remote" in given,
            metadata_on=metadata_on(document),
        )
        self._is_isolated = isolated
        self._settings = broker_settings(document, at_rest=True)
        self._rule = rule
        self._gate = FetchGate(rule.fetcher)
        self._folder = temporary_data_dir(self._runtime.rng)
        self._nodes: dict[str, Node[Any]] = {}
        self._ports = Ports()

    async def _open(self) -> None:
        await self._build()
        await start_together(self._nodes.values())
        await until_whole(list(self._nodes.values()))

    async def _build(self) -> None:
        ports = await self._ports.take(self._runtime, HOST, len(self.ids) + len(VOTERS))
        voters = {node_id: f"{HOST}:{ports.pop()}" for node_id in VOTERS.values()}
        settings = dict(SETTINGS)
        if self._is_isolated:
            settings["broker.session.timeout.ms"] = "6000"  # processes start at different times
        if self.is_tiered:
            settings |= tiered_settings(True) | TIER_SETTINGS | self._settings
            settings["rsm.config.dir"] = self.store_folder
        for name, node_id in self.ids.items():
            properties = node_properties(
                settings,
                node_id=node_id,
                voters=voters,
                host=HOST,
                port=ports.pop(),
                data_dir=self.data_folder(name),
            )
            properties = with_tier(properties, self._folder, len(VOTERS))
            self._nodes[name] = self._node(name, properties)
        format_new([node.config for node in self._nodes.values()], self._runtime)

    def _node(self, name: str, properties: dict[str, str]) -> Node[Any]:
        place: dict[str, Any] = {
            "durable": False,
            "on_start": _nothing,
            "on_end": lambda _: None,
        }
        if name in VOTERS:
            return LocalNode(properties, runtime=None, **place)
        if self._is_isolated:
            return ActorNode(properties, **place)
        return Actor(properties, self._gate, self._rule.segment_at, **place)

    async def _close(self) -> None:
        try:
            await asyncio.gather(*(node.kill() for node in self._nodes.values()))
        finally:
            self._ports.release()
            self._runtime.files.remove_tree(self._folder)

    async def _start(self, name: str) -> None:
        node = self._nodes[name]
        await node.start()
        await until_whole([node, *self._nodes.values()])

    async def _stop(self, name: str) -> None:
        await self._nodes[name].stop()

    async def _crash(self, name: str) -> None:
        await self._nodes[name].kill()

    def is_running(self, name: str) -> bool:
        """Return whether a broker runs."""
        return self._nodes[name].is_running

    def inside(self, name: str) -> Inside:
        """Return the inside of a running broker."""
        node = self._nodes[name]
        if isinstance(node, LocalNode):
            return Inside(node.server, self._gate)
        assert isinstance(node, ActorNode)
        return node.inside

    def voter(self, name: str) -> BrokerServer:
        """Return one of the two voters."""
        node = self._nodes[name]
        assert isinstance(node, LocalNode)
        return node.server

    def address(self, name: str) -> tuple[str, int]:
        """Return the host and port of a running broker."""
        host, _, port = self._nodes[name].bootstrap_server.rpartition(":")
        return host, int(port)

    def files_of(self, name: str) -> FileSystem:
        """Return this machine's file system."""
        return self._runtime.files

    def data_folder(self, name: str) -> str:
        """Return the log directory of a broker."""
        return f"{self._folder}/{name}"

    @property
    def store_folder(self) -> str:
        """Return the directory of the remote store."""
        return f"{self._folder}/remote-tier"

    @property
    def store_files(self) -> FileSystem:
        """Return this machine's file system."""
        return self._runtime.files


async def _nothing(_node: Node[Any]) -> None:
    """Do nothing: `_start` awaits the start itself."""
