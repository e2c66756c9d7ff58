"""The specification's scenarios, played on a live cluster: teaching material and test in one.

`vectors/` has them as facts: the state that is given, and for each step what is done, what is
answered and the state after it. `player.py` plays one, by `actions.py`, on a `stage.py`: brokers of
this process over real sockets, with data of their own that goes with them. What is not left to the
brokers is only when something happens: a follower fetches when its step has come (`turnstile.py`),
a segment is copied, a task runs and the store fails (`store.py`) when the scenario says so.
`look.py` reads the state, `table.py` shows it.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

__all__ = ["NAMES", "load"]

NAMES = (
    "kip101-s1",
    "kip101-s2",
    "kip405-s1",
    "kip405-s2",
    "kip405-s3",
    "kip405-s4",
    "kip405-s5",
    "kip405-follower-to-leader",
    "remote-outage",
    "topic-deletion",
)


def load(name: str) -> dict[str, Any]:
    """The vector of a scenario: `title`, `given`, `steps`, …"""
    assert name in NAMES
    text = (resources.files(__name__) / "vectors" / f"{name}.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document
