"""ACLs, and the index that decides with them (Kafka: StandardAuthorizerData, AclCache).

Pure. An ACL allows or denies an operation on resources with a name (literal), on those whose names
begin with one (prefixed), or on all of a type (literal `*`), to a principal (`User:*`: to all) from
a host (`*`: from all).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidelog_protocol.messages.acls import (
        CreateAclsRequest,
        DeleteAclsRequest,
        DescribeAclsRequest,
    )

__all__ = [
    "CLUSTER_NAME",
    "OPERATIONS_OF",
    "WILDCARD",
    "Acl",
    "AclFilter",
    "AclIndex",
    "Operation",
    "PatternType",
    "Permission",
    "ResourceType",
    "check_creations",
    "check_filters",
    "filter_of",
    "is_of_filters",
    "is_unknown",
]

WILDCARD = "*"
EVERYONE = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The only resource of type CLUSTER."""


class ResourceType(IntEnum):
    """What an ACL is about (Kafka's ResourceType)."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of a resource is meant (Kafka's PatternType). ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What is done to a resource (Kafka's AclOperation)."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether an ACL allows or denies (Kafka's AclPermissionType)."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_O = Operation
OPERATIONS_OF = {
    ResourceType.TOPIC: (
        *(_O.READ, _O.WRITE, _O.CREATE, _O.DESCRIBE, _O.DELETE, _O.ALTER),
        *(_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ),
    ResourceType.GROUP: (_O.READ, _O.DESCRIBE, _O.DELETE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        *(_O.CREATE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
        *(_O.IDEMPOTENT_WRITE, _O.ALTER, _O.DESCRIBE),
    ),
}
"""The operations that a resource's bits of authorized operations name (AclEntry, KIP-430)."""

# An ALLOW of these also allows the operation; a DENY denies only what it names.
_IMPLIED_BY = {
    Operation.DESCRIBE: frozenset({_O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER, _O.ALL}),
    Operation.DESCRIBE_CONFIGS: frozenset({_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.ALL}),
}


class Acl(NamedTuple):
    """One ACL, as AccessControlEntryRecord has it."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    def __str__(self) -> str:
        return (
            f"{ResourceType(self.resource_type).name}:{PatternType(self.pattern_type).name}:"
            f"{self.resource_name} {Permission(self.permission_type).name} "
            f"{Operation(self.operation).name} {self.principal}@{self.host}"
        )

    def is_for(self, principal: str, host: str) -> bool:
        """Return whether the ACL is for a principal at a host."""
        return self.principal in (principal, EVERYONE) and self.host in (host, WILDCARD)

    def decides(self, operation: int) -> bool:
        """Return whether the ACL says something about an operation."""
        if self.operation in (operation, Operation.ALL):
            return True
        implied_by = _IMPLIED_BY.get(Operation(operation), ())
        return self.permission_type == Permission.ALLOW and self.operation in implied_by


class AclFilter(NamedTuple):
    """Which ACLs are meant; None and ANY match everything (AclBindingFilter)."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def check(self) -> None:
        """ProtocolError for UNKNOWN: where Kafka parses the request, it closes the connection. To
        it, numbers without a name are UNKNOWN only later."""
        if 0 in (self.resource_type, self.pattern_type, self.operation, self.permission_type):
            raise ProtocolError("an ACL has an unknown type")

    def matches(self, acl: Acl) -> bool:
        """Return whether an ACL is meant."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission_type in (Permission.ANY, acl.permission_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        """Compare the pattern (ResourcePatternFilter). MATCH finds what is about the name."""
        kind, name = self.pattern_type, self.resource_name
        if kind not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None or (kind != PatternType.MATCH and name == acl.resource_name):
            return True
        if kind != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name in (name, WILDCARD)


def filter_of(wanted: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    """Return the filter of a request; ProtocolError as by `check`."""
    found = AclFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )
    found.check()
    return found


def check_creations(request: CreateAclsRequest) -> None:
    """ProtocolError as by `check`."""
    for each in request.creations:
        AclFilter(
            each.resource_type,
            each.resource_name,
            each.resource_pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        ).check()


def is_of_filters(creation: CreateAclsRequest.AclCreation) -> bool:
    """Return whether a creation has ANY or MATCH, which only filters may have."""
    return (
        creation.resource_type == ResourceType.ANY
        or creation.resource_pattern_type in (PatternType.ANY, PatternType.MATCH)
        or creation.operation == Operation.ANY
        or creation.permission_type == Permission.ANY
    )


def check_filters(request: DeleteAclsRequest) -> None:
    """ProtocolError as by `check`."""
    for each in request.filters:
        filter_of(each)


def is_unknown(kind: type[IntEnum], number: int) -> bool:
    """Return whether a number has no name."""
    return not 0 < number <= max(kind)


class AclIndex:
    """ACLs by the names of their resources; never changed."""

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._by_type: dict[int, list[Acl]] = {}
        self._literal: dict[tuple[int, str], list[Acl]] = {}
        self._prefixed: dict[tuple[int, str], list[Acl]] = {}
        lengths: dict[int, set[int]] = {}
        for acl in acls:
            key = acl.resource_type, acl.resource_name
            self._by_type.setdefault(acl.resource_type, []).append(acl)
            if acl.pattern_type == PatternType.PREFIXED:
                self._prefixed.setdefault(key, []).append(acl)
                lengths.setdefault(acl.resource_type, set()).add(len(acl.resource_name))
            else:
                self._literal.setdefault(key, []).append(acl)
        self._lengths = {kind: sorted(each) for kind, each in lengths.items()}

    def _about(self, resource_type: int, name: str) -> Iterator[Acl]:
        yield from self._literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource_type, WILDCARD), ())
        for length in self._lengths.get(resource_type, ()):
            if length > len(name):
                return
            yield from self._prefixed.get((resource_type, name[:length]), ())

    def decide(
        self, operation: int, resource_type: int, name: str, principal: str, host: str
    ) -> bool | None:
        """Return whether an operation is allowed; None if no ACL is about the resource. One ACL
        that denies outweighs all that allow."""
        allowed: bool | None = None
        for acl in self._about(resource_type, name):
            if acl.is_for(principal, host) and acl.decides(operation):
                if acl.permission_type == Permission.DENY:
                    return False
                allowed = True
            elif allowed is None:
                allowed = False
        return allowed

    def allows_any(self, operation: int, resource_type: int, principal: str, host: str) -> bool:
        """Return whether an operation is allowed on some resource of a type
        (Authorizer.authorizeByResourceType, KIP-679)."""
        mine = [
            acl
            for acl in self._by_type.get(resource_type, ())
            if acl.is_for(principal, host) and acl.operation in (operation, Operation.ALL)
        ]
        denied = {
            (acl.pattern_type, acl.resource_name)
            for acl in mine
            if acl.permission_type == Permission.DENY
        }
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(
            acl.permission_type == Permission.ALLOW and not _is_covered(acl, denied) for acl in mine
        )


def _is_covered(acl: Acl, denied: set[tuple[int, str]]) -> bool:
    """Return whether everything that an ACL allows is denied."""
    name = acl.resource_name
    if acl.pattern_type == PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if (PatternType.LITERAL, name) in denied:
            return True
    return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))
