"""Two transcripts of one case, compared field by field."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any, NamedTuple

from compat.conformance.allowed import ALLOWED

if TYPE_CHECKING:
    from collections.abc import Iterator

MISSING = "<missing>"


class Difference(NamedTuple):
    """Where two brokers differ: the run, the step and field, and what either said."""

    run: str
    path: str
    reference: Any
    tidelog: Any

    def __str__(self) -> str:
        return f"{self.run} {self.path}: Kafka {self.reference!r}, tidelog {self.tidelog!r}"


def differences(
    run: str, reference: list[dict[str, Any]], tidelog: list[dict[str, Any]]
) -> list[Difference]:
    """All differences that no entry of the table of allowed ones explains."""
    found = []
    for step in range(max(len(reference), len(tidelog))):
        sides = [side[step] if step < len(side) else None for side in (reference, tidelog)]
        api = (sides[0] or sides[1] or {}).get("api", "")
        values = [side["answer"] if side else MISSING for side in sides]
        found += [
            Difference(run, path, *pair)
            for path, *pair in _walk(f"[{step}].{api}", *values)
            if reason(run, path, pair[0], pair[1]) is None
        ]
    return found


def reason(run: str, path: str, reference: Any, tidelog: Any) -> str | None:
    """Why this difference is meant to be; None if it is not."""
    for entry in ALLOWED:
        named = fnmatch.fnmatchcase(run, entry.run) and fnmatch.fnmatchcase(path, entry.path)
        if named and (entry.only is None or entry.only(reference, tidelog)):
            return entry.reason
    return None


def _walk(path: str, left: Any, right: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys(), key=str):
            yield from _walk(f"{path}.{key}", left.get(key, MISSING), right.get(key, MISSING))
    elif _named(left) and _named(right):
        yield from _walk(path, *({one["name"]: one for one in side} for side in (left, right)))
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, pair in enumerate(zip(left, right, strict=True)):
            yield from _walk(f"{path}.{index}", *pair)
    elif left != right or type(left) is not type(right):
        yield path, left, right


def _named(value: Any) -> bool:
    """A list that is rather a mapping: structures of different names, such as configs."""
    if not isinstance(value, list) or not value:
        return False
    names = {one["name"] for one in value if isinstance(one, dict) and "name" in one}
    return len(names) == len(value)


def collapsed(found: list[Difference]) -> list[str]:
    """One line for what differs alike in several versions of a case."""
    versions: dict[tuple[str, str, str], list[str]] = {}
    for one in found:
        case, _, version = one.run.rpartition("-v")
        text = f"Kafka {one.reference!r}, tidelog {one.tidelog!r}".replace(one.run, "<run>")
        versions.setdefault((case, one.path.replace(one.run, "<run>"), text), []).append(version)
    return [
        f"{case} v{','.join(which)} {path}: {text}"
        for (case, path, text), which in versions.items()
    ]
