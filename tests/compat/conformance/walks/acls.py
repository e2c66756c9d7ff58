"""Walks of ACLs, which a super user makes, describes and deletes, and of what two others may do
by them.

These walks have brokers of their own, and delete all ACLs at the end. ACLs come in the order of
hash tables, so they are sorted. No name begins with a character below `*`: beside an ACL of `!y`,
Kafka's authorizer looks for `!x` for ever. Of records the size is compared, since markers of
transactions have times. Requests that join groups, wait for others, or have an effect at some
moment later are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.authorized import unprinted
from compat.conformance.messages import plain
from compat.conformance.session import CLOSED
from compat.conformance.walks.topics import Admin
from compat.conformance.walks.walk import ordered
from compat.eventually import eventually
from support import rights
from tidelog.security.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from tidelog_protocol.apis import ApiKey

if TYPE_CHECKING:
    import random

    from compat.conformance.sasl.session import SaslSession

STEPS = 60
OTHERS = ("bob", "carol")
ANY = 1
Acl = dict[str, Any]
LEFT_OUT = {
    *(ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS),
    *(ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN),
    *(ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN),
    *(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY),
    *(ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS),  # the walk does
    *(ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER),
    *(ApiKey.DESCRIBE_LOG_DIRS, ApiKey.CONSUMER_GROUP_HEARTBEAT),
    *(ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH),
    *(ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE),
    *(ApiKey.WRITE_SHARE_GROUP_STATE, ApiKey.DELETE_SHARE_GROUP_STATE),
}
ROWS = [row for row in rights.rows() if row.listener == "broker" and row.api.key not in LEFT_OUT]
LISTS = {"ListGroups": "groups", "ListTransactions": "transaction_states"}
"""Those of all walks, and by what field."""


class Acls(Admin):
    """The ACLs of a walk."""

    session: SaslSession

    def __init__(self, session: SaslSession, rng: random.Random) -> None:
        super().__init__(session, rng)
        names, ids = self.topics_with_ids(1, 1)
        self.ids = dict(zip(names, ids, strict=True))
        self.asked = [*names, f"{session.name}.missing"]
        whole = session.name
        self.names = [*self.asked, whole, f"{whole}.", f"{names[1]}0", "w", "*", "hard"]
        self.made: list[Acl] = []

    def await_coordinators(self) -> None:
        """Wait until those of the groups and transactions that are named have loaded."""
        start = {"producer_id": -1, "producer_epoch": -1, "transaction_timeout_ms": 60_000}
        for name in self.asked:
            self._served("FindCoordinator", 3, key=name, key_type=0)
            self._served("OffsetFetch", 7, group_id=name, topics=None)
            self._served("FindCoordinator", 3, key=name, key_type=1)
            self._served("InitProducerId", 4, transactional_id=name, **start)

    def _served(self, api: str, version: int, **fields: Any) -> None:
        eventually(
            lambda: self.session.quietly(api, version, **fields),
            lambda answer: not answer["error_code"],
        )

    def login(self, name: str) -> str:
        """The connection of a user, which is opened again where the broker has closed it."""
        connection = f"SASL:{name}"
        if not self.session.is_open(connection):
            self.session.login(name, to=connection)
        return connection

    def ask(self, api: str, version: int, *, to: str = "main", **fields: Any) -> None:
        """Ask, and record the answer in an order of its own."""
        sent = self.session.send(api, version, connection=to, **fields)
        answer = self.session.receive(api, version, sent, record=False)
        if api in LISTS and answer != CLOSED:
            rows = answer[LISTS[api]]
            answer[LISTS[api]] = [row for row in rows if self.session.name in repr(row)]
        if api == "Fetch":
            for topic in answer.get("responses", ()):
                for partition in topic["partitions"]:
                    partition["records"] = len(partition["records"] or b"")
        self.session.record(api, unprinted(ordered(answer, _place)))

    def _acl(self) -> Acl:
        """An ACL, mostly one that can be."""
        kind = self.any_of(
            *((30, ResourceType.TOPIC), (15, ResourceType.GROUP), (25, ResourceType.CLUSTER)),
            *((10, ResourceType.TRANSACTIONAL_ID), (3, ResourceType.DELEGATION_TOKEN)),
            *((3, ResourceType.USER), (0.5, ANY)),
        )
        names = [CLUSTER_NAME] if kind == ResourceType.CLUSTER else self.names
        odd = ("", "x" * 300, "\u00e4", CLUSTER_NAME, "*")
        principals = ("User:bob", "User:bob", "User:carol", "User:*", "User:nobody", "Group:bob")
        no_principals = ("", "bob", "User:", ":bob")
        permission = self.any_of((70, Permission.ALLOW), (28, Permission.DENY), (1, ANY))
        return {
            "resource_type": kind,
            "resource_name": self.rng.choice(odd if self.chance() else names),
            "resource_pattern_type": self.any_of((70, 3), (28, 4), (0.5, 1), (0.5, 2)),
            "principal": self.rng.choice(no_principals if self.chance() else principals),
            "host": self.any_of((60, "*"), (30, "127.0.0.1"), (8, "127.0.0.2"), (2, "")),
            "operation": self.any_of((25, Operation.ALL), (75, self.rng.randint(3, 15)), (1, ANY)),
            "permission_type": permission,
        }

    def create(self) -> None:
        """CreateAcls of some, by a super user or one who may not."""
        acls = [self._acl() for _ in range(self.rng.randint(1, 4))]
        if self.made and self.chance(20):
            acls.append(self.rng.choice(self.made))
        if self.chance(3):
            unknown = ("resource_type", "resource_pattern_type", "operation", "permission_type")
            acls[0][self.rng.choice(unknown)] = self.any_of((1, 0), (1, 16), (1, -1))
        self.made += acls
        self.ask("CreateAcls", self.rng.randint(1, 3), to=self._changer(), creations=acls)

    def _changer(self) -> str:
        return self.login(self.rng.choice(OTHERS)) if self.chance(8) else "main"

    def _filter(self, blank: float) -> dict[str, Any]:
        """A filter that finds an ACL of this walk, or nearly does; some fields are left blank."""
        like = self.rng.choice(self.made) if self.made and self.chance(85) else self._acl()

        def field(name: str, nothing: Any) -> Any:
            return nothing if self.chance(blank) else like[name]

        pattern = self.any_of((50, like["resource_pattern_type"]), (25, 1), (25, 2))
        found = {
            "resource_type_filter": field("resource_type", ANY),
            "resource_name_filter": field("resource_name", None),
            "pattern_type_filter": pattern,
            "principal_filter": field("principal", None),
            "host_filter": field("host", None),
            "operation": field("operation", ANY),
            "permission_type": field("permission_type", ANY),
        }
        if pattern == PatternType.MATCH and self.chance(50):
            found["resource_name_filter"] = self.rng.choice(self.names)
        if self.chance(2):
            found[self.rng.choice(("resource_type_filter", "operation"))] = 16
        return found

    def describe(self) -> None:
        """DescribeAcls."""
        self.ask("DescribeAcls", self.rng.randint(1, 3), **self._filter(55))

    def delete(self) -> None:
        """DeleteAcls by some filters, which may find the same."""
        filters = [self._filter(25) for _ in range(self.any_of((75, 1), (20, 2), (5, 0)))]
        self.ask("DeleteAcls", self.rng.randint(1, 3), to=self._changer(), filters=filters)

    def _is_asked(self, row: rights.Row, version: int) -> bool:
        """Kafka has no DeleteGroups v3, and old Metadata creates topics at some moment."""
        if row.api.key == ApiKey.METADATA:
            return version >= 4
        return row.api.key != ApiKey.DELETE_GROUPS or version <= 2

    def use(self) -> None:
        """A request of another user."""
        row = self.rng.choice(ROWS)
        names = self.rng.sample(self.asked, 1 if row.kind else 3)
        version = self.rng.choice([each for each in row.versions if self._is_asked(row, each)])
        request = rights.request_of(row.api, version, self.ids, tuple(names))
        if row.kind:
            rights.KINDS[row.kind](request)
        if row.api.key == ApiKey.METADATA:
            request.allow_auto_topic_creation = False
        if hasattr(request, "timeout_ms"):
            has_time = row.api.key != ApiKey.DELETE_TOPICS and self.chance(60)
            request.timeout_ms = 30_000 if has_time else 0
        user = self.login(self.rng.choice(OTHERS))
        self.ask(row.api.name, version, to=user, **plain(request, version))

    def tidy(self) -> None:
        """Delete all ACLs."""
        every = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
        kinds = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
        self.session.quietly("DeleteAcls", 3, filters=[every | dict.fromkeys(kinds, ANY)])
        self.settle()


def _place(one: Any) -> str:
    """By the values of a structure, but for ids."""
    fields = one.items() if isinstance(one, dict) else ()
    return repr([each for name, each in fields if name != "topic_id"] or one)


def walk(session: SaslSession, rng: random.Random) -> None:
    """Sixty requests."""
    here = Acls(session, rng)
    here.await_coordinators()
    try:
        for _ in range(STEPS):
            step = here.any_of(
                (30, Acls.create), (12, Acls.describe), (8, Acls.delete), (50, Acls.use)
            )
            step(here)
            if step in (Acls.create, Acls.delete):
                here.settle()
    finally:
        here.tidy()


KINDS = {"acls": walk}
