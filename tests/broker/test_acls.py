"""ACLs: what they allow, filters, and the requests that create, describe and delete them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from support.handler_calls import make_context
from support.metadata import cluster
from tidelog.api.acls import AclsApi
from tidelog.cluster.controller import acls as decisions
from tidelog.cluster.metadata.log import NotControllerError
from tidelog.cluster.metadata.replay import ReplayError, replay
from tidelog.cluster.metadata.snapshots import image_records
from tidelog.config.broker import BrokerConfig
from tidelog.config.vocabulary import ConfigError
from tidelog.security.acls import (
    Acl,
    AclFilter,
    AclIndex,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    filter_of,
)
from tidelog.security.authorizer import Authorizer
from tidelog.security.principal import Principal
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.messages.acls import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from tidelog_protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)

O, R = Operation, ResourceType  # noqa: E741 - short in tables
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HOST = "192.0.2.1"


def acl(text: str) -> Acl:
    """`allow alice read topic foo* @host`: a name with a star at its end is a prefix."""
    permission, user, operation, kind, name, *host = text.split()
    is_prefix = name.endswith("*") and name != "*"
    return Acl(
        R[kind.upper()],
        name.removesuffix("*") if is_prefix else name,
        PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        f"User:{user}",
        host[0] if host else "*",
        O[operation.upper()],
        Permission[permission.upper()],
    )


@pytest.mark.parametrize(
    ("acls", "operation", "name", "expected"),
    [
        ([], O.READ, "t", None),
        (["allow alice read topic t"], O.READ, "t", True),
        (["allow alice read topic t"], O.WRITE, "t", False),
        (["allow alice read topic t"], O.READ, "tt", None),
        (["allow bob read topic t"], O.READ, "t", False),
        (["allow * read topic t"], O.READ, "t", True),
        (["allow alice read topic *"], O.READ, "t", True),
        (["allow alice read topic t*"], O.READ, "table", True),
        (["allow alice read topic table*"], O.READ, "t", None),
        (["allow alice read topic t*", "allow alice write topic ta*"], O.WRITE, "table", True),
        (["allow alice all topic t"], O.ALTER_CONFIGS, "t", True),
        (["allow alice all topic *", "deny alice read topic t*"], O.READ, "table", False),
        (["allow alice all topic *", "deny alice read topic t*"], O.WRITE, "table", True),
        (["deny * all topic t", "allow alice read topic t"], O.READ, "t", False),
        (["allow alice read topic t 192.0.2.1"], O.READ, "t", True),
        (["allow alice read topic t 192.0.2.2"], O.READ, "t", False),
        *(
            ([f"allow alice {name} topic t"], O.DESCRIBE, "t", True)
            for name in ("read", "write", "delete", "alter", "describe")
        ),
        (["allow alice create topic t"], O.DESCRIBE, "t", False),
        (["allow alice alter_configs topic t"], O.DESCRIBE_CONFIGS, "t", True),
        (["allow alice alter topic t"], O.DESCRIBE_CONFIGS, "t", False),
        # A denied operation does not deny what it would imply.
        (["allow alice describe topic t", "deny alice read topic t"], O.DESCRIBE, "t", True),
        (["allow alice read group t"], O.READ, "t", None),
    ],
)
def test_acls_decide(
    acls: list[str], operation: Operation, name: str, expected: bool | None
) -> None:
    index = AclIndex(map(acl, acls))
    assert index.decide(operation, R.TOPIC, name, "User:alice", HOST) is expected


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        (["allow alice write topic t"], True),
        (["allow alice read topic t"], False),
        (["allow alice all topic t*"], True),
        (["allow alice write topic t", "deny alice write topic *"], False),
        (["allow alice write topic t", "deny alice write topic t"], False),
        (["allow alice write topic t", "deny alice write topic s"], True),
        (["allow alice write topic table", "deny alice write topic ta*"], False),
        (["allow alice write topic t*", "deny alice write topic ta*"], True),
        (["allow alice write topic ta*", "deny alice write topic t*"], False),
        (["allow alice write topic *", "deny alice write topic t*"], True),
    ],
)
def test_acls_decide_about_any_resource_of_a_type(acls: list[str], expected: bool) -> None:
    index = AclIndex(map(acl, acls))
    assert index.allows_any(O.WRITE, R.TOPIC, "User:alice", HOST) is expected


@pytest.mark.parametrize(
    ("kind", "name", "found"),
    [
        (PatternType.ANY, None, "t t* *"),
        (PatternType.ANY, "t", "t t*"),
        (PatternType.LITERAL, None, "t *"),
        (PatternType.LITERAL, "t", "t"),
        (PatternType.PREFIXED, "t", "t*"),
        (PatternType.MATCH, "t", "t t* *"),
        (PatternType.MATCH, "table", "t* *"),
        (PatternType.MATCH, None, "t t* *"),
    ],
)
def test_a_filter_finds_acls(kind: PatternType, name: str | None, found: str) -> None:
    wanted = AclFilter(R.ANY, name, kind, None, None, O.ANY, Permission.ANY)
    names = ["t", "t*", "*"]
    assert [n for n in names if wanted.matches(acl(f"allow alice read topic {n}"))] == found.split()
    assert not wanted._replace(principal="User:bob").matches(acl("allow alice read topic t"))
    wanted.check()
    for unknown in (wanted._replace(operation=0), wanted._replace(resource_type=0)):
        with pytest.raises(ProtocolError, match="unknown type"):
            unknown.check()


# ---- the authorizer ---------------------------------------------------------------------------


def authorizer(acls: dict[bytes, Acl], **settings: str) -> Authorizer:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig.from_properties(
        {"node.id": "1", "authorizer.class.name": STANDARD, **given}
    )
    return Authorizer(config, lambda: acls)


def test_super_users_may_do_all_and_others_what_acls_say() -> None:
    acls = {b"1": acl("deny alice all topic t")}
    decides = authorizer(acls, super_users="User:alice; User:root")
    assert decides.caller(ALICE, HOST).allows(O.READ, R.TOPIC, "t")
    assert not decides.caller(BOB, HOST).allows(O.READ, R.TOPIC, "t")
    assert not decides.caller(BOB, HOST).allows(O.READ, R.TOPIC, "other")
    lenient = authorizer(acls, allow_everyone_if_no_acl_found="true").caller(BOB, HOST)
    assert not lenient.allows(O.READ, R.TOPIC, "t")
    assert lenient.allows(O.READ, R.TOPIC, "other")
    assert lenient.operations(R.TOPIC, "other") == 0b1101_1111_1000
    assert lenient.allows_any(O.WRITE, R.TOPIC)


def test_decisions_hold_until_acls_change() -> None:
    now: list[dict[bytes, Acl]] = [{}]
    config = BrokerConfig.from_properties({"node.id": "1", "authorizer.class.name": STANDARD})
    decides = Authorizer(config, lambda: now[0])
    assert not decides.caller(ALICE, HOST).allows(O.READ, R.TOPIC, "t")
    assert decides.caller(ALICE, HOST) is decides.caller(ALICE, HOST)
    now[0] = {b"1": acl("allow alice read topic t")}
    assert decides.caller(ALICE, HOST).allows(O.READ, R.TOPIC, "t")
    assert not decides.caller(ALICE, HOST).allows_cluster(O.ALTER)


def test_what_is_denied_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caller = authorizer({}).caller(ALICE, HOST)
    with caplog.at_level("INFO", "tidelog.security"):
        for _ in range(2):
            assert not caller.allows(O.READ, R.TOPIC, "t")
        assert not caller.allows(O.READ, R.TOPIC, "quiet", logs=False)
    assert [record.getMessage() for record in caplog.records] == [
        "Principal = User:alice is Denied operation = READ from host = 192.0.2.1 on resource = "
        "TOPIC:t"
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [("authorizer.class.name", "org.example.Authorizer"), ("super.users", "User:a;bob")],
)
def test_a_wrong_setting_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        BrokerConfig.from_properties({"node.id": "1", key: value})


# ---- records ----------------------------------------------------------------------------------

ONE = acl("allow alice read topic t")
RECORD = AccessControlEntryRecord(id=bytes(15) + b"\1", **ONE._asdict())


def test_acls_are_in_the_image_and_in_its_records() -> None:
    image = cluster()
    position = {"offset": 9, "leader_epoch": 1, "controller_id": 1}
    one = replay(image, [RECORD], **position)
    assert one.acls == {RECORD.id: ONE}
    assert RECORD in list(image_records(one))
    with pytest.raises(ReplayError):
        replay(one, [RECORD], **position)
    removal = RemoveAccessControlEntryRecord(id=RECORD.id)
    none = replay(one, [removal], **position)
    assert not none.acls
    with pytest.raises(ReplayError):
        replay(none, [removal], **position)


# ---- requests ---------------------------------------------------------------------------------


def creation(one: Acl, **changed: Any) -> CreateAclsRequest.AclCreation:
    values = one._replace(**changed)._asdict()
    values["resource_pattern_type"] = values.pop("pattern_type")
    return CreateAclsRequest.AclCreation(**values)


def created(*creations: CreateAclsRequest.AclCreation, **acls: Acl) -> Any:
    ids = iter(range(1, 100))
    image = cluster()._replace(acls={name.encode(): each for name, each in acls.items()})
    request = CreateAclsRequest(creations=list(creations))
    return decisions.create_acls(image, request, lambda: bytes([next(ids)]) * 16)


def test_creations_are_checked_one_by_one_and_repeated_ones_make_no_record() -> None:
    decision = created(
        creation(ONE),
        creation(ONE),
        creation(ONE, resource_name="u"),
        creation(ONE, resource_type=R.CLUSTER),
        creation(ONE, resource_name=""),
        creation(ONE, principal="alice"),
        creation(ONE, pattern_type=9),
        creation(ONE, operation=16),
        creation(ONE, permission_type=-1),
        creation(ONE, resource_type=16),
        old=ONE._replace(resource_name="u"),
    )
    assert [each.resource_name for each in decision.records] == ["t"]
    assert [each.error_message for each in decision.results] == [
        "",
        "",
        "",
        "The only valid name for the CLUSTER resource is kafka-cluster",
        "Invalid empty resource name",
        "Could not parse principal from `alice` (no colon is present separating the principal type "
        "from the principal name)",
        "Invalid patternType UNKNOWN",
        "Invalid operation UNKNOWN",
        "Invalid permissionType UNKNOWN",
        "Invalid resourceType UNKNOWN",
    ]
    assert {each.error_code for each in decision.results[3:]} == {ErrorCode.INVALID_REQUEST}


def test_a_request_changes_so_many_acls_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "CHANGES_MAX", 1)
    decision = created(creation(ONE), creation(ONE, resource_name="u"))
    assert decision.records == []
    assert {each.error_code for each in decision.results} == {ErrorCode.POLICY_VIOLATION}
    image = cluster()._replace(acls={b"1": ONE, b"2": ONE._replace(resource_name="u")})
    deletion = decisions.delete_acls(image, DeleteAclsRequest(filters=[every()]))
    assert deletion.records == []
    assert deletion.results[0].error_code == ErrorCode.INVALID_REQUEST


EVERY: dict[str, Any] = {
    "resource_type_filter": R.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": O.ANY,
    "permission_type": Permission.ANY,
}


def every(**changed: Any) -> DeleteAclsRequest.DeleteAclsFilter:
    return DeleteAclsRequest.DeleteAclsFilter(**{**EVERY, **changed})


def test_a_deletion_names_what_each_filter_found() -> None:
    other = ONE._replace(resource_name="u")
    image = cluster()._replace(acls={b"1": ONE, b"2": other})
    request = DeleteAclsRequest(filters=[every(), every(resource_name_filter="u")])
    decision = decisions.delete_acls(image, request)
    assert [record.id for record in decision.records] == [b"1", b"2"]
    found = [[each.resource_name for each in result.matching_acls] for result in decision.results]
    assert found == [["t", "u"], ["u"]]


def found_by(image: Any, *filters: DeleteAclsRequest.DeleteAclsFilter) -> list[set[str]]:
    decision = decisions.delete_acls(image, DeleteAclsRequest(filters=list(filters)))
    assert not any(result.error_code for result in decision.results)
    return [{each.resource_name for each in result.matching_acls} for result in decision.results]


def test_a_deletion_finds_by_name_prefix_and_principal() -> None:
    names = ["t", "to", "u", "*", "topic"]
    acls = {
        name.encode(): ONE._replace(
            resource_name=name,
            pattern_type=PatternType.PREFIXED if name in ("t", "to") else PatternType.LITERAL,
            principal="User:other" if name == "u" else ONE.principal,
        )
        for name in names
    }
    image = cluster()._replace(acls=acls)
    kinds = PatternType
    for kind in (kinds.ANY, kinds.MATCH, kinds.LITERAL, kinds.PREFIXED):
        for name in (None, "t", "topic", "u", "*", "none"):
            for principal in (None, "User:other", "User:nobody"):
                wanted = every(
                    resource_name_filter=name, pattern_type_filter=kind, principal_filter=principal
                )
                expected = {
                    one.resource_name for one in acls.values() if filter_of(wanted).matches(one)
                }
                assert found_by(image, wanted) == [expected]


def test_a_deletion_compares_a_filter_with_the_acls_of_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decisions, "COMPARISONS_MAX", 1100)
    acls = {bytes((n,)): ONE._replace(resource_name=f"t{n}") for n in range(100)}
    image = cluster()._replace(acls=acls)
    named = [every(resource_name_filter=f"t{n}") for n in range(100)]
    assert found_by(image, *named, every()) == [
        *({f"t{n}"} for n in range(100)),
        {f"t{n}" for n in range(100)},
    ]
    request = DeleteAclsRequest(filters=[every()] * 3)
    refused = decisions.delete_acls(image, request)
    assert refused.records == []
    assert [each.error_code for each in refused.results] == [ErrorCode.INVALID_REQUEST] * 3


class Refusing:
    """A controller that is not the active one."""

    async def create_acls(self, request: Any) -> Any:
        raise NotControllerError

    async def delete_acls(self, request: Any) -> Any:
        raise NotControllerError


def ask(key: ApiKey, request: Any, *, has_authorizer: bool = True) -> Any:
    image = cluster()._replace(acls={b"1": ONE, b"2": ONE._replace(operation=O.WRITE)})
    api = AclsApi(
        SimpleNamespace(image=image),  # type: ignore[arg-type]
        Refusing(),  # type: ignore[arg-type]
        has_authorizer=has_authorizer,
    )
    answer = api.handlers()[key](make_context(key, 3), request)
    return asyncio.run(answer) if asyncio.iscoroutine(answer) else answer


DESCRIBE = DescribeAclsRequest(**EVERY)


def test_a_description_groups_acls_by_resource() -> None:
    answer = ask(ApiKey.DESCRIBE_ACLS, DESCRIBE)
    (resource,) = answer.resources
    assert (resource.resource_type, resource.resource_name) == (R.TOPIC, "t")
    assert [each.operation for each in resource.acls] == [O.READ, O.WRITE]


def test_without_an_authorizer_or_a_controller_all_is_refused() -> None:
    create = CreateAclsRequest(creations=[creation(ONE)] * 2)
    delete = DeleteAclsRequest(filters=[every()])
    disabled = ErrorCode.SECURITY_DISABLED
    assert ask(ApiKey.DESCRIBE_ACLS, DESCRIBE, has_authorizer=False).error_code == disabled
    for has_authorizer, code in ((False, disabled), (True, ErrorCode.NOT_CONTROLLER)):
        results = ask(ApiKey.CREATE_ACLS, create, has_authorizer=has_authorizer).results
        assert [each.error_code for each in results] == [code, code]
        (result,) = ask(ApiKey.DELETE_ACLS, delete, has_authorizer=has_authorizer).filter_results
        assert result.error_code == code


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": R.ANY},
        {"pattern_type": PatternType.ANY},
        {"pattern_type": PatternType.MATCH},
        {"operation": O.ANY},
        {"permission_type": Permission.ANY},
    ],
)
def test_a_creation_of_what_only_filters_may_have_fails_the_request(wrong: dict[str, int]) -> None:
    request = CreateAclsRequest(creations=[creation(ONE), creation(ONE, **wrong)])
    results = ask(ApiKey.CREATE_ACLS, request).results
    assert [each.error_code for each in results] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert [each.error_message for each in results] == [None, None]


def test_unknown_closes_the_connection() -> None:
    for key, request in (
        (ApiKey.CREATE_ACLS, CreateAclsRequest(creations=[creation(ONE, operation=0)])),
        (ApiKey.DELETE_ACLS, DeleteAclsRequest(filters=[every(permission_type=0)])),
        (ApiKey.DESCRIBE_ACLS, DescribeAclsRequest(resource_type_filter=0)),
    ):
        with pytest.raises(ProtocolError):
            ask(key, request)


def test_numbers_without_a_name_find_nothing_and_delete_nothing() -> None:
    assert (
        ask(ApiKey.DESCRIBE_ACLS, DescribeAclsRequest(**{**EVERY, "operation": 16})).resources == []
    )
    image = cluster()._replace(acls={b"1": ONE})
    filters = [
        every(resource_type_filter=8),
        every(pattern_type_filter=-1),
        every(operation=16),
        every(permission_type=9),
        every(resource_name_filter="u"),
    ]
    decision = decisions.delete_acls(image, DeleteAclsRequest(filters=filters))
    assert decision.records == []
    invalid = ErrorCode.INVALID_REQUEST
    assert [(each.error_code, each.error_message) for each in decision.results] == [
        (invalid, "Unknown patternFilter."),
        (invalid, "Unknown patternFilter."),
        (invalid, "Unknown entryFilter."),
        (invalid, "Unknown entryFilter."),
        (ErrorCode.NONE, None),
    ]
