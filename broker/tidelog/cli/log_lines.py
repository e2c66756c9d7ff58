"""The log of a broker's process on standard error: lines of text, or of JSON."""

# ruff: noqa: PLC0415 - a broker that logs text starts without what JSON takes

from __future__ import annotations

import logging

__all__ = ["FORMATS", "JsonLines", "set_up_logging"]

FORMATS = ("text", "json")


class JsonLines(logging.Formatter):
    """Makes one JSON object of each record; the attribute `fields` of a record is part of it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        import json
        from datetime import UTC, datetime

        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up_logging(level: str, form: str) -> None:
    """Log on standard error from this level on, in one of `FORMATS`."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler])
