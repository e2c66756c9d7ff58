"""Requests from plain data and answers to plain data, walking the codec's own tables."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from tidelog_protocol.compiler import codec
from tidelog_protocol.schema import MISSING, Field, Message, Struct, version_range

MODULES = (
    "cluster",
    "data",
    "admin",
    "configs",
    "groups",
    "consumer_groups",
    "share_groups",
    "share_group_offsets",
    "share_consumers",
    "share_state",
    "group_admin",
    "group_offsets",
    "txns",
    "txn_admin",
    "cluster_admin",
    "acls",
    "quotas",
    "streams_groups",
    "users",
    "sasl",
    "telemetry",
    "tokens",
    "quorum",
    "raft_voters",
    "controller",
)
API_VERSIONS_KEY = 18


class ApiTables(NamedTuple):
    """An API by its Kafka name."""

    name: str
    key: int
    request: type[Message]
    response: type[Message]

    def versions(self) -> tuple[int, int]:
        return version_range(self.request.VERSIONS)

    def flexible(self, version: int) -> bool:
        first = self.request.FLEXIBLE
        return first is not None and version >= version_range(first)[0]


def _load() -> dict[str, ApiTables]:
    found: dict[str, ApiTables] = {}
    for module_name in MODULES:
        module = importlib.import_module(f"tidelog_protocol.messages.{module_name}")
        for name in module.__all__:
            if name.endswith("Request"):
                api = name.removesuffix("Request")
                request, response = getattr(module, name), getattr(module, f"{api}Response")
                found[api] = ApiTables(api, request.API_KEY, request, response)
    return found


APIS = _load()


def build(table: type[Struct], values: dict[str, Any]) -> Any:
    """A message of the table from plain dicts and lists; an unknown name is the case's mistake."""
    fields = {field.name: field for field in table.FIELDS}
    unknown = values.keys() - fields.keys()
    assert not unknown, f"{table.__name__} has no {unknown}"
    return table(**{name: _value(fields[name], value) for name, value in values.items()})


def _value(field: Field, value: Any) -> Any:
    if value is None or field.element is None or isinstance(field.element, str):
        return value
    if field.kind == "array":
        return [build(field.element, one) for one in value]
    return build(field.element, value)


def plain(message: Struct, version: int) -> dict[str, Any]:
    """A decoded message as dicts and lists, with the fields its version carries."""
    return {
        field.name: _plain_value(getattr(message, field.name), version)
        for field in message.FIELDS
        if field.in_version(version)
    }


def _plain_value(value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return plain(value, version)
    if isinstance(value, list):
        return [_plain_value(one, version) for one in value]
    if isinstance(value, memoryview):
        return bytes(value)
    assert value is not MISSING
    return value


def request_payload(
    api: ApiTables, version: int, correlation_id: int, client_id: str | None, body: bytes
) -> bytes:
    """Header and body of a request frame, written here by hand: the codec is under test, too."""
    name = b"\xff\xff" if client_id is None else len(client_id).to_bytes(2) + client_id.encode()
    header = api.key.to_bytes(2) + version.to_bytes(2) + correlation_id.to_bytes(4) + name
    return header + (b"\0" if api.flexible(version) else b"") + body


def encode(api: ApiTables, version: int, values: dict[str, Any]) -> bytes:
    """The body of a request."""
    return codec(api.request, version).encode(build(api.request, values))


def decode(api: ApiTables, version: int, frame: bytes) -> dict[str, Any]:
    """The body of an answer; ApiVersions answers an unknown version in version 0."""
    offset = 4
    if api.flexible(version) and api.key != API_VERSIONS_KEY:
        assert frame[4] == 0, "tagged fields in the header of an answer"
        offset = 5
    return plain(codec(api.response, version).decode(frame, offset), version)
