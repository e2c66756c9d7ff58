"""Tables of group administration: DescribeGroups, ListGroups, DeleteGroups."""

from __future__ import annotations

from tidelog_protocol.schema import Message, Struct, array, boolean, bytes_, int16, int32, string

__all__ = [
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "ListGroupsRequest",
    "ListGroupsResponse",
]


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    """Ask for state and members of classic groups.

    v3: authorized operations (KIP-430)
    v5: flexible
    v6: GROUP_ID_NOT_FOUND understood (KIP-1043)
    """

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    """Groups as their coordinator sees them. Protocol, metadata and assignments while Stable.

    v1: throttle time
    v3: authorized operations (KIP-430)
    v4: static members (KIP-345)
    v5: flexible
    v6: error message; a group that isn't there is GROUP_ID_NOT_FOUND instead of Dead (KIP-1043)
    """

    class DescribedGroup(Struct):
        class DescribedGroupMember(Struct):
            member_id: str = string()
            group_instance_id: str | None = string("4+", nullable="4+", default=None)
            client_id: str = string()
            client_host: str = string()
            member_metadata: bytes = bytes_()
            member_assignment: bytes = bytes_()

        error_code: int = int16()
        error_message: str | None = string("6+", nullable="6+", default=None)
        group_id: str = string()
        group_state: str = string()
        protocol_type: str = string()
        protocol_data: str = string()
        members: list[DescribedGroupMember] = array(DescribedGroupMember)
        authorized_operations: int = int32("3+", default=-2147483648)

    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)

    DescribedGroupMember = DescribedGroup.DescribedGroupMember


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    """Ask for the groups this broker coordinates.

    v3: flexible
    v4: by state (KIP-518)
    v5: by type (KIP-848)
    """

    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    """Groups by name.

    v1: throttle time
    v3: flexible
    v4: state (KIP-518)
    v5: type (KIP-848)
    """

    class ListedGroup(Struct):
        group_id: str = string()
        protocol_type: str = string()
        group_state: str = string("4+")
        group_type: str = string("5+")

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


class DeleteGroupsRequest(Message, api_key=42, versions="0-3", flexible="2+"):
    """Delete empty groups (KIP-229).

    v2: flexible
    v3: error messages understood
    """

    groups_names: list[str] = array(string)


class DeleteGroupsResponse(Message, api_key=42, versions="0-3", flexible="2+"):
    """A result for each group.

    v2: flexible
    v3: error message; GROUP_DELETION_FAILED may come
    """

    class DeletableGroupResult(Struct):
        group_id: str = string()
        error_code: int = int16()
        error_message: str | None = string("3+", nullable="3+", default=None)

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
