"""Voters of the metadata quorum are removed and come back while brokers die (KIP-853).

The cluster begins with fixed voters, and `kraft.version` is raised before the faults begin. What
was acknowledged holds: once faults stop, all nodes know the same voters; then all are voters again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sim.cluster.admin import LATER, AdminClient
from sim.cluster.client import PAUSE_S
from sim.cluster.work.part import Part
from sim.history import require
from sim.wire import Lost
from tidelog.simulation.machines import CONTROLLER_PORT, host_of
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster_admin import UpdateFeaturesRequest
from tidelog_protocol.messages.quorum import DescribeQuorumRequest
from tidelog_protocol.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest

if TYPE_CHECKING:
    from tidelog_protocol.schema import Message

KRAFT_VERSION = "kraft.version"
METADATA_TOPIC = "__cluster_metadata"
BROKERS_MIN = 3
PAUSES_S = (0.05, 0.3, 1.0)
RAISED_S_MAX = 20.0
AGREED_S_MAX = 30.0
TIMEOUT_MS = 2000
NOT_NOW = LATER | {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.BROKER_NOT_AVAILABLE}
ADDED = (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER)  # by an earlier request
REMOVED = (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND)


class Voters(Part):
    """One administrator."""

    name = "voters that change"

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._is_on = False
        self._away: int | None = None  # a node that is no voter, as far as we know

    async def create(self) -> None:
        """The log names the voters."""
        self._admin = AdminClient(self.world, "voters' admin")
        self.world.clients.append("voters' admin")
        self._is_on = self.world.machines.voters >= BROKERS_MIN
        if self._is_on:
            await self._raise()

    async def _raise(self) -> None:
        update = UpdateFeaturesRequest.FeatureUpdateKey(feature=KRAFT_VERSION, max_version_level=1)
        end_s = self.world.loop.time() + RAISED_S_MAX
        while True:
            request = UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[update])
            error = await self._ask(request, 2)
            if error is ErrorCode.NONE:
                return
            require(self.world.loop.time() < end_s, f"UpdateFeatures: {error and error.name}")
            await asyncio.sleep(0.2)

    def start(self) -> None:
        """As long as faults come."""
        if self._is_on:
            self.clients.append(self.world.spawn("voters' admin", self._run()))

    async def _run(self) -> None:
        while not self.world.is_quiet:
            await asyncio.sleep(self.rng.choice(PAUSES_S))
            if self._away is not None:
                await self._add(self._away)
            else:
                await self._remove(self.rng.randint(1, self.world.machines.voters))

    async def finish(self) -> None:
        """All nodes know the same voters, and those that we know; then all are voters again."""
        await super().finish()
        if self._is_on:
            await self.world.within(AGREED_S_MAX, "the voters", self._disagreement)
            await self.world.served([self.world.spawn("voters' admin", self._restore())], self.name)
            await self.world.within(AGREED_S_MAX, "the voters", self._disagreement)
        self._admin.cluster.close()

    async def _restore(self) -> None:
        while (missing := self._missing()) is None or missing or self.world.are_voters_in_doubt:
            if missing:
                await self._add(missing[0])
            elif missing is not None:
                self.world.are_voters_in_doubt = False
            await asyncio.sleep(PAUSE_S)
        self._away = None

    def _missing(self) -> list[int] | None:
        """Nodes that are no voters, None while some node knows others."""
        known = self._known()
        if len(known) != 1:
            return None
        return sorted(set(range(1, self.world.machines.voters + 1)) - set(*known))

    def _known(self) -> set[tuple[int, ...]]:
        return {
            tuple(sorted(server.metadata.voters))
            for _, server in self.world.machines.servers()
            if server.is_built
        }

    def _disagreement(self) -> str | None:
        missing = self._missing()
        if missing is None:
            return f"nodes know {sorted(self._known())}"
        wanted = [] if self._away is None else [self._away]
        return (
            None
            if self.world.are_voters_in_doubt or missing == wanted
            else f"without {missing}, not {wanted}"
        )

    # -- requests ----------------------------------------------------------------------------------

    async def _remove(self, node_id: int) -> None:
        directory = await self._directory(node_id)
        if directory is None or not self._may_change():
            return
        self.world.are_voters_in_doubt = True
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=node_id, voter_directory_id=directory
        )
        error = await self._ask(request, 0)
        self.world.loop.tell("voters", f"without {node_id}: {error.name if error else 'no answer'}")
        self._doubt(error)
        if error in REMOVED or error is None:
            self._away = node_id
        if error is ErrorCode.NONE:
            self.world.history.count("voters removed")
        require(error is None or error in REMOVED, f"RemoveRaftVoter: {error and error.name}")

    async def _add(self, node_id: int) -> None:
        directory = await self._directory(node_id)
        if directory is None or not self._may_change():
            return
        listener = AddRaftVoterRequest.Listener(
            name="CONTROLLER", host=host_of(node_id), port=CONTROLLER_PORT
        )
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=TIMEOUT_MS,
            voter_id=node_id,
            voter_directory_id=directory,
            listeners=[listener],
        )
        error = await self._ask(request, 1)
        self.world.loop.tell("voters", f"with {node_id}: {error.name if error else 'no answer'}")
        self._doubt(error)
        if error in ADDED:
            self._away = None
        if error is ErrorCode.NONE:
            self.world.history.count("voters added")
        require(error is None or error in ADDED, f"AddRaftVoter: {error and error.name}")

    def _may_change(self) -> bool:
        """Whoever is away, or has a rotten log, counts on the others."""
        return not self.world.away and self.world.metadata_rot.machine is None

    def _doubt(self, error: ErrorCode | None) -> None:
        """What was done before ("not found") says nothing of a request that is still on its way."""
        if error in (ErrorCode.NONE, None):
            self.world.are_voters_in_doubt = error is None

    async def _ask(self, request: Message, version: int) -> ErrorCode | None:
        """Any broker; None if it may be done, or not."""
        try:
            answer = await self._admin.cluster.ask(
                self._admin.cluster.any_broker(), request, version
            )
        except Lost:
            return None
        error = ErrorCode(answer.error_code)
        return None if error in NOT_NOW else error

    async def _directory(self, node_id: int) -> bytes | None:
        """The id of the directory with its metadata log, as the quorum knows it."""
        part = DescribeQuorumRequest.TopicData.PartitionData(partition_index=0)
        topic = DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[part])
        try:
            cluster = self._admin.cluster
            answer = await cluster.ask(
                cluster.any_broker(), DescribeQuorumRequest(topics=[topic]), 2
            )
        except Lost:
            await asyncio.sleep(PAUSE_S)
            return None
        if answer.error_code or not answer.topics or answer.topics[0].partitions[0].error_code:
            return None
        state = answer.topics[0].partitions[0]
        known = [*state.current_voters, *state.observers]
        found = {each.replica_id: bytes(each.replica_directory_id) for each in known}
        return found.get(node_id)
