"""Differences between a state or reply and its vector, and states that must never exist.

Only what the vector names is compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog_scenarios.table import in_words, value_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["facts_differ", "reply_differs", "state_differs", "unsound"]


def reply_differs(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each difference between two replies."""
    return list(_differences("the answer", found, expected))


def facts_differ(what: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each difference in the facts of `what`."""
    return list(_differences(what, found, expected))


def state_differs(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each difference from the expected part of a state."""
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
        elif key == "metadata_log":
            differences += _differences("the remote metadata", found, {key: value})
        else:
            differences.append(f"{key} is not compared")
    return differences


def unsound(state: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each rule that a state breaks: offsets in order, no hole in a log or
    before its local part, every finished segment in the store."""
    broken: list[str] = []
    for name, facts in state["brokers"].items():
        if facts["role"] != "stopped":
            broken += [f"broker {name}: {text}" for text in _broken_rules(facts)]
    kept = {each["id"]: (each["start"], each["end"]) for each in state.get("remote", ())}
    for each in state.get("rlmm", ()):
        is_finished = each["state"] == "COPY_SEGMENT_FINISHED"
        if is_finished and kept.get(each["id"]) != (each["start"], each["end"]):
            broken.append(f"remote tier: {each['id']} is finished, but not in the store")
    return broken


def _broken_rules(facts: Mapping[str, Any]) -> Iterator[str]:
    start, end = facts["local_start"], facts["leo"]
    offsets = [facts["log_start"], start, end, facts["lso"], facts["hw"], end]
    if offsets[:3] != sorted(offsets[:3]) or offsets[3:] != sorted(offsets[3:]):
        yield f"offsets out of order: {_plain(facts)}"
    if [row[0] for row in facts["records"]] != list(range(start, end)):
        yield f"the records are not those from {start} to {end}"
    starts = [entry[1] for entry in facts["epochs"]]
    if starts != sorted(set(starts)) or (starts and starts[-1] > end):
        yield "leader epochs out of order"
    remote = facts.get("copied_to", facts.get("highest_remote"))
    if start > facts["log_start"] and remote is not None and remote < start - 1:
        yield f"no tier has the records between {remote} and {start}"


def _plain(facts: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{in_words(key)} {facts[key]}" for key in ("log_start", "local_start", "lso", "hw", "leo")
    )


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
        yield f"{what}: {name} should not exist"


def _differences(what: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    for key, value in expected.items():
        if key not in found:
            yield f"{what}: no {in_words(key)}, expected {value_words(key, value)}"
        elif found[key] != value:
            is_so, should_be = value_words(key, found[key]), value_words(key, value)
            yield f"{what}: {in_words(key)} {is_so}, expected {should_be}"
