"""Values of control calls and their JSON form.

A value is a frozen dataclass whose fields are None, bool, int, float, str, a `Literal`, a tuple of
one type, a dict from str or int, another such dataclass, or a union of these with None. Its JSON
form has the same names. An int is also a float; nothing else is converted, so that a wrong argument
is an error, with the path of the field.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from tidelog.control.errors import ControlError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["as_list", "fields_of", "from_json", "to_json"]

_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


def from_json(kind: Any, given: Any, path: str = "") -> Any:
    """Return the value of a type from its JSON form; ControlError names the field at fault."""
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, given, path)
    origin = typing.get_origin(kind)
    if origin is Literal:
        choices = typing.get_args(kind)
        if given not in choices:
            _refuse(f"one of {', '.join(map(str, choices))}", given, path)
        return given
    if origin in (typing.Union, types.UnionType):
        return _union(typing.get_args(kind), given, path)
    if origin is tuple:
        if not isinstance(given, list | tuple):
            _refuse("a list", given, path)
        inner = typing.get_args(kind)[0]
        return tuple(from_json(inner, each, f"{path}[{n}]") for n, each in enumerate(given))
    if origin is dict:
        return _mapping(typing.get_args(kind), given, path)
    return _plain(kind, given, path)


def _plain(kind: Any, given: Any, path: str) -> Any:
    """Return a value of JSON's own types; bool is no int here."""
    if kind is Any or ((kind is None or kind is type(None)) and given is None):
        return given
    if kind is float and isinstance(given, int) and not isinstance(given, bool):
        return float(given)
    if kind not in _NAMES or type(given) is not kind:
        _refuse(_NAMES.get(kind, "null"), given, path)
    return given


def _union(kinds: tuple[Any, ...], given: Any, path: str) -> Any:
    """Return a value of X | None, or of the first plain type that fits."""
    others = [kind for kind in kinds if kind is not type(None)]
    if given is None and len(others) < len(kinds):
        return None
    for kind in others[:-1]:
        try:
            return from_json(kind, given, path)
        except ControlError:
            continue
    return from_json(others[-1], given, path)


def _mapping(kinds: tuple[Any, ...], given: Any, path: str) -> dict[Any, Any]:
    if not isinstance(given, dict):
        _refuse("an object", given, path)
    key, inner = kinds
    values = {name: from_json(inner, each, f"{path}.{name}") for name, each in given.items()}
    if key is not int:
        return values
    try:
        return {int(name): each for name, each in values.items()}
    except ValueError:
        _refuse("an object whose names are integers", given, path)


def _dataclass(kind: Any, given: Any, path: str) -> Any:
    if not isinstance(given, dict):
        _refuse("an object", given, path)
    known = fields_of(kind)
    start = f"{path}." if path else ""
    for name in given:
        if name not in known:
            raise ControlError("is unknown", field=f"{start}{name}")
    values = {}
    for name, (inner, is_needed) in known.items():
        if name in given:
            values[name] = from_json(inner, given[name], f"{start}{name}")
        elif is_needed:
            raise ControlError("is missing", field=f"{start}{name}")
    return kind(**values)


@functools.cache
def fields_of(kind: Any) -> Mapping[str, tuple[Any, bool]]:
    """Return the fields of a dataclass: the type of each, and whether it has no default."""
    hints = typing.get_type_hints(kind)
    return {
        field.name: (
            hints[field.name],
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(kind)
    }


def _refuse(wanted: str, given: Any, path: str) -> NoReturn:
    shown = repr(given)
    shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
    raise ControlError(f"must be {wanted}, not {shown}", field=path or None)


def as_list(given: Any) -> Any:
    """Return a sequence as a list. A string, which is a sequence of its letters, stays one: then
    the call refuses it."""
    return given if given is None or isinstance(given, str) else list(given)


def to_json(value: Any) -> Any:
    """Return a value in its JSON form."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, dict):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    return value
