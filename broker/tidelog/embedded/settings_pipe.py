"""Settings on the standard input of a broker's process, before its control calls.

They may be secrets, and every user of the machine sees the arguments of a process. The form: the
length in four bytes, then a JSON object.
"""

# ruff: noqa: PLC0415 - few commands read settings from their input

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SETTINGS_ON_STDIN", "read_settings", "settings_bytes"]

SETTINGS_ON_STDIN = "--settings-on-stdin"


def settings_bytes(settings: Mapping[str, str]) -> bytes:
    """Return what to write."""
    import json

    text = json.dumps(dict(settings)).encode()
    return len(text).to_bytes(4) + text


def read_settings(descriptor: int = 0) -> dict[str, str]:
    """Read the settings and nothing behind them; EOFError if the writer has ended."""
    import json

    settings: dict[str, str] = json.loads(
        _exactly(descriptor, int.from_bytes(_exactly(descriptor, 4)))
    )
    return settings


def _exactly(descriptor: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = os.read(descriptor, count - len(data))
        if not chunk:
            raise EOFError("standard input ended before the settings")
        data += chunk
    return data
