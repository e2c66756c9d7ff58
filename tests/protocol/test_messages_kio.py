"""Every API, every version, both directions, against kio: random messages, byte for byte.

And the quorum's control records, likewise.

kio is generated from Kafka's own definitions. Two versions are younger than it (`NOT_IN_KIO`);
their bytes come from Kafka 4.4's classes, in `vectors/kafka-4.4.0.jsonl` (`test_golden.py`).
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import re
import uuid
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from tidelog_protocol.apis import API, Api
from tidelog_protocol.compiler import codec
from tidelog_protocol.messages.quorum_records import CONTROL_RECORDS
from tidelog_protocol.schema import Struct, version_range
from wire_values import SMALL_AND_SAME, in_version, messages

NOT_IN_KIO = {("ApiVersions", 5), ("DeleteGroups", 3)}
EXAMPLES = [10, pytest.param(40, marks=pytest.mark.nightly)]
CASES = [
    pytest.param(api, kind, id=f"{api.name}{kind}")
    for api in API.values()
    for kind in ("Request", "Response")
]
UNIX_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def table(api: Api, kind: str) -> type[Any]:
    return api.request if kind == "Request" else api.response


@cache
def kio_schema(api: Api, version: int, kind: str) -> tuple[type[Any], Any, Any]:
    """kio's class with its writer and reader."""
    return kio_class(api.name, version, kind.lower(), api.name + kind)


def kio_class(name: str, version: int, module: str, cls_name: str) -> tuple[type[Any], Any, Any]:
    """A class of kio's, found in its folder `name`, with its writer and reader."""
    folder = re.sub(r"(?<=[A-Za-z0-9])([A-Z])", r"_\1", name).lower()
    cls = getattr(importlib.import_module(f"kio.schema.{folder}.v{version}.{module}"), cls_name)
    return cls, entity_writer(cls), entity_reader(cls)


@cache
def kio_fields(cls: type[Any]) -> tuple[tuple[Any, type[Any] | None], ...]:
    """kio's fields, each with the class of the structures it holds."""
    found = []
    for field in dataclasses.fields(cls):
        inner = [
            getattr(importlib.import_module(cls.__module__), word)
            for word in re.findall(r"\w+", str(field.type).replace(cls.__module__ + ".", ""))
            if dataclasses.is_dataclass(getattr(importlib.import_module(cls.__module__), word, 0))
        ]
        found.append((field, inner[0] if inner else None))
    return tuple(found)


def to_kio(message: Struct, cls: type[Any], version: int) -> Any:
    """The same message as kio holds it. Fields go by position: kio renames those with a unit."""
    ours = [field for field in message.FIELDS if field.in_version(version)]
    theirs = kio_fields(cls)
    assert len(ours) == len(theirs)
    given = {}
    for mine, (field, inner) in zip(ours, theirs, strict=True):
        assert mine.name.replace("_", "").startswith(field.name.replace("_", ""))
        value = getattr(message, mine.name)
        if value is None and mine.kind == "struct" and mine.tag is not None:
            if field.default is not dataclasses.MISSING:
                continue  # kio's default instance
            value = mine.element()
        given[field.name] = kio_value(value, field, inner, version)
    return cls(**given)


def kio_value(value: Any, field: Any, inner: type[Any] | None, version: int) -> Any:
    if isinstance(value, list):
        return tuple(kio_value(item, field, inner, version) for item in value)
    if value is None:
        return None
    if inner is not None:
        return to_kio(value, inner, version)
    kind = field.metadata.get("kafka_type")
    if kind == "uuid":
        return None if value == bytes(16) else uuid.UUID(bytes=value)
    if kind == "error_code":
        return KioErrorCode(value)
    if kind in {"timedelta_i32", "timedelta_i64"}:
        return datetime.timedelta(milliseconds=value)
    if kind == "datetime_i64":
        return None if value == -1 else UNIX_EPOCH + datetime.timedelta(milliseconds=value)
    return value


def versions(api: Api) -> list[int]:
    return [
        version
        for version in range(api.min_version, api.max_version + 1)
        if (api.name, version) not in NOT_IN_KIO
    ]


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize(("api", "kind"), CASES)
def test_random_messages_are_byte_for_byte_kios(api: Api, kind: str, examples: int) -> None:
    cls = table(api, kind)

    @settings(SMALL_AND_SAME, max_examples=examples)
    @given(messages(cls))
    def compare(message: Any) -> None:
        for version in versions(api):
            ours = codec(cls, version)
            expected = in_version(message, version)
            data = ours.encode(expected)
            theirs, write, read = kio_schema(api, version, kind)
            entity = to_kio(expected, theirs, version)
            buffer = io.BytesIO()
            write(buffer, entity)
            assert data == buffer.getvalue()
            # Their bytes are ours, so this decodes kio's bytes as well; and kio takes ours.
            assert ours.decode(data) == expected
            assert ours.decode(memoryview(b"??" + data + b"!"), 2) == expected
            assert b"".join(ours.encode_parts(expected)) == data
            assert read(data, 0)[0] == entity
            # Fields of other versions are left out, whatever they hold.
            if expected == in_version(message, version) and not has_null(message, version):
                assert ours.encode(message) == data

    compare()


def has_null(message: Any, version: int) -> bool:
    """Whether a null stands where this version allows none."""
    for field in message.FIELDS:
        if not field.in_version(version):
            continue
        value = getattr(message, field.name)
        if value is None and field.kind != "struct" and not field.nullable_in(version):
            return True
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, Struct) and has_null(item, version) for item in items):
            return True
    return False


@pytest.mark.parametrize(("api", "kind"), CASES)
def test_tables_agree_with_kio_on_versions_and_headers(api: Api, kind: str) -> None:
    for version in versions(api):
        theirs, _, _ = kio_schema(api, version, kind)
        header = (
            api.request_header_version(version)
            if kind == "Request"
            else api.response_header_version(version)
        )
        assert theirs.__api_key__ == api.key == table(api, kind).API_KEY
        assert theirs.__flexible__ == codec(table(api, kind), version).flexible
        assert theirs.__header_schema__.__version__ == header


@pytest.mark.parametrize("table", CONTROL_RECORDS.values(), ids=lambda table: table.__name__)
@pytest.mark.parametrize("examples", EXAMPLES)
def test_random_control_records_are_byte_for_byte_kios(table: type[Any], examples: int) -> None:
    first, last = version_range(table.VERSIONS)
    name = table.__name__
    kios = {version: kio_class(name, version, "data", name) for version in range(first, last + 1)}

    @settings(SMALL_AND_SAME, max_examples=examples)
    @given(messages(table))
    def compare(message: Any) -> None:
        for version, (theirs, write, read) in kios.items():
            expected = in_version(message, version)
            data = codec(table, version).encode(expected)
            entity = to_kio(expected, theirs, version)
            buffer = io.BytesIO()
            write(buffer, entity)
            assert data == buffer.getvalue()
            assert codec(table, version).decode(data) == expected
            assert read(data, 0)[0] == entity

    compare()
