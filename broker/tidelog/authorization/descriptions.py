"""Guards of descriptions of groups: DESCRIBE on each group, its authorized operations (KIP-430),
and the topics that the caller may not describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.authorization.groups import topics_of
from tidelog.authorization.guard import ASKED_AT_ONCE, divided
from tidelog.security.acls import Operation, ResourceType
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from tidelog.authorization.guard import Call, Guard, Verdicts

__all__ = ["described_groups", "of_assignments", "of_topology"]

OF_MEMBERS = "The group has described topic(s) that the client is not authorized to describe."
OF_TOPOLOGY = "The described group uses topics that the client is not authorized to describe."


def described_groups(
    field: str, topics: Callable[[Any], Iterable[str]] | None = None, text: str = OF_MEMBERS
) -> Guard:
    """Return the guard of an API that describes the groups in a field of its request. `topics`
    returns the topics that a description shows; with one of another's, it is withheld."""

    def guard(call: Call) -> Verdicts:
        request = call.request
        Group: Any = call.api.response.DescribedGroup  # type: ignore[attr-defined]  # noqa: N806
        allowed, denied = yield from divided(
            getattr(request, field), lambda name: call.group(Operation.DESCRIBE, name)
        )
        code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        refused = [Group(group_id=each, error_code=code) for each in denied]
        call.narrow(**{field: allowed})

        def merge(response: Any) -> Generator[None, None, Any]:
            described = response.groups
            for number, each in enumerate(described):
                if number % ASKED_AT_ONCE == ASKED_AT_ONCE - 1:
                    yield
                if request.include_authorized_operations:
                    _add_operations(call, each)
                if topics is not None and not all(
                    call.topic(Operation.DESCRIBE, name) for name in topics(each)
                ):
                    described[number] = _withheld(Group, each, text)
            response.groups = refused + described
            return response

        return merge

    return guard


def _add_operations(call: Call, group: Any) -> None:
    if group.error_code == ErrorCode.NONE:
        group.authorized_operations = call.caller.operations(ResourceType.GROUP, group.group_id)


def _withheld(kind: Any, group: Any, text: str) -> Any:
    withheld = kind(
        group_id=group.group_id,
        error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        error_message=text,
    )
    if hasattr(withheld, "topology"):
        withheld.topology = None
    return withheld


def of_assignments(group: Any) -> set[str]:
    """Return the topics that are assigned to the members of a consumer or share group."""
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, getattr(member, "target_assignment", None))
        if assignment is not None
        for topic in assignment.topic_partitions
    }


def of_topology(group: Any) -> list[str]:
    """Return the topics of a streams group's topology."""
    return topics_of(group.topology)
