"""Make a response that cannot be encoded fit the wire.

Responses quote requests, so a string may be longer than its field: an error message with a name of
32 KB in it, for example. The dispatcher calls this after the encoder has refused a response, which
is rare, so it may be slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.primitives import STRING_BYTES_MAX
from tidelog_protocol.schema import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["fit"]

_RANGES: Mapping[str, tuple[int, int]] = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}


def fit(message: Struct) -> bool:
    """Cut every string that is too long, and clamp numbers to the range of their field.

    The nearest error code around a changed field becomes UNKNOWN_SERVER_ERROR, unless it is an
    error already. Returns True if no error code was found.
    """
    is_changed = False
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if isinstance(value, list):
            fitting = [_fitting(field.element, item) for item in value]
            is_changed |= any(changed for _, changed in fitting)
            value[:] = [item for item, _ in fitting]
        else:
            kind = field.element if field.kind == "struct" else field.kind
            fitting_value, changed = _fitting(kind, value)
            if changed:
                is_changed = True
                if fitting_value is not value:
                    setattr(message, field.name, fitting_value)
    code: Any = getattr(message, "error_code", None)
    if is_changed and code is not None:
        if code == ErrorCode.NONE:
            message.error_code = ErrorCode.UNKNOWN_SERVER_ERROR  # type: ignore[attr-defined]
        return False
    return is_changed


def _fitting(kind: str | type[Struct] | None, value: Any) -> tuple[Any, bool]:
    """Return a value that fits a field of this kind, and whether that needs an error code."""
    if isinstance(value, Struct):
        return value, fit(value)
    if isinstance(value, str) and len(value.encode()) > STRING_BYTES_MAX:
        return value.encode()[:STRING_BYTES_MAX].decode(errors="ignore"), True
    low, high = _RANGES.get(kind, (0, 0)) if isinstance(kind, str) else (0, 0)
    if low < high and not low <= value <= high:
        return max(low, min(high, value)), True
    return value, False
