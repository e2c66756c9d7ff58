"""The controller: decides operations on the cluster's metadata and commits them, one by one.

The decisions are pure functions in the modules beside this one. Each is taken against
`MetadataLog.latest` and appended without an await in between, so no operation sees another one half
done. The response is sent when everything that the decision saw is committed, so no client sees a
state that a crash could revert.

In a cluster every node has a controller. The active one is on the node that leads the metadata
quorum; the others refuse with NotControllerError. The active one keeps the sessions of the brokers,
which start again with each election.

Called by the API handlers and a timer (`tick`).
"""

# ruff: noqa: PLC0415 - decisions are imported at their first use, to keep the start short

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.cluster.controller.decisions import RefusedError
from tidelog.cluster.metadata.log import NotControllerError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages import metadata_records as tables
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tidelog.cluster.controller.client_quotas import EntityResult
    from tidelog.cluster.controller.configs import Resource, ResourceResult
    from tidelog.cluster.controller.decisions import Charge
    from tidelog.cluster.controller.delegation_tokens import TokenRequest, TokenResponse
    from tidelog.cluster.controller.sessions import Sessions
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.config.broker import BrokerConfig
    from tidelog.seams import Clock, Rng
    from tidelog.security.principal import Principal
    from tidelog_protocol.messages.acls import (
        CreateAclsRequest,
        CreateAclsResponse,
        DeleteAclsRequest,
        DeleteAclsResponse,
    )
    from tidelog_protocol.messages.admin import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreateTopicsRequest,
        CreateTopicsResponse,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
    )
    from tidelog_protocol.messages.cluster_admin import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        ElectLeadersRequest,
        ElectLeadersResponse,
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )
    from tidelog_protocol.messages.controller import (
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
        AlterPartitionRequest,
        AlterPartitionResponse,
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
        BrokerHeartbeatRequest,
        BrokerHeartbeatResponse,
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
        ControllerRegistrationRequest,
        ControllerRegistrationResponse,
    )
    from tidelog_protocol.messages.quotas import AlterClientQuotasRequest
    from tidelog_protocol.messages.users import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
    )
    from tidelog_protocol.schema import Message

_logger = logging.getLogger(__name__)

TICK_SECONDS = 0.25  # how often `tick` is to be called
TOPICS_AT_ONCE = 100
"""Topics of one request between two turns of the loop: about 20 ms."""
RESOURCES_AT_ONCE = 100
"""The same of resources whose settings are altered."""
REPLICAS_AT_ONCE = 1_000
"""Replicas of these topics: as much work again."""
_TOPIC_DELETION_DISABLED_SINCE = 3  # older DeleteTopics don't know the code


class Controller:
    """This node's controller; active while its node leads the metadata quorum."""

    def __init__(
        self,
        log: MetadataLog,
        config: BrokerConfig,
        rng: Rng,
        clock: Clock,
        work_time: Callable[[], float],
    ) -> None:
        """`work_time` returns the seconds of the time of periodic work."""
        self._log = log
        self._config = config
        self._rng = rng
        self._clock = clock
        self._work_time = work_time
        self.charges: Callable[[str, str | None, bool], Charge | None] = lambda *_: None
        """Returns what charges a client for the partitions of a request, by its user, its client
        id and whether it may be refused; None if it is free."""
        self.name_voters: Callable[[bool], Awaitable[str | None]] = _no_listener
        """Lets the log name the voters (KIP-853), unless it only validates; returns why it cannot
        be."""
        self._sessions: Sessions | None = None  # of the epoch in which this node leads
        log.subscribe_leadership(self._on_leadership)

    def _on_leadership(self, is_leader: bool, epoch: int) -> None:
        del is_leader, epoch
        self._sessions = None

    # ---- brokers ------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._clock.monotonic()

    def _lead(self, now: float) -> Sessions:
        """Return the sessions, which a new leader starts again; NotControllerError if this node
        does not lead."""
        if not self._log.is_leader:
            raise NotControllerError
        if self._sessions is None:
            from tidelog.cluster.controller.sessions import Sessions

            config = self._config
            self._sessions = Sessions(
                self._log.latest,
                now,
                config.broker_session_timeout_ms / 1000,
                own_id=config.node_id if config.is_only_voter() else None,
                is_alone=config.is_alone(),
            )
        return self._sessions

    async def register_broker(
        self, request: BrokerRegistrationRequest
    ) -> BrokerRegistrationResponse:
        """BrokerRegistration; NotControllerError, RefusedError."""
        from tidelog.cluster.controller.brokers import register_broker

        now = self._now()
        sessions = self._lead(now)
        image = self._log.latest
        records, response = register_broker(
            image,
            self._config,
            request,
            epoch=self._log.next_offset,
            is_taken=sessions.is_taken(image, request.broker_id, now),
            heard=sessions.heard(),
        )
        sessions.begin(request.broker_id, now)
        await self._log.commit(records)
        return response

    async def register_controller(
        self, request: ControllerRegistrationRequest
    ) -> ControllerRegistrationResponse:
        """ControllerRegistration; NotControllerError, RefusedError."""
        from tidelog.cluster.controller.registrations import register_controller
        from tidelog_protocol.messages.controller import ControllerRegistrationResponse

        self._lead(self._now())
        await self._log.commit([register_controller(self._log.latest, request)])
        return ControllerRegistrationResponse()

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        """BrokerHeartbeat; NotControllerError, RefusedError."""
        from tidelog.cluster.controller import partitions
        from tidelog.cluster.controller.brokers import heartbeat

        now = self._now()
        sessions = self._lead(now)
        try:
            records, response = heartbeat(self._log.latest, self._config, request, sessions, now)
        except RefusedError:
            await self._log.commit()  # the broker ends now: the newer registration must be durable
            raise
        sessions.touch(request.broker_id, now, request.current_metadata_offset)
        is_cut = len(records) > partitions.CHANGES_PER_STEP_MAX
        if request.want_shut_down and not response.is_fenced and not is_cut:
            last_offset = self._log.next_offset + len(records) - 1
            sessions.leave(request.broker_id, now, last_offset)
        if records:
            await self._log.commit(records)
        if is_cut:
            await self._finish(
                request.broker_id, request.broker_epoch, is_silent=not request.want_fence
            )
        return response

    async def alter_partition(
        self, request: AlterPartitionRequest, api_version: int
    ) -> AlterPartitionResponse:
        """AlterPartition; NotControllerError, RefusedError."""
        from tidelog.cluster.controller.partitions import alter_partition

        self._lead(self._now())
        records, response = alter_partition(self._log.latest, self._config, request, api_version)
        await self._log.commit(records)
        return response

    async def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> AssignReplicasToDirsResponse:
        """AssignReplicasToDirs; NotControllerError, RefusedError."""
        from tidelog.cluster.controller.directories import assign_replicas_to_dirs

        self._lead(self._now())
        records, response = assign_replicas_to_dirs(self._log.latest, self._config, request)
        await self._log.commit(records)
        return response

    async def unregister_broker(self, node_id: int) -> None:
        """UnregisterBroker; NotControllerError, RefusedError."""
        from tidelog.cluster.controller.brokers import unregister_broker

        sessions = self._lead(self._now())
        records = unregister_broker(self._log.latest, self._config, node_id)
        sessions.end(node_id)
        await self._log.commit(records)

    async def allocate_producer_ids_for(
        self, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        """AllocateProducerIds; NotControllerError, RefusedError."""
        from tidelog.cluster.controller.brokers import allocate_producer_ids
        from tidelog_protocol.messages.controller import AllocateProducerIdsResponse

        self._lead(self._now())
        records, block = allocate_producer_ids(
            self._log.latest, request.broker_id, request.broker_epoch
        )
        await self._log.commit(records)
        return AllocateProducerIdsResponse(
            producer_id_start=block.start, producer_id_len=len(block)
        )

    # ---- elections and reassignments ----------------------------------------------------------

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """ElectLeaders; NotControllerError, RefusedError."""
        from tidelog.cluster.controller.elections import elect_leaders

        self._lead(self._now())
        records, response = elect_leaders(self._log.latest, self._config, request)
        await self._log.commit(records)
        return response

    async def elect_behind(self, topic: str, partition: int, node_id: int) -> None:
        """Elect a replica as if no other ran, for tests; NotControllerError, RefusedError."""
        from tidelog.cluster.controller.elections import elect_behind

        self._lead(self._now())
        records = elect_behind(self._log.latest, self._config, (topic, partition), node_id)
        await self._log.commit(records)

    async def alter_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """AlterPartitionReassignments; NotControllerError."""
        from tidelog.cluster.controller.reassignment import alter_reassignments

        self._lead(self._now())
        records, response = alter_reassignments(self._log.latest, self._config, request)
        await self._log.commit(records)
        return response

    def list_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """ListPartitionReassignments, of what is committed; NotControllerError."""
        from tidelog.cluster.controller.reassignment import list_reassignments

        self._lead(self._now())
        return list_reassignments(self._log.image, request)

    # ---- features -----------------------------------------------------------------------------

    async def update_features(
        self, request: UpdateFeaturesRequest, api_version: int
    ) -> UpdateFeaturesResponse:
        """UpdateFeatures; NotControllerError, RefusedError."""
        from tidelog.cluster.controller.features import failed, names_voters, update_features

        self._lead(self._now())
        records, response = update_features(self._log.latest, self._config, request, api_version)
        if names_voters(self._log.latest, request):
            problem = await self.name_voters(request.validate_only)
            if problem is not None:
                raise failed(problem)
            self._lead(self._now())
        records, response = update_features(self._log.latest, self._config, request, api_version)
        await self._log.commit(records)
        return response

    # ---- time ---------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Do the periodic work of the active controller; call it every `TICK_SECONDS`.

        It fences silent brokers. At intervals it moves leadership back to preferred replicas, and
        elects unclean leaders for leaderless partitions of topics that allow it.
        """
        if not self._log.is_leader:
            return
        try:
            now = self._now()
            await self._settle(now)
            await self._fence_silent(now)
            await self._elect_in_rounds()
        except NotControllerError:
            return  # the next leader does it

    async def settle(self) -> None:
        """Finish what an earlier run left undone. A lone broker needs nothing else of `tick`: it
        has no other brokers to watch, nor to elect."""
        await self._settle(self._now())

    async def _elect_in_rounds(self) -> None:
        from tidelog.cluster.controller.elections import elect_unclean, prefer_leaders

        sessions, now = self._lead(self._now()), self._work_time()
        config = self._config
        seconds = config.leader_imbalance_check_interval_seconds
        if config.auto_leader_rebalance_enable and sessions.is_due("preferred", now, seconds):
            await self._in_steps(prefer_leaders)
        if sessions.is_due("unclean", now, config.unclean_leader_election_interval_ms / 1000):
            await self._in_steps(elect_unclean)

    async def _in_steps(
        self, decide: Callable[[ClusterImage, BrokerConfig], list[Message]]
    ) -> None:
        """Commit the records that `decide` returns until it returns none.

        Thousands of partitions in one batch would block the loops of all brokers for too long.
        """
        while records := decide(self._log.latest, self._config):
            await self._log.commit(records)

    async def _finish(self, node_id: int, epoch: int, *, is_silent: bool) -> None:
        """Commit the remaining steps of a change of a broker's state."""
        from tidelog.cluster.controller.brokers import finish

        try:
            await self._in_steps(
                lambda image, config: finish(image, config, node_id, epoch, is_silent=is_silent)
            )
        except StorageError:
            if self._sessions is not None:
                self._sessions.is_settled = False  # the next tick continues
            raise

    async def _settle(self, now: float) -> None:
        """Finish the steps that an earlier controller or a failed commit left undone."""
        from tidelog.cluster.controller.partitions import settle

        sessions = self._lead(now)
        if not sessions.is_settled:
            await self._in_steps(partial(settle, heard=sessions.heard()))
            sessions.is_settled = True

    async def _fence_silent(self, now: float) -> None:
        """Fence silent brokers one by one, so that each election sees the remaining ones."""
        from tidelog.cluster.controller import partitions
        from tidelog.cluster.controller.brokers import fence

        while True:
            sessions = self._lead(now)
            node_id = sessions.expired(self._log.latest, now)
            if node_id is None:
                return
            _logger.warning("broker %d is fenced: its session timed out", node_id)
            epoch = self._log.latest.brokers[node_id].epoch
            records = fence(self._log.latest, self._config, node_id)
            await self._log.commit(records)
            if len(records) > partitions.CHANGES_PER_STEP_MAX:
                await self._finish(node_id, epoch, is_silent=True)

    # ---- topics -------------------------------------------------------------------------------

    async def create_topics(
        self, request: CreateTopicsRequest, charge: Charge | None = None
    ) -> CreateTopicsResponse:
        """CreateTopics; StorageError if it cannot be written. Thousands of topics are decided and
        written in steps, and others are served between them; all are committed at once."""
        from tidelog.cluster.controller.topics import Creation
        from tidelog_protocol.messages.admin import CreateTopicsResponse

        creation = Creation(request, self._config, self._rng, charge)
        results: list[CreateTopicsResponse.CreatableTopicResult] = []
        records: Sequence[Message] = ()
        while not creation.is_over:
            if records:
                self._log.append(records)
            if results:
                await asyncio.sleep(0)
            count = creation.count_within(TOPICS_AT_ONCE, REPLICAS_AT_ONCE)
            image = self._log.latest
            decision = creation.step(image, count)
            if len(decision.records) > REPLICAS_AT_ONCE:  # of one topic: it is written whole
                await asyncio.sleep(0)
                if self._log.latest is not image:
                    decision = creation.again(self._log.latest)
            results += decision.results
            records = () if request.validate_only else decision.records
        await self._log.commit(records)
        return CreateTopicsResponse(
            topics=[*results, *creation.refusals()],
            throttle_time_ms=charge.throttle_ms() if charge else 0,
        )

    async def create_partitions(
        self, request: CreatePartitionsRequest, charge: Charge | None = None
    ) -> CreatePartitionsResponse:
        """CreatePartitions; StorageError if it cannot be written."""
        from tidelog.cluster.controller.topics import create_partitions
        from tidelog_protocol.messages.admin import CreatePartitionsResponse

        image = self._log.latest
        decision = create_partitions(image, request, self._rng, charge)
        if len(decision.records) > REPLICAS_AT_ONCE:
            await asyncio.sleep(0)
            if self._log.latest is not image:  # they are charged already
                decision = create_partitions(self._log.latest, request, self._rng)
        await self._log.commit(decision.records)
        return CreatePartitionsResponse(
            results=decision.results, throttle_time_ms=charge.throttle_ms() if charge else 0
        )

    async def delete_topics(
        self, request: DeleteTopicsRequest, api_version: int, charge: Charge | None = None
    ) -> DeleteTopicsResponse:
        """DeleteTopics; StorageError if it cannot be written."""
        from tidelog.cluster.controller.deletion import delete_topics, refuse_deletion
        from tidelog_protocol.messages.admin import DeleteTopicsResponse

        if not self._config.delete_topic_enable:
            code = (
                ErrorCode.TOPIC_DELETION_DISABLED
                if api_version >= _TOPIC_DELETION_DISABLED_SINCE
                else ErrorCode.INVALID_REQUEST
            )
            return DeleteTopicsResponse(responses=refuse_deletion(request, code))
        decision = delete_topics(self._log.latest, request, charge)
        await self._log.commit(decision.records)
        return DeleteTopicsResponse(
            responses=decision.results, throttle_time_ms=charge.throttle_ms() if charge else 0
        )

    # ---- configuration ------------------------------------------------------------------------

    async def alter_configs(
        self, resources: Sequence[Resource], *, validate_only: bool, is_forwarded: bool = True
    ) -> list[ResourceResult]:
        """AlterConfigs and IncrementalAlterConfigs; StorageError if it cannot be written. Those of
        many resources are decided and written in steps, as topics are.

        A request that is not forwarded is a controller's own client's: no broker checked it."""
        from tidelog.cluster.controller.configs import Alteration
        from tidelog.cluster.controller.partitions import UNCLEAN_KEY

        alteration = Alteration(self._config, resources, is_forwarded=is_forwarded)
        results: list[ResourceResult] = []
        records: Sequence[Message] = ()
        may_elect = False
        while not alteration.is_over:
            if records:
                self._log.append(records)
            if results:
                await asyncio.sleep(0)
            decision = alteration.step(self._log.latest, RESOURCES_AT_ONCE)
            results += decision.results
            records = () if validate_only else decision.records
            may_elect |= any(
                isinstance(record, tables.ConfigRecord) and record.name == UNCLEAN_KEY
                for record in records
            )
        await self._log.commit(records)
        if may_elect:
            from tidelog.cluster.controller.elections import elect_unclean

            await self._log.commit(elect_unclean(self._log.latest, self._config))
        return results

    async def alter_client_quotas(self, request: AlterClientQuotasRequest) -> list[EntityResult]:
        """AlterClientQuotas; StorageError if it cannot be written."""
        from tidelog.cluster.controller.client_quotas import alter_client_quotas

        decision = alter_client_quotas(self._log.latest, request)
        await self._log.commit(() if request.validate_only else decision.records)
        return decision.results

    async def alter_user_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        """AlterUserScramCredentials; StorageError if it cannot be written."""
        from tidelog.cluster.controller.user_credentials import alter_user_credentials
        from tidelog_protocol.messages.users import AlterUserScramCredentialsResponse

        decision = alter_user_credentials(self._log.latest, request)
        await self._log.commit(decision.records)
        return AlterUserScramCredentialsResponse(results=decision.results)

    # ---- delegation tokens --------------------------------------------------------------------

    async def alter_tokens(self, request: TokenRequest, requester: Principal) -> TokenResponse:
        """CreateDelegationToken, RenewDelegationToken and ExpireDelegationToken of a principal;
        StorageError if it cannot be written, RefusedError."""
        from tidelog.cluster.controller.delegation_tokens import Asking, alter_tokens

        now_ms = self._clock.wall_ms()
        records, response = alter_tokens(
            self._log.latest, self._config, request, Asking(requester, now_ms, self._rng.uuid)
        )
        await self._log.commit(records)
        return response

    async def expire_tokens(self) -> None:
        """Remove the tokens that have expired, if this node leads; StorageError."""
        from tidelog.cluster.controller.delegation_tokens import expired

        if self._log.is_leader and (records := expired(self._log.latest, self._clock.wall_ms())):
            await self._log.commit(records)

    # ---- ACLs ---------------------------------------------------------------------------------

    async def create_acls(self, request: CreateAclsRequest) -> CreateAclsResponse:
        """CreateAcls; StorageError if it cannot be written."""
        from tidelog.cluster.controller.acls import create_acls
        from tidelog_protocol.messages.acls import CreateAclsResponse

        decision = create_acls(self._log.latest, request, lambda: self._rng.bytes(16))
        await self._log.commit(decision.records)
        return CreateAclsResponse(results=decision.results)

    async def delete_acls(self, request: DeleteAclsRequest) -> DeleteAclsResponse:
        """DeleteAcls; StorageError if it cannot be written."""
        from tidelog.cluster.controller.acls import delete_acls
        from tidelog_protocol.messages.acls import DeleteAclsResponse

        decision = delete_acls(self._log.latest, request)
        await self._log.commit(decision.records)
        return DeleteAclsResponse(filter_results=decision.results)


async def _no_listener(validate_only: bool) -> str | None:
    """Refuse to name the voters of a node that has no others."""
    del validate_only
    return "Invalid upgrade of kraft.version because this node has no controller listener"
