"""The parts of the documentation that come from the code are what the code says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from tidelog.config.broker import BrokerConfig
from tidelog.config.vocabulary import BrokerKey

ROOT = Path(__file__).resolve().parent.parent
ROOMS = {"protocol": "tidelog_protocol", "storage": "tidelog_storage", "broker": "tidelog"}


def test_generated_parts_are_fresh() -> None:
    stale = list(runpy.run_path(str(ROOT / "docs/generate.py"))["stale"]())
    assert stale == [], "run .venv/bin/python docs/generate.py and commit what it writes"


def test_every_setting_has_a_text() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)` \| .* \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) > 150
    assert [name for name, text in rows if len(text) < 10] == []


def test_settings_that_nothing_reads_say_so() -> None:
    code = "".join(
        path.read_text()
        for room in ("storage", "broker")
        for path in (ROOT / room).rglob("*.py")
        if path.name not in ("keys.py", "group_keys.py", "tiered_keys.py", "security_keys.py")
    )
    words = set(re.findall(r"\w+", code))
    unread = [
        name
        for name, key in BrokerConfig.KEYS.items()
        if isinstance(key, BrokerKey)
        and name.replace(".", "_") not in words
        and f'"{name}"' not in code
    ]
    assert [name for name in unread if not BrokerConfig.KEYS[name].inert] == []


def test_files_that_the_architecture_names_are_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    journeys = text[text.index("## Three journeys") :]
    paths = set(re.findall(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+)`", journeys))
    sources = [
        f"{room}/{path.relative_to(ROOT / room / package).with_suffix('')}"
        for room, package in ROOMS.items()
        for path in (ROOT / room / package).rglob("*.py")
    ]
    assert len(paths) > 30
    assert [
        path for path in paths if not any(f"/{each}".endswith(f"/{path}") for each in sources)
    ] == []
