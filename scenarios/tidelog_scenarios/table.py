"""States, requests and replies as text of at most 100 columns."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["WIDTH", "asked", "in_words", "paragraph", "sentence", "state_lines", "value_words"]

WIDTH = 100

_COLUMNS = (
    ("broker", "broker"),
    ("role", "role"),
    ("epoch", "leader_epoch"),
    ("log start", "log_start"),
    ("local start", "local_start"),
    ("high watermark", "hw"),
    ("log end", "leo"),
    ("epochs", "epochs"),
)
_WORDS = {
    "hw": "high watermark",
    "leo": "log end offset",
    "local_start": "local log start",
    "last_fetched_epoch": "last fetched epoch",
    "current_leader_epoch": "current leader epoch",
    "from_segment": "from",
}
_ACTIONS = {
    "nothing": "nothing: {why}",
    "produce": "produce to {broker}",
    "follower_fetch": "{follower} fetches from {leader}",
    "consumer_fetch": "a consumer fetches from {broker}",
    "list_offsets": "ListOffsets of {broker}",
    "offset_for_leader_epoch": "OffsetForLeaderEpoch of {broker}",
    "metadata_lookup": "which finished remote segment has",
    "build_aux_state": "{follower} takes epochs and producers from the remote tier",
    "roll": "{broker} begins a segment",
    "copy": "{broker} copies",
    "delete_local": "local retention of {broker}",
    "delete_records": "DeleteRecords of {broker}",
    "crash": "power failure of",
    "elect": "{leader} becomes leader",
    "run": "a task of {broker}",
    "rsm": "the remote store changes",
    "advance_time": "time passes",
    "delete_topic": "a client deletes the topic",
    "partition_event": "a broker writes an event of the deleted partition",
}


def paragraph(
    text: str, indent: str = "", after: str | None = None, width: int = WIDTH
) -> list[str]:
    """Wrap a text; `after` indents the second and later lines."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent if after is None else after,
        break_on_hyphens=False,
    )


def asked(action: str, arguments: Mapping[str, Any]) -> str:
    """Return a step's action as a phrase."""
    phrase = _ACTIONS.get(action, action)
    rest = {key: value for key, value in arguments.items() if f"{{{key}}}" not in phrase}
    words = phrase.format_map(arguments)
    return f"{words}: {sentence(rest)}" if rest else words


def sentence(facts: Mapping[str, Any]) -> str:
    """Return `name value, name value`, in words."""
    return ", ".join(f"{in_words(key)} {value_words(key, value)}" for key, value in facts.items())


def in_words(key: str) -> str:
    """Return a key of the vectors in words."""
    return _WORDS.get(key, key.replace("_", " "))


def value_words(key: str, value: Any) -> str:
    """Return the value of such a key in words."""
    match key:
        case "records":
            return _records(value) or "none"
        case "first_record":
            return _records([value])
        case "epochs" | "checkpoint":
            return _epochs(value)
    return _plain_words(value)


def _plain_words(value: Any) -> str:
    if isinstance(value, dict):
        return f"({sentence(value)})"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _epochs(entries: Iterable[Sequence[Any]]) -> str:
    return " ".join(f"{epoch}@{start}" for epoch, start in entries) or "-"


def _records(rows: Iterable[Sequence[Any]]) -> str:
    """Return `[epoch] offset value, offset value [epoch] …`."""
    words: list[str] = []
    last: Any = None
    for offset, value, epoch in rows:
        if epoch != last:
            words.append(f"[{epoch}] {offset} {value}")
            last = epoch
        else:
            words[-1] += f", {offset} {value}"
    return " ".join(words)


def state_lines(state: Mapping[str, Any], before: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the table of all brokers and of the remote tier.

    A `*` marks what differs from the state `before`.
    """
    brokers = state["brokers"]
    old = {} if before is None else before["brokers"]
    rows = [[title for title, _ in _COLUMNS]]
    for name, facts in brokers.items():
        rows.append([name, *(_cell(facts, key) for _, key in _COLUMNS[1:])])
    table = _aligned(rows)
    yield f"    {table[0]}"
    for line, (name, facts) in zip(table[1:], brokers.items(), strict=True):
        yield f"{_mark(before, old.get(name), facts)}{line}"
        yield from _details(facts, has_segments="remote" in state)
    if "remote" in state:
        yield from _tier_lines(state, before)
    if "metadata_log" in state:
        text = f"{'deletion':<12} {', '.join(state['metadata_log']) or '-'}"
        yield from paragraph(text, " " * 6, " " * 19)


def _mark(before: object, old: object, new: object) -> str:
    return "    " if before is None or old == new else "  * "


def _cell(facts: Mapping[str, Any], key: str) -> str:
    if key not in facts:
        return "-"
    if key == "epochs":
        return _epochs(facts[key])
    if key == "role":
        return str(facts[key]).replace("_", " ")
    return str(facts[key])


def _details(facts: Mapping[str, Any], *, has_segments: bool) -> Iterator[str]:
    """Yield what has no column."""
    after = " " * 19
    yield from paragraph(f"{'records':<12} {_records(facts['records']) or '-'}", " " * 6, after)
    more = []
    if has_segments and "segments" in facts:
        shown = [
            f"{base}-{last}" if last >= base else f"{base}-" for base, last in facts["segments"]
        ]
        more.append(f"local {' '.join(shown)}")
        if "copied_to" in facts:
            more.append(f"copied to {facts['copied_to']}")
        if facts.get("highest_remote", -1) >= 0:
            more.append(f"highest remote {facts['highest_remote']}")
        if "producer_snapshot" in facts and facts["role"] != "leader":
            more.append(f"producer snapshot {facts['producer_snapshot']}")
    if more:
        yield from paragraph(f"{'segments':<12} {', '.join(more)}", " " * 6, after)
    known = [f"{name} at {end}" for name, end in facts.get("remote_leo", {}).items() if end]
    if known:
        yield f"      {'followers':<12} {', '.join(known)}"
    if facts.get("fetch_state", "fetching") != "fetching":
        yield f"      {'fetcher':<12} {facts['fetch_state'].replace('_', ' ')}"


def _tier_lines(state: Mapping[str, Any], before: Mapping[str, Any] | None) -> Iterator[str]:
    described = {each["id"]: each for each in state["rlmm"]}
    kept = {each["id"]: each for each in state["remote"]}
    if not described and not kept:
        yield "    remote tier  (empty)"
        return
    known = sorted(described.keys() | kept.keys())
    rows = [["remote tier", "offsets", "epochs", "checkpoint", "state"]]
    for name in known:
        facts = described.get(name) or kept[name]
        rows.append(
            [
                name,
                f"{facts['start']}-{facts['end']}",
                _epochs(facts.get("epochs", ())),
                _epochs(kept.get(name, {}).get("checkpoint", ())),
                facts.get("state", "no metadata"),
            ]
        )
    table = _aligned(rows)
    yield f"    {table[0]}"
    for line, name in zip(table[1:], known, strict=True):
        old = None if before is None else [_named(before[key], name) for key in ("rlmm", "remote")]
        yield f"{_mark(before, old, [described.get(name), kept.get(name)])}{line}"
        records = _records(kept[name].get("records", ())) if name in kept else "not in the store"
        yield from paragraph(f"{'records':<12} {records}", " " * 6, " " * 19)


def _named(members: Iterable[Mapping[str, Any]], name: str) -> object:
    return next((each for each in members if each["id"] == name), None)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
