"""Cases: the classic group protocol: join, sync, heartbeat, leave, describe, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.registry import case

if TYPE_CHECKING:
    from compat.conformance.session import Session

NONE, MEMBER_ID_REQUIRED = 0, 79
TYPE, PROTOCOL = "consumer", "range"
# A subscription the reference can parse (version 0, one topic "t"): with any other bytes its
# coordinator never answers a JoinGroup of type "consumer".
METADATA = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"
ASSIGNMENT = b"\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff"


def join_fields(s: Session, version: int, member: str = "", **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "group_id": s.name,
        "session_timeout_ms": 60_000,
        "member_id": member,
        "protocol_type": TYPE,
        "protocols": [{"name": PROTOCOL, "metadata": METADATA}],
    }
    if version >= 1:
        fields["rebalance_timeout_ms"] = 10_000
    if version < 5:
        changes.pop("group_instance_id", None)
    return {**fields, **changes}


def join(s: Session, version: int, member: str = "", **changes: Any) -> dict[str, Any]:
    """Join; from v4 the first answer gives the member its id, the second the generation."""
    answer = s.ask("JoinGroup", version, **join_fields(s, version, member, **changes))
    if answer["error_code"] == MEMBER_ID_REQUIRED:
        fields = join_fields(s, version, answer["member_id"], **changes)
        answer = s.ask("JoinGroup", version, **fields)
    return answer


def sync(s: Session, version: int, joined: dict[str, Any], **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "group_id": s.name,
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
        "assignments": [{"member_id": joined["member_id"], "assignment": ASSIGNMENT}],
    }
    return s.ask("SyncGroup", version, **{**fields, **changes})


def who(joined: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
        **changes,
    }


def heartbeat(s: Session, version: int, joined: dict[str, Any], **changes: Any) -> Any:
    return s.ask("Heartbeat", version, **{"group_id": s.name, **who(joined, **changes)})


def leave(s: Session, version: int, member: str, **changes: Any) -> Any:
    fields: dict[str, Any] = {"group_id": s.name}
    if version >= 3:
        fields["members"] = [{"member_id": member}]
    else:
        fields["member_id"] = member
    return s.ask("LeaveGroup", version, **{**fields, **changes})


def stable(s: Session) -> dict[str, Any]:
    """A group of one member after its first rebalance, without a record of it."""
    s.coordinator()
    fields = join_fields(s, 3)
    joined = s.quietly("JoinGroup", 3, **fields)
    assert joined["error_code"] == NONE, joined
    assignments = [{"member_id": joined["member_id"], "assignment": ASSIGNMENT}]
    synced = s.quietly("SyncGroup", 3, group_id=s.name, **who(joined), assignments=assignments)
    assert synced["error_code"] == NONE, synced
    return joined


@case("JoinGroup")
def life_of_one(s: Session, version: int) -> None:
    s.coordinator()
    joined = join(s, version)
    sync(s, min(version, 4), joined)
    heartbeat(s, 3, joined)
    again = join(s, version, joined["member_id"])
    heartbeat(s, 3, joined)
    sync(s, min(version, 4), again)
    leave(s, 3, again["member_id"])
    heartbeat(s, 3, again)


@case("JoinGroup")
def refused(s: Session, version: int) -> None:
    s.coordinator()
    join(s, version, session_timeout_ms=100)
    join(s, version, session_timeout_ms=10_000_000)
    join(s, version, group_id="")
    join(s, version, "nobody")
    join(s, version, protocol_type="")
    join(s, version, protocols=[])
    join(s, version)
    join(s, version, protocol_type="other")
    join(s, version, protocols=[{"name": "other", "metadata": b""}])


@case("JoinGroup")
def two_members(s: Session, version: int) -> None:
    """The second makes the first rejoin; the leader hears of both and assigns for both."""
    one = stable(s)
    fields = join_fields(s, version)
    sent = s.send("JoinGroup", version, connection="second", **fields)
    if version >= 4:
        given = s.receive("JoinGroup", version, sent)
        fields = join_fields(s, version, given["member_id"])
        sent = s.send("JoinGroup", version, connection="second", **fields)
    s.ask_until("Heartbeat", 3, lambda answer: answer["error_code"], group_id=s.name, **who(one))
    first = s.ask("JoinGroup", version, **join_fields(s, version, one["member_id"]))
    second = s.receive("JoinGroup", version, sent)
    waiting = s.send(
        "SyncGroup", 3, connection="second", group_id=s.name, **who(second), assignments=[]
    )
    assigned = [
        {"member_id": first["member_id"], "assignment": b"one"},
        {"member_id": second["member_id"], "assignment": b"two"},
    ]
    s.ask("SyncGroup", 3, group_id=s.name, **who(first), assignments=assigned)
    s.receive("SyncGroup", 3, waiting)
    s.ask("DescribeGroups", 4, groups=[s.name])
    leave(s, 3, second["member_id"])
    heartbeat(s, 3, first)


@case("JoinGroup", first=5)
def static_members(s: Session, version: int) -> None:
    s.coordinator()
    instance = {"group_instance_id": "fixed"}
    one = join(s, version, **instance)
    synced = {"group_instance_id": "fixed"}
    sync(s, 4, one, **synced)
    again = join(s, version, **instance)
    sync(s, 4, again, **synced)
    heartbeat(s, 3, one, group_instance_id="fixed")
    heartbeat(s, 3, again, group_instance_id="fixed")
    heartbeat(s, 3, again, group_instance_id="other")
    join(s, version, one["member_id"], **instance)
    gone = [{"member_id": "", "group_instance_id": "fixed"}]
    leave(s, 3, "", members=gone)
    leave(s, 3, "", members=gone)


@case("SyncGroup")
def syncing(s: Session, version: int) -> None:
    joined = stable(s)
    names: dict[str, Any] = {}
    if version >= 5:
        names = {"protocol_type": TYPE, "protocol_name": PROTOCOL}
    sync(s, version, joined, **names)
    sync(s, version, joined, **names, generation_id=9)
    sync(s, version, joined, **names, member_id="nobody")
    sync(s, version, joined, **names, group_id=f"{s.name}.none")
    sync(s, version, joined, **names, group_id="")
    if version >= 5:
        sync(s, version, joined, protocol_type="other", protocol_name=PROTOCOL)
        sync(s, version, joined, protocol_type=TYPE, protocol_name="other")
        sync(s, version, joined)


@case("Heartbeat")
def beating(s: Session, version: int) -> None:
    joined = stable(s)
    heartbeat(s, version, joined)
    heartbeat(s, version, joined, generation_id=9)
    heartbeat(s, version, joined, member_id="nobody")
    heartbeat(s, version, joined, member_id="")
    s.ask("Heartbeat", version, group_id=f"{s.name}.none", **who(joined))
    s.ask("Heartbeat", version, group_id="", **who(joined))
    if version >= 3:
        heartbeat(s, version, joined, group_instance_id="none")


@case("LeaveGroup")
def leaving(s: Session, version: int) -> None:
    joined = stable(s)
    leave(s, version, "nobody")
    leave(s, version, joined["member_id"], group_id=f"{s.name}.none")
    leave(s, version, joined["member_id"], group_id="")
    leave(s, version, joined["member_id"])
    leave(s, version, joined["member_id"])


@case("LeaveGroup", first=3)
def several_leaving(s: Session, version: int) -> None:
    joined = stable(s)
    members = [
        {"member_id": "nobody"},
        {"member_id": joined["member_id"]},
        {"member_id": "", "group_instance_id": "none"},
    ]
    leave(s, version, "", members=members)
    leave(s, version, "", members=[])


def forget_nameless(s: Session) -> None:
    """Other cases may have committed offsets to the group ""."""
    s.quietly("DeleteGroups", 2, groups_names=[""])


@case("DescribeGroups")
def described(s: Session, version: int) -> None:
    joined = stable(s)
    forget_nameless(s)
    s.ask("DescribeGroups", version, groups=[s.name])
    s.ask("DescribeGroups", version, groups=[f"{s.name}.none", ""])
    s.ask("DescribeGroups", version, groups=[])
    if version >= 3:
        fields: dict[str, Any] = {"include_authorized_operations": True}
        s.ask("DescribeGroups", version, groups=[s.name], **fields)
    s.quietly("LeaveGroup", 1, group_id=s.name, member_id=joined["member_id"])
    s.ask("DescribeGroups", version, groups=[s.name])


@case("ListGroups")
def listed(s: Session, version: int) -> None:
    joined = stable(s)

    def ask(**fields: Any) -> None:
        answer = s.quietly("ListGroups", version, **fields)
        mine = [group for group in answer["groups"] if group["group_id"] == s.name]
        s.record("ListGroups", {**answer, "groups": mine})

    ask()
    if version >= 4:
        for states in (["Stable"], ["stable"], ["Empty", "Dead"], ["NoSuchState"]):
            ask(states_filter=states)
    if version >= 5:
        for types in (["classic"], ["Classic"], ["consumer"], ["none"]):
            ask(types_filter=types)
    s.quietly("LeaveGroup", 1, group_id=s.name, member_id=joined["member_id"])
    ask()


@case("DeleteGroups")
def deleted(s: Session, version: int) -> None:
    joined = stable(s)
    forget_nameless(s)
    s.ask("DeleteGroups", version, groups_names=[s.name, f"{s.name}.none", ""])
    s.quietly("LeaveGroup", 1, group_id=s.name, member_id=joined["member_id"])
    s.ask("DeleteGroups", version, groups_names=[s.name])
    s.ask("DeleteGroups", version, groups_names=[s.name])
    s.ask("DescribeGroups", 4, groups=[s.name])
