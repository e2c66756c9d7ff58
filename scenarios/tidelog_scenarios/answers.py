"""Answers in the vectors' format."""

from __future__ import annotations

from typing import Any

from tidelog_protocol.errors import ErrorCode
from tidelog_scenarios.disk import rows_of

__all__ = ["Reply", "error_of", "fetch_reply"]

Reply = dict[str, Any]


def fetch_reply(data: Any) -> Reply:
    """Return the one partition of a Fetch answer, in leader epochs of the cluster."""
    parts = data.records or b""
    content = b"".join(parts) if isinstance(parts, (list, tuple)) else parts
    reply = {
        **error_of(data.error_code),
        "hw": data.high_watermark,
        "log_start": data.log_start_offset,
        "records": rows_of(content),
    }
    if data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0:
        end = data.diverging_epoch
        reply["diverging"] = {"epoch": end.epoch, "end_offset": end.end_offset}
    return reply


def error_of(code: int) -> Reply:
    """Return an error by name and code."""
    return {"error": ErrorCode(code).name, "error_code": code}
