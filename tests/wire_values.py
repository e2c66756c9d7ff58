"""Messages out of the tables for tests: random ones, ones cut down to a version, ones from JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from tidelog_protocol.schema import MISSING, Field, Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}

# Of delegation tokens: kio has dates and spans of Python for them.
TIMES = ("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms")
SPANS_OF_TIME = ("max_lifetime_ms", "renew_period_ms", "expiry_time_period_ms")

SMALL_AND_SAME = settings(
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""The same few examples in every run: the tables don't change by themselves."""

# Lengths around 127 are where a compact length grows to two bytes.
TEXT = st.one_of(
    st.text(max_size=6),
    st.sampled_from(["", "topic-1", "é", "x" * 126, "y" * 127, "z" * 128, "\0"]),
)
BLOBS = st.one_of(st.binary(max_size=6), st.sampled_from([b"", b"b" * 126, b"b" * 127, b"b" * 700]))
UUIDS = st.one_of(st.binary(min_size=16, max_size=16), st.just(bytes(16)))


def primitive(kind: str, name: str = "") -> st.SearchStrategy[Any]:
    """Values of a kind; some names have a meaning for kio, which refuses other values."""
    if name == "error_code" or name.endswith("_error_code"):
        return st.sampled_from([int(code) for code in KioErrorCode])
    if name == "log_append_time_ms":  # kio reads it through a float, exact to 2096 and beyond
        return st.integers(-1, 4 * 10**12)
    if name == "transaction_start_time_ms":  # likewise, and kio has no "none" there
        return st.integers(0, 4 * 10**12)
    if name in (*SPANS_OF_TIME, "retention_time_ms", "session_lifetime_ms"):
        return st.integers(-1, 10**13)
    if name in TIMES:
        return st.integers(-1, 4 * 10**12)
    if kind in INTEGERS:
        lowest, highest = INTEGERS[kind]
        return st.one_of(
            st.integers(-1 if lowest else 0, 3), st.integers(lowest, highest), st.just(highest)
        )
    return {
        "boolean": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "string": TEXT,
        "bytes": BLOBS,
        "records": BLOBS,
        "uuid": UUIDS,
    }[kind]


def values(field: Field) -> st.SearchStrategy[Any]:
    """Values of a field: what any of its versions may hold."""
    if field.kind == "array":
        element = field.element
        inner = primitive(element) if isinstance(element, str) else messages(element)
        strategy = st.lists(inner, max_size=3)
    elif field.kind == "struct":
        strategy = messages(field.element)
    else:
        strategy = primitive(field.kind, field.name)
    if field.nullable is not None or (field.kind == "struct" and field.tag is not None):
        strategy = st.one_of(st.none(), strategy)
    if field.tag is not None and field.default is not MISSING:
        strategy = st.one_of(st.just(field.default), strategy)
    return strategy


def messages(cls: type[Struct]) -> st.SearchStrategy[Any]:
    """Instances with every field of every version filled."""
    return st.builds(cls, **{field.name: values(field) for field in cls.FIELDS})


def in_version(message: Any, version: int) -> Any:
    """The message with what a version can't carry reset to defaults: what decoding gives back."""
    kept = {}
    for field in message.FIELDS:
        if field.in_version(version):
            kept[field.name] = _value_in_version(field, getattr(message, field.name), version)
    return type(message)(**kept)


def _value_in_version(field: Field, value: Any, version: int) -> Any:
    if value is None:
        if field.nullable_in(version) or (field.kind == "struct" and field.tag is not None):
            return None
        if field.kind == "array":
            return []
        if field.kind == "struct":
            return field.element()
        return "" if field.kind == "string" else b""
    if field.kind == "array" and not isinstance(field.element, str):
        return [in_version(item, version) for item in value]
    if field.kind == "struct":
        inner = in_version(value, version)
        # A tagged structure of nothing but defaults isn't on the wire.
        is_absent = field.tag is not None and not field.nullable_in(version)
        return None if is_absent and inner == field.element() else inner
    return value


def from_json(cls: type[Struct], data: Mapping[str, Any]) -> Any:
    """A message from a JSON object by our field names; bytes and ids are hexadecimal."""
    fields = {field.name: field for field in cls.FIELDS}
    return cls(**{name: _from_json(fields[name], value) for name, value in data.items()})


def _from_json(field: Field, value: Any) -> Any:
    if value is None:
        return None
    element = field.element
    if field.kind == "array":
        if not isinstance(element, str):
            return [from_json(element, item) for item in value]
        return [bytes.fromhex(item) for item in value] if element == "uuid" else value
    if field.kind == "struct":
        return from_json(element, value)
    return bytes.fromhex(value) if field.kind in {"bytes", "records", "uuid"} else value


def filled(cls: type[Struct], version: int) -> Any:
    """An instance with something other than the default in every field of a version."""
    return cls(
        **{field.name: _filled(field, version) for field in cls.FIELDS if field.in_version(version)}
    )


def _filled(field: Field, version: int) -> Any:
    element = field.element
    if field.kind == "array":
        if isinstance(element, str):
            return [FILLING[element]] * 2
        return [filled(element, version)] * 2
    if field.kind == "struct":
        return filled(element, version)
    return FILLING[field.kind]


FILLING: Mapping[str, Any] = {
    "boolean": True,
    "int8": 7,
    "int16": 77,
    "uint16": 777,
    "int32": 7777,
    "uint32": 77777,
    "int64": 777777,
    "float64": 7.5,
    "string": "seven",
    "bytes": b"sieben",
    "records": b"sju" * 50,
    "uuid": bytes(range(16)),
}
