"""Pure decisions about ACLs: CreateAcls and DeleteAcls → AccessControlEntryRecords.

Codes and texts are those of Kafka's AclApis and AclControlManager. A creation that repeats an ACL
succeeds and gets no record. Where a filter of a deletion has a resource's name or a principal, it
is compared with the ACLs of that alone. The comparisons are limited; Kafka has no such limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.decisions import Decision, RefusedError
from tidelog.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    filter_of,
    is_unknown,
)
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.acls import CreateAclsResponse, DeleteAclsResponse
from tidelog_protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog_protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest

__all__ = ["CHANGES_MAX", "create_acls", "delete_acls"]

CHANGES_MAX = 10_000  # of one request (QuorumController.MAX_RECORDS_PER_USER_OP)
COMPARISONS_MAX = 500_000  # of one request, which take half a second, and one with each ACL
MATCH_COST = 10  # comparisons, which take as long as to answer with an ACL

_Created = CreateAclsResponse.AclCreationResult
_Deleted = DeleteAclsResponse.DeleteAclsFilterResult


def create_acls(
    image: ClusterImage, request: CreateAclsRequest, new_id: Callable[[], bytes]
) -> Decision[CreateAclsResponse.AclCreationResult]:
    """Decide a CreateAcls request."""
    existing = set(image.acls.values())
    records: list[AccessControlEntryRecord] = []
    results = []
    for creation in request.creations:
        acl = Acl(
            creation.resource_type,
            creation.resource_name,
            creation.resource_pattern_type,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
        try:
            _check(acl)
        except RefusedError as refusal:
            results.append(_Created(error_code=refusal.code, error_message=refusal.message))
            continue
        results.append(_Created())
        if acl not in existing:
            existing.add(acl)
            records.append(AccessControlEntryRecord(id=new_id(), **acl._asdict()))
    if len(records) > CHANGES_MAX:
        too_many = _Created(
            error_code=ErrorCode.POLICY_VIOLATION,
            error_message="Unable to perform excessively large batch operation.",
        )
        return Decision([], [too_many] * len(request.creations))
    return Decision(records, results)


def _check(acl: Acl) -> None:
    """Raise RefusedError for an ACL that cannot be."""
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise _invalid("Invalid empty resource name")
    for name, kind, number in (
        ("resourceType", ResourceType, acl.resource_type),
        ("patternType", PatternType, acl.pattern_type),
        ("operation", Operation, acl.operation),
        ("permissionType", Permission, acl.permission_type),
    ):
        if is_unknown(kind, number):
            raise _invalid(f"Invalid {name} UNKNOWN")
    if ":" not in acl.principal:
        raise _invalid(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )


def delete_acls(
    image: ClusterImage, request: DeleteAclsRequest
) -> Decision[DeleteAclsResponse.DeleteAclsFilterResult]:
    """Decide a DeleteAcls request. Two filters may find the same ACL."""
    gone: set[bytes] = set()
    results = []
    search = _Search(image.acls)
    for each in request.filters:
        wanted = filter_of(each)
        unknown = _unknown_part(wanted)
        if unknown:
            text = f"Unknown {unknown}."
            results.append(_Deleted(error_code=ErrorCode.INVALID_REQUEST, error_message=text))
            continue
        found = search.find(wanted)
        if found is None:
            return _too_many(request, "Too many filters for so many acls in a single operation.")
        gone.update(found)
        results.append(
            _Deleted(
                error_message=None,
                matching_acls=[
                    _Deleted.DeleteAclsMatchingAcl(error_message=None, **acl._asdict())
                    for acl in found.values()
                ],
            )
        )
    if len(gone) > CHANGES_MAX:
        text = f"Cannot remove more than {CHANGES_MAX} acls in a single delete operation."
        return _too_many(request, text)
    return Decision([RemoveAccessControlEntryRecord(id=acl_id) for acl_id in sorted(gone)], results)


def _unknown_part(wanted: AclFilter) -> str | None:
    """Return which of Kafka's two parts of a filter has a number without a name."""
    pattern = (ResourceType, wanted.resource_type), (PatternType, wanted.pattern_type)
    if any(is_unknown(*each) for each in pattern):
        return "patternFilter"
    entry = (Operation, wanted.operation), (Permission, wanted.permission_type)
    return "entryFilter" if any(is_unknown(*each) for each in entry) else None


def _too_many(
    request: DeleteAclsRequest, message: str
) -> Decision[DeleteAclsResponse.DeleteAclsFilterResult]:
    refused = _Deleted(error_code=ErrorCode.INVALID_REQUEST, error_message=message)
    return Decision([], [refused] * len(request.filters))


class _Search:
    """Finds the ACLs that the filters of one request mean."""

    def __init__(self, acls: Mapping[bytes, Acl]) -> None:
        self._acls = acls
        self._by_name: dict[str, list[bytes]] = {}
        self._by_principal: dict[str, list[bytes]] = {}
        lengths = set()
        for acl_id, acl in acls.items():
            self._by_name.setdefault(acl.resource_name, []).append(acl_id)
            self._by_principal.setdefault(acl.principal, []).append(acl_id)
            if acl.pattern_type == PatternType.PREFIXED:
                lengths.add(len(acl.resource_name))
        self._lengths = sorted(lengths)
        self._left = COMPARISONS_MAX + len(acls) * (1 + MATCH_COST)

    def find(self, wanted: AclFilter) -> dict[bytes, Acl] | None:
        """Return what a filter means; None when the request has cost too much."""
        ids = self._candidates(wanted)
        self._left -= len(ids)
        if self._left < 0:
            return None
        acls = self._acls
        found = {acl_id: acls[acl_id] for acl_id in ids if wanted.matches(acls[acl_id])}
        self._left -= len(found) * MATCH_COST
        return found if self._left >= 0 else None

    def _candidates(self, wanted: AclFilter) -> Collection[bytes]:
        name = wanted.resource_name
        if name is None:
            if wanted.principal is None:
                return self._acls
            return self._by_principal.get(wanted.principal, ())
        if wanted.pattern_type != PatternType.MATCH:
            return self._by_name.get(name, ())
        self._left -= len(self._lengths)
        prefixes = (name[:length] for length in self._lengths if length < len(name))
        names = dict.fromkeys((name, WILDCARD, *prefixes))
        return [acl_id for each in names for acl_id in self._by_name.get(each, ())]


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, message)
