"""What a step of a play changed, as lines: of each broker, of the remote tier, of the ISR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog_scenarios.table import in_words, value_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["changes"]

_SHOWN = ("role", "leader_epoch", "log_start", "local_start", "hw", "leo", "epochs", "fetch_state")
_TIER = ("copied_to", "highest_remote")
_OF_SEGMENTS = ("start", "end", "epochs", "state")


def changes(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return pairs of a place and its changes: (`A`, `log end offset 2 -> 1; records - [0] 1 m2`).

    A place without changes is left out; without a state `before` or `after` there are none.
    """
    if not before or not after:
        return []
    found = []
    for name, facts in after["brokers"].items():
        found.append((name, "; ".join(_of_broker(before["brokers"][name], facts))))
    found += _of_tier(before, after)
    if before["isr"] != after["isr"]:
        found.append(("isr", _moved(before["isr"], after["isr"], "isr")))
    new = after.get("metadata_log", [])[len(before.get("metadata_log", [])) :]
    found.append(("deletion", ", ".join(new)))
    return [(place, text) for place, text in found if text]


def _of_broker(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    is_down = "stopped" in (before["role"], after["role"])  # its memory is gone or new
    for key in _SHOWN if is_down else (*_SHOWN, *_TIER):
        known = key in before and key in after
        if known and before[key] != after[key]:
            yield f"{in_words(key)} {_moved(before[key], after[key], key)}"
    yield from _of_records(before["records"], after["records"])


def _of_records(before: Sequence[Any], after: Sequence[Any]) -> Iterator[str]:
    for sign, rows, others in (("-", before, after), ("+", after, before)):
        some = [row for row in rows if row not in others]
        if some:
            yield f"records {sign} {value_words('records', some)}"


def _of_tier(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    old, new = _segments(before), _segments(after)
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield name, "gone from the remote tier"
        elif name not in old:
            yield name, f"in the remote tier: {_described(new[name])}"
        elif old[name] != new[name]:
            yield name, f"now {_described(new[name])}"


def _segments(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what is known of each remote segment, with the records in the store."""
    found: dict[str, dict[str, Any]] = {}
    for each in (*state.get("rlmm", ()), *state.get("remote", ())):
        found.setdefault(each["id"], {}).update(each)
    return found


def _described(facts: Mapping[str, Any]) -> str:
    known = [f"{key} {value_words(key, facts[key])}" for key in _OF_SEGMENTS if key in facts]
    return ", ".join([*known, *([] if "records" in facts else ["not in the store"])])


def _moved(before: Any, after: Any, key: str) -> str:
    return f"{_words(key, before)} -> {_words(key, after)}"


def _words(key: str, value: Any) -> str:
    return value_words(key, value).replace("_", " ")
