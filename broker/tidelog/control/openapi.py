"""The OpenAPI document of the HTTP door, derived from the table of calls.

`/openapi.json` serves it, and `docs/openapi.json` has a copy for generators of clients.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from typing import Any, Literal

from tidelog.control.table import CALLS
from tidelog.control.values import fields_of, to_json

__all__ = ["READS", "document", "path_of"]

READS = ("describe", "list", "requests", "state")
"""Last parts of the names of calls that change nothing: GET does them too."""

_PLAIN: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    type(None): {"type": "null"},
    Any: {},
}
_PROBLEM = {
    "type": "object",
    "description": "Why a call was refused (RFC 9457); nothing is changed then.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "field": {"type": "string", "description": "The argument at fault, if one is."},
    },
    "required": ["type", "title", "status", "detail"],
}
_HEALTH = {
    "get": {
        "operationId": "health",
        "summary": "Tell whether a broker is running; needs no token.",
        "responses": {"200": {"description": "yes"}, "503": {"description": "no"}},
        "security": [],
    }
}

_SCENARIOS = {
    "get": {
        "operationId": "scenarios",
        "summary": "List scenarios of replication and tiering, with their rules.",
        "responses": {"200": {"description": "a list of objects"}},
    }
}
_SCENARIO = {
    "get": {
        "operationId": "scenario",
        "summary": "Play a scenario on clusters of its own, under today's rule and an older one.",
        "description": "The first answer takes as long as the play, about ten seconds.",
        "parameters": [
            {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        ],
        "responses": {"200": {"description": "the document of `tidelog scenario NAME --json`"}},
    }
}


def path_of(name: str) -> str:
    """Return the path of a call: `brokers.stop` is /v1/brokers/stop."""
    return f"/v1/{name.replace('.', '/')}"


def document() -> dict[str, Any]:
    """Return the document of all calls of the cluster."""
    schemas: dict[str, Any] = {"Problem": _PROBLEM}
    paths: dict[str, Any] = {
        "/v1/health": _HEALTH,
        "/v1/scenarios": _SCENARIOS,
        "/v1/scenarios/{name}": _SCENARIO,
    }
    for call in CALLS.values():
        if call.scope == "cluster":
            doc = inspect.cleandoc(call.doc)
            paths[path_of(call.name)] = {
                "post": {
                    "operationId": call.name,
                    "summary": " ".join(doc.partition("\n\n")[0].split()),
                    "description": doc,
                    "requestBody": _json("application/json", _schema(call.arguments, schemas)),
                    "responses": {
                        "200": {
                            "description": "done",
                            **_json("application/json", _schema(call.result, schemas)),
                        },
                        "default": {
                            "description": "refused",
                            **_json("application/problem+json", _reference("Problem")),
                        },
                    },
                }
            }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tidelog control",
            "version": "1",
            "description": "Faults, time, actions and state of a running tidelog cluster.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _json(media_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {media_type: {"schema": schema}}}


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type of values; dataclasses are added to `schemas`."""
    if kind is None or kind in _PLAIN:
        return dict(_PLAIN[type(None) if kind is None else kind])
    if dataclasses.is_dataclass(kind):
        return _object(kind, schemas)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is tuple:
        return {"type": "array", "items": _schema(inner[0], schemas)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(inner[1], schemas)}
    assert origin in (typing.Union, types.UnionType), kind
    return {"anyOf": [_schema(each, schemas) for each in inner]}


def _object(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return a reference to the schema of a dataclass, named after its module and class."""
    name = f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"
    if name not in schemas:
        made = schemas[name] = {
            "type": "object",
            "description": inspect.cleandoc(kind.__doc__ or ""),
            "additionalProperties": False,
        }
        made["properties"] = {
            field.name: _schema(fields_of(kind)[field.name][0], schemas) | _default(field)
            for field in dataclasses.fields(kind)
        }
        needed = [field for field, (_, is_needed) in fields_of(kind).items() if is_needed]
        if needed:
            made["required"] = needed
    return _reference(name)


def _default(field: dataclasses.Field[Any]) -> dict[str, Any]:
    is_given = field.default is not dataclasses.MISSING
    return {"default": to_json(field.default)} if is_given else {}
