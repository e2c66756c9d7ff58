"""Where a state or a reply is not what its vector says. Only what the vector names counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.scenarios.table import in_words, value_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["facts_differ", "reply_differs", "state_differs"]


def reply_differs(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """A sentence for each difference between an answer and the expected one."""
    return list(_differences("the answer", found, expected))


def facts_differ(what: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """The same of `what`."""
    return list(_differences(what, found, expected))


def state_differs(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """A sentence for each difference between the state and the expected part of one."""
    differences: list[str] = []
    for key, value in expected.items():
        if key == "brokers":
            for name, facts in value.items():
                differences += _differences(f"broker {name}", found[key][name], facts)
        elif key in ("remote", "rlmm"):
            what = "remote tier" if key == "remote" else "remote metadata"
            differences += _member_differences(what, found[key], value)
        elif key == "isr":
            differences += _differences(
                "the partition", {"isr": found[key]}, {"isr": sorted(value)}
            )
        else:
            differences.append(f"nobody looks at {key}")
    return differences


def _member_differences(
    what: str, found: Iterable[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    members = {each["id"]: each for each in found}
    wanted = {each["id"]: each for each in expected}
    for name, facts in wanted.items():
        if name not in members:
            yield f"{what}: there is no {name}"
        else:
            yield from _differences(f"{what}: {name}", members[name], facts)
    for name in members.keys() - wanted.keys():
        yield f"{what}: {name} is there, and should not be"


def _differences(what: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    for key, value in expected.items():
        if key not in found:
            yield f"{what}: no {in_words(key)}, and not {value_words(key, value)}"
        elif found[key] != value:
            is_so, should_be = value_words(key, found[key]), value_words(key, value)
            yield f"{what}: {in_words(key)} {is_so}, and not {should_be}"
