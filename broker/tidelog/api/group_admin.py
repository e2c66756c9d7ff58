"""Group administration: DescribeGroups, ListGroups, DeleteGroups.

Behaviour. DescribeGroups is for classic groups, and finds no others. A group's protocol, its
members' metadata and assignments are only shown while it is stable. ListGroups fails as a whole
while a partition of `__consumer_offsets` loads. DeleteGroups deletes empty groups with their
offsets; a group named twice is answered once. There is no authorizer: the authorized operations are
all of them.

Version notes. DescribeGroups 3 (KIP-430): authorized operations; 4 (KIP-345): static members; 6
(KIP-1043): GROUP_ID_NOT_FOUND with a message for an unknown group; before, its state is Dead.
ListGroups 4 (KIP-518): states, and filter by them; 5 (KIP-848): types, and filter. DeleteGroups 3:
error message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tidelog.awaiting import all_of
from tidelog.coordinators.groups.classic.group import Group
from tidelog.coordinators.groups.classic.states import GroupState
from tidelog.network.wide_requests import PART_MAX, in_turns
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.group_admin import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    ListGroupsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from tidelog.coordinators.groups.admin import GroupAdmin
    from tidelog.coordinators.groups.classic.member import Member
    from tidelog.coordinators.groups.kinds import AnyGroup
    from tidelog.network.dispatch import Deferred, Handler, RequestContext
    from tidelog_protocol.messages.group_admin import (
        DeleteGroupsRequest,
        DescribeGroupsRequest,
        ListGroupsRequest,
    )

__all__ = ["GroupAdminApi", "Missing", "describe_modern", "find_group"]

# READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: a bit for each AclOperation.
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
_OPERATIONS_OMITTED = -(1 << 31)

AGroup = TypeVar("AGroup", bound="AnyGroup")


class Missing(NamedTuple):
    """Why a group cannot be described."""

    code: ErrorCode
    message: str | None = None


def find_group(admin: GroupAdmin, group_id: str, kind: type[AGroup]) -> AGroup | Missing:
    """Return a group of one type, or why there is none, in Kafka's words."""
    group = admin.find(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
    if isinstance(group, kind):
        return group
    if not isinstance(group, ErrorCode):
        text = f"Group {group_id} is not a {kind.type} group."
        return Missing(ErrorCode.GROUP_ID_NOT_FOUND, text)
    if group is ErrorCode.GROUP_ID_NOT_FOUND:
        return Missing(group, f"Group {group_id} not found.")
    return Missing(group)


def describe_in_turns(
    context: RequestContext,
    group_ids: Sequence[str],
    describe: Callable[[str], Any],
    respond: Callable[[list[Any]], Any],
) -> Any:
    """Describe groups, with a turn of the loop between parts of `PART_MAX` groups and members."""

    def parts() -> Generator[None, None, Any]:
        groups: list[Any] = []
        room = PART_MAX
        for group_id in group_ids:
            if room <= 0:
                yield
                room = PART_MAX
            groups.append(describe(group_id))
            room -= 1 + len(groups[-1].members)
        return respond(groups)

    return in_turns(parts(), context)


def describe_modern(
    context: RequestContext, request: Any, describe: Callable[[str], Any], response: type[Any]
) -> Any:
    """Answer a describe request of consumer, share or streams groups: all have these fields."""

    def respond(groups: list[Any]) -> Any:
        if request.include_authorized_operations:
            _add_operations(groups)
        return response(groups=groups)

    return describe_in_turns(context, request.group_ids, describe, respond)


def _add_operations(groups: Iterable[Any]) -> None:
    """Name all operations in the descriptions of groups that have no error."""
    for group in groups:
        if group.error_code == ErrorCode.NONE:
            group.authorized_operations = ALL_OPERATIONS


_DescribedGroup = DescribeGroupsResponse.DescribedGroup
_DescribedMember = _DescribedGroup.DescribedGroupMember


class GroupAdminApi:
    """Handlers of the APIs that admin tools use on groups."""

    def __init__(self, admin: GroupAdmin) -> None:
        self._admin = admin

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.DESCRIBE_GROUPS: self.describe,
            ApiKey.LIST_GROUPS: self.list_groups,
            ApiKey.DELETE_GROUPS: self.delete,
        }

    def describe(self, context: RequestContext, request: DescribeGroupsRequest) -> Any:
        """Answer a DescribeGroups request."""
        operations = _OPERATIONS_OMITTED
        if request.include_authorized_operations:
            operations = ALL_OPERATIONS

        def describe(group_id: str) -> _DescribedGroup:
            return self._describe_one(group_id, context.api_version, operations)

        return describe_in_turns(
            context, request.groups, describe, lambda groups: DescribeGroupsResponse(groups=groups)
        )

    def _describe_one(self, group_id: str, version: int, operations: int) -> _DescribedGroup:
        found = self._admin.find(group_id)
        if isinstance(found, Group):
            return self._described(found, operations)
        if isinstance(found, ErrorCode) and found is not ErrorCode.GROUP_ID_NOT_FOUND:
            return _DescribedGroup(group_id=group_id, error_code=found)
        described = _DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if version >= 6:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            what = "not found" if isinstance(found, ErrorCode) else "is not a classic group"
            described.error_message = f"Group {group_id} {what}."
        else:
            described.authorized_operations = operations
        return described

    def _described(self, group: Group, operations: int) -> _DescribedGroup:
        is_stable = group.state is GroupState.STABLE
        return _DescribedGroup(
            group_id=group.group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if is_stable else "",
            members=[
                _described_member(member, group.protocol_name if is_stable else None)
                for member in group.members.values()
            ],
            authorized_operations=operations,
        )

    def list_groups(
        self, _context: RequestContext, request: ListGroupsRequest
    ) -> ListGroupsResponse:
        """Answer a ListGroups request."""
        groups = self._admin.list_groups()
        if isinstance(groups, ErrorCode):
            return ListGroupsResponse(error_code=groups)
        states = {state.strip().lower() for state in request.states_filter}
        types = {name.lower() for name in request.types_filter}
        return ListGroupsResponse(
            groups=[
                _listed(group)
                for group in groups
                if (not states or _filter_name(group) in states)
                and (not types or group.type in types)
            ]
        )

    def delete(
        self, context: RequestContext, request: DeleteGroupsRequest
    ) -> Deferred | DeleteGroupsResponse:
        """Answer a DeleteGroups request."""
        group_ids = list(dict.fromkeys(request.groups_names))
        return context.answer_with(
            all_of(self._admin.delete_group(group_id) for group_id in group_ids),
            lambda errors: _deleted(zip(group_ids, errors, strict=True)),
        )


def _described_member(member: Member, protocol_name: str | None) -> _DescribedMember:
    return _DescribedMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol_name is None else member.metadata(protocol_name),
        member_assignment=member.assignment,
    )


def _filter_name(group: AnyGroup) -> str:
    """Return the state by which a filter finds a group: Kafka spells one otherwise than it lists
    it."""
    name = group.state.value
    return "not_ready" if name == "NotReady" else name.lower()


def _listed(group: AnyGroup) -> ListGroupsResponse.ListedGroup:
    return ListGroupsResponse.ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=group.type,
    )


def _deleted(results: Iterable[tuple[str, ErrorCode]]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error)
            for group_id, error in results
        ]
    )
