"""Decides which principal may do what (Kafka: StandardAuthorizer, KIP-801).

Super users may do everything; else the ACLs of the cluster's image decide; without any about a
resource, `allow.everyone.if.no.acl.found` does. Decisions of a principal at a host are remembered
until ACLs change, so that a request on the data path costs one look-up for each topic. The first
time that something is denied, it is logged at info, as by Kafka's `kafka.authorizer.logger`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.config.authorizer_keys import super_user_names
from tidelog.security.acls import CLUSTER_NAME, OPERATIONS_OF, AclIndex, Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.config.broker import BrokerConfig
    from tidelog.security.acls import Acl
    from tidelog.security.principal import Principal

__all__ = ["Authorizer", "Caller"]

log = logging.getLogger("tidelog.security.authorizer")

CALLERS_MAX = 10_000
DECISIONS_MAX = 10_000  # of one caller
_ANY_NAME = "hardcode"  # Kafka's: a resource that only wildcards are about


class Authorizer:
    """The authorizer of one broker."""

    def __init__(self, config: BrokerConfig, acls: Callable[[], Mapping[bytes, Acl]]) -> None:
        """`acls` returns the ACLs by their ids: another object once they have changed."""
        self._read_acls = acls
        self._super_users = super_user_names(config.super_users)
        self._default = config.allow_everyone_if_no_acl_found
        self._acls: Mapping[bytes, Acl] | None = None
        self._index = AclIndex(())
        self._callers: dict[tuple[Principal, str], Caller] = {}

    def caller(self, principal: Principal, host: str) -> Caller:
        """Return the decisions about a principal at a host; hold it for one request only."""
        acls = self._read_acls()
        if acls is not self._acls:
            self._acls = acls
            self._index = AclIndex(acls.values())
            self._callers.clear()
        known = self._callers.get((principal, host))
        if known is None:
            if len(self._callers) >= CALLERS_MAX:
                self._callers.clear()
            text = str(principal)
            known = self._callers[principal, host] = Caller(
                self._index,
                text,
                host,
                is_super=text in self._super_users,
                default=self._default,
            )
        return known


class Caller:
    """What one principal at one host may do."""

    __slots__ = ("_decisions", "_default", "_index", "host", "is_super", "principal")

    def __init__(
        self, index: AclIndex, principal: str, host: str, *, is_super: bool, default: bool
    ) -> None:
        self._index = index
        self._default = default
        self._decisions: dict[tuple[int, int, str], bool] = {}
        self.principal = principal
        self.host = host
        self.is_super = is_super

    def allows(self, operation: int, resource_type: int, name: str, *, logs: bool = True) -> bool:
        """Return whether the caller may do this. `logs`: it asked for it, so a refusal is
        logged."""
        key = operation, resource_type, name
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(operation, resource_type, name)
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[key] = decision
            if not decision and logs and log.isEnabledFor(logging.INFO):
                log.info(
                    "Principal = %s is Denied operation = %s from host = %s on resource = %s:%s",
                    self.principal,
                    Operation(operation).name,
                    self.host,
                    ResourceType(resource_type).name,
                    name,
                )
        return decision

    def allows_cluster(self, operation: int, *, logs: bool = True) -> bool:
        """Return whether the caller may do this to the cluster."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, logs=logs)

    def may_describe_topic(self, name: str) -> bool:
        """Return whether the caller sees a topic among those that a pattern matches."""
        return self.allows(Operation.DESCRIBE, ResourceType.TOPIC, name, logs=False)

    def may_create_topic(self, name: str) -> bool:
        """Return whether the caller may create a topic: by the cluster, or by its name."""
        return self.allows_cluster(Operation.CREATE, logs=False) or self.allows(
            Operation.CREATE, ResourceType.TOPIC, name
        )

    def allows_any(self, operation: int, resource_type: int) -> bool:
        """Return whether the caller may do this to some resource of a type."""
        return self._decide(operation, resource_type, _ANY_NAME) or self._index.allows_any(
            operation, resource_type, self.principal, self.host
        )

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return what the caller may do to a resource, as bits of AclOperation (KIP-430)."""
        return sum(
            1 << operation
            for operation in OPERATIONS_OF[resource_type]
            if self.allows(operation, resource_type, name, logs=False)
        )

    def _decide(self, operation: int, resource_type: int, name: str) -> bool:
        if self.is_super:
            return True
        decision = self._index.decide(operation, resource_type, name, self.principal, self.host)
        return self._default if decision is None else decision
