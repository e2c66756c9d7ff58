"""Records as lossless lines of JSON: `consume --json` prints them, `produce --json` reads them.

Bytes that are UTF-8 are a string. Other bytes are {"base64": "…"}. Keys and values of another
format (`formats.py`) are as that shows them. Headers are pairs, because Kafka
keeps their order and allows a key twice.
"""

# ruff: noqa: PLC0415 - base64 and difflib are needed for few records

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.common import CommandError, did_you_mean
from tidelog.cli.formats import TEXT

if TYPE_CHECKING:
    from tidelog.cli.formats import Format, Formats

__all__ = ["JsonRecord", "parse", "to_line"]

_PLACES = ("topic", "partition", "offset")  # where the record was
_FIELDS = (*_PLACES, "timestamp", "key", "value", "headers")
_TIMESTAMP_MAX = (1 << 63) - 1


class JsonRecord(NamedTuple):  # a dataclass costs 20 ms to import
    """What one line says of a record; a timestamp of None stands for now."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int | None
    partition: int | None


def to_line(record: Any, formats: Formats = TEXT) -> str:
    """Return one line for a record of the client library; CommandError if it is not of the
    formats."""
    return json.dumps(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _formatted(record.key, formats.key, "the key"),
            "value": _formatted(record.value, formats.value, "the value"),
            "headers": [[key, _shown(value)] for key, value in record.headers],
        },
        ensure_ascii=False,
    )


def parse(line: bytes, formats: Formats = TEXT) -> JsonRecord:
    """Return the record that a line describes; CommandError if it describes none."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        raise CommandError("the line is not JSON") from None
    if not isinstance(fields, dict):
        raise CommandError("the line is not a JSON object")
    for name in fields:
        if name not in _FIELDS:
            raise CommandError(f"there is no field {name!r}{did_you_mean(name, _FIELDS)}")
    headers = fields.get("headers", [])
    if not isinstance(headers, list):
        raise CommandError("headers is not a list of [KEY, VALUE]")
    return JsonRecord(
        key=_data(fields.get("key"), formats.key, "key"),
        value=_data(fields.get("value"), formats.value, "value"),
        headers=[_header(pair) for pair in headers],
        timestamp=_number(fields.get("timestamp"), "timestamp", _TIMESTAMP_MAX),
        partition=_number(fields.get("partition"), "partition", (1 << 31) - 1),
    )


def _formatted(data: bytes | None, form: Format | None, what: str) -> Any:
    return _shown(data) if form is None else form.to_json(data, what)


def _data(given: Any, form: Format | None, name: str) -> bytes | None:
    return _bytes(given, name) if form is None else form.from_json(given, name)


def _shown(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"base64": b64encode(data).decode("ascii")}


def _bytes(shown: object, name: str) -> bytes | None:
    if shown is None:
        return None
    try:
        if isinstance(shown, str):
            return shown.encode()
        if isinstance(shown, dict) and list(shown) == ["base64"]:
            from base64 import b64decode

            return b64decode(shown["base64"], validate=True)
    except (TypeError, ValueError):  # no base64, or half of a surrogate pair
        pass
    raise CommandError(f'{name} is not null, a string or {{"base64": "…"}}')


def _header(pair: object) -> tuple[str, bytes | None]:
    match pair:
        case [str(key), value]:
            _bytes(key, "the key of a header")
            return key, _bytes(value, f"header {key!r}")
    raise CommandError("headers is not a list of [KEY, VALUE]")


def _number(given: object, name: str, highest: int) -> int | None:
    if given is None or given == -1:  # -1 stands for none, as in a record of Kafka
        return None
    if type(given) is not int or not 0 <= given <= highest:
        raise CommandError(f"{name} is not a number from 0 to {highest}")
    return given
