"""The log of a broker's process: text, or one JSON object a line."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from support.processes import COMMAND, END_S_MAX
from tidelog.cli.log_lines import JsonLines

if TYPE_CHECKING:
    from support.processes import Serve


def test_a_record_is_one_json_object() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        info = sys.exc_info()
    record = logging.LogRecord("tidelog.server", logging.WARNING, "", 1, "%s\n", ("x",), info)
    record.created = 1_700_000_000.25
    record.fields = {"api": "Fetch"}
    line = JsonLines().format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert told.pop("exception").endswith("ValueError: two\nlines")
    assert told == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "level": "warning",
        "logger": "tidelog.server",
        "message": "x\n",
        "api": "Fetch",
    }


def test_serve_logs_requests_as_json_at_debug(serve: Serve) -> None:
    """Isolated brokers take both options from the process that starts them."""
    served = serve("--port", "0", "--isolated", "--log-level", "debug", "--log-format", "json")
    listing = [*COMMAND, "topics", "-b", served.bootstrap, "list"]
    assert subprocess.run(listing, timeout=END_S_MAX, check=False).returncode == 0
    code, _, err = served.end(signal.SIGTERM)
    assert code == 0
    lines = [json.loads(line) for line in err.splitlines()]
    assert {"tidelog.requests", "tidelog.lifecycle"} <= {line["logger"] for line in lines}
    assert all(line["api"] for line in lines if line["logger"] == "tidelog.requests")
