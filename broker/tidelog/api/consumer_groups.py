"""Consumer groups of KIP-848: ConsumerGroupHeartbeat, ConsumerGroupDescribe.

Behaviour. Both APIs are refused with UNSUPPORTED_VERSION while the cluster's `group.version` is 0,
or if `group.coordinator.rebalance.protocols` has no `consumer`; they are listed nevertheless, as in
Kafka: librdkafka waits without an error for a broker that lists the heartbeat, but fails at once if
it is refused. A heartbeat is answered once its records are committed. If there is an authorizer,
patterns match only the topics that the caller may describe. The authorized operations are all of
them; an authorizer's guard corrects them.

Version notes. ConsumerGroupHeartbeat 1: regular expressions, member ids of the client (KIP-1082).
ConsumerGroupDescribe 1: type of each member (KIP-1099).
"""

from __future__ import annotations

from functools import lru_cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tidelog.api.group_admin import Missing, describe_modern, find_group
from tidelog.cluster.metadata.features import GROUP_FEATURE
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.consumer.requests import Heartbeat
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.consumer_groups import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.coordinators.groups.admin import GroupAdmin
    from tidelog.coordinators.groups.consumer.member import ConsumerMember
    from tidelog.coordinators.groups.consumer.membership import ConsumerMembership
    from tidelog.coordinators.groups.modern.member import Partitions
    from tidelog.network.dispatch import Deferred, Handler, RequestContext
    from tidelog.security.authorizer import Authorizer
    from tidelog_protocol.messages.consumer_groups import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupHeartbeatRequest,
    )

__all__ = ["ConsumerGroupsApi"]

_CLIENT_IDS_VERSION = 1  # of ConsumerGroupHeartbeat
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1

_said = attrgetter(  # beside the member's epoch
    "topic_partitions",
    "rebalance_timeout_ms",
    "subscribed_topic_names",
    "subscribed_topic_regex",
    "instance_id",
    "rack_id",
    "server_assignor",
)
_NOTHING_NEW = (None, -1, None, None, None, None, None)

_HeartbeatAssignment = ConsumerGroupHeartbeatResponse.Assignment
_HeartbeatPartitions = ConsumerGroupHeartbeatResponse.TopicPartitions
_DescribedGroup = ConsumerGroupDescribeResponse.DescribedGroup
_DescribedMember = _DescribedGroup.Member
_DescribedAssignment = _DescribedMember.Assignment
_DescribedPartitions = _DescribedAssignment.TopicPartitions


class ConsumerGroupsApi:
    """Handlers of KIP-848."""

    def __init__(
        self,
        admin: GroupAdmin,
        image: Callable[[], ClusterImage],
        membership: ConsumerMembership,
        authorizer: Authorizer | None = None,
        *,
        is_allowed: bool = True,
    ) -> None:
        """`is_allowed`: the broker's settings have the protocol."""
        self._authorizer = authorizer
        self._admin = admin
        self._image = image
        self._membership = membership
        self._is_allowed = is_allowed

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self.heartbeat,
            ApiKey.CONSUMER_GROUP_DESCRIBE: self.describe,
        }

    def _is_on(self) -> bool:
        return self._is_allowed and self._image().features.get(GROUP_FEATURE, 0) >= 1

    # ---- ConsumerGroupHeartbeat --------------------------------------------------------------

    def heartbeat(
        self, context: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> Deferred | ConsumerGroupHeartbeatResponse | list[bytes]:
        """Answer a ConsumerGroupHeartbeat request."""
        if not self._is_on():
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
        if epoch > 0 and _said(request) == _NOTHING_NEW:  # as most of them
            client = context.client_id or "", f"/{context.peer.client_host}"
            interval_ms = self._membership.renewed(group_id, member_id, epoch, client)
            if interval_ms is not None:
                return [_renewal(context.api_version, member_id, epoch, interval_ms)]
        heartbeat = _heartbeat_of(context, request)
        if self._authorizer is not None:
            caller = self._authorizer.caller(context.peer.principal, context.client_host)
            heartbeat = heartbeat._replace(may_describe=caller.may_describe_topic)
        try:
            answer, settling = self._membership.heartbeat(
                group_id,
                heartbeat,
                needs_member_id=context.api_version >= _CLIENT_IDS_VERSION,
            )
        except RefusedError as refusal:
            return ConsumerGroupHeartbeatResponse(
                error_code=refusal.code, error_message=refusal.message
            )
        assignment = None
        assigned = answer.assigned
        if assigned is not None:
            assignment = _HeartbeatAssignment(
                topic_partitions=[
                    _HeartbeatPartitions(topic_id=each, partitions=sorted(assigned[each]))
                    for each in sorted(assigned)
                ]
            )
        response = ConsumerGroupHeartbeatResponse(
            member_id=answer.member_id,
            member_epoch=answer.epoch,
            heartbeat_interval_ms=answer.heartbeat_interval_ms,
            assignment=assignment,
        )
        if settling is None:  # without followers nothing has to be awaited
            return response
        return context.answer_with(settling, partial(_unless_failed, response))

    # ---- ConsumerGroupDescribe ---------------------------------------------------------------

    def describe(self, context: RequestContext, request: ConsumerGroupDescribeRequest) -> Any:
        """Answer a ConsumerGroupDescribe request."""
        if not self._is_on():
            refused = ErrorCode.UNSUPPORTED_VERSION
            return ConsumerGroupDescribeResponse(
                groups=[
                    _DescribedGroup(group_id=each, error_code=refused) for each in request.group_ids
                ]
            )
        return describe_modern(context, request, self._described, ConsumerGroupDescribeResponse)

    def _described(self, group_id: str) -> _DescribedGroup:
        group = find_group(self._admin, group_id, ConsumerGroup)
        if isinstance(group, Missing):
            return _DescribedGroup(
                group_id=group_id, error_code=group.code, error_message=group.message
            )
        return _DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.assignor,
            members=[
                self._described_member(member, group.targets.get(member_id, {}))
                for member_id, member in sorted(group.members.items())
            ],
        )

    def _described_member(self, member: ConsumerMember, target: Partitions) -> _DescribedMember:
        said = member.subscription
        return _DescribedMember(
            member_id=member.member_id,
            instance_id=said.instance_id,
            rack_id=said.rack_id,
            member_epoch=member.epoch,
            client_id=said.client_id,
            client_host=said.client_host,
            subscribed_topic_names=sorted(said.topic_names),
            subscribed_topic_regex=said.topic_regex or "",
            assignment=self._assignment(_held(member)),
            target_assignment=self._assignment(target),
            member_type=_CONSUMER_MEMBER if said.classic is None else _CLASSIC_MEMBER,
        )

    def _assignment(self, assigned: Mapping[bytes, Iterable[int]]) -> _DescribedAssignment:
        """Describe partitions; those of deleted topics have no name and are left out."""
        names = self._image().topic_names
        return _DescribedAssignment(
            topic_partitions=[
                _DescribedPartitions(
                    topic_id=topic_id, topic_name=names[topic_id], partitions=partitions
                )
                for topic_id, partitions in _listed(assigned)
                if topic_id in names
            ]
        )


def _unless_failed(
    response: ConsumerGroupHeartbeatResponse, error: ErrorCode
) -> ConsumerGroupHeartbeatResponse:
    """Return the response, or that of the error if its records were not committed."""
    if error is ErrorCode.NONE:
        return response
    return ConsumerGroupHeartbeatResponse(error_code=error)


@lru_cache(maxsize=10_000)
def _renewal(version: int, member_id: str, epoch: int, interval_ms: int) -> bytes:
    """Return the encoded answer to a heartbeat that changes nothing: a member has the same one many
    times."""
    codec = API[ApiKey.CONSUMER_GROUP_HEARTBEAT].response_codec(version)
    answer = ConsumerGroupHeartbeatResponse(
        member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=interval_ms
    )
    return b"".join(codec.encode_parts(answer))


def _heartbeat_of(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Heartbeat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return Heartbeat(
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if names is None else tuple(names),
        request.subscribed_topic_regex,
        request.server_assignor,
        None if owned is None else _partitions_of(owned),
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",  # as Java prints an address
    )


def _partitions_of(owned: Iterable[ConsumerGroupHeartbeatRequest.TopicPartitions]) -> Partitions:
    """Return partitions by topic id. A topic may come several times."""
    found: dict[bytes, frozenset[int]] = {}
    for each in owned:
        found[each.topic_id] = found.get(each.topic_id, frozenset()).union(each.partitions)
    return found


def _held(member: ConsumerMember) -> dict[bytes, set[int]]:
    """Return the partitions of a member, with those that it must still revoke."""
    return {
        topic_id: {*member.assigned.get(topic_id, ()), *member.revoking.get(topic_id, ())}
        for topic_id in {*member.assigned, *member.revoking}
    }


def _listed(assigned: Mapping[bytes, Iterable[int]]) -> list[tuple[bytes, list[int]]]:
    """Return topics and partitions in order."""
    return [(topic_id, sorted(assigned[topic_id])) for topic_id in sorted(assigned)]
