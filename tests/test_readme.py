"""What the README says of the broker is what the broker does."""

from __future__ import annotations

import re
from pathlib import Path

import tidelog
from tidelog.doors.simple_client import SimpleClient
from tidelog_protocol.apis import API
from tidelog_protocol.messages.cluster import ApiVersionsRequest

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()


def test_the_table_of_apis_is_what_is_served() -> None:
    written = {
        int(key): (name, int(low), int(high))
        for name, key, low, high in re.findall(r"(\w+) \((\d+)\) \| (\d+)–(\d+) \|", README)  # noqa: RUF001
    }
    with tidelog.run() as cluster, SimpleClient(cluster.bootstrap_servers) as client:
        answer = client.ask(ApiVersionsRequest(), version_max=2)
    served = {
        entry.api_key: (
            API[entry.api_key].name,
            max(entry.min_version, API[entry.api_key].min_version),
            entry.max_version,
        )
        for entry in answer.api_keys
    }
    assert written == served


def test_every_command_it_names_is_there() -> None:
    from tidelog.__main__ import COMMANDS

    named = set(re.findall(r"^(?:.*\| )?tidelog (\w+)", README, re.MULTILINE)) - {"ready"}
    named |= set(re.findall(r"`tidelog (\w+)", README))
    assert len(named) > 5
    assert named <= set(COMMANDS)
    targets = set(re.findall(r"`?make (\w+)", README))
    makefile = (Path(__file__).resolve().parent.parent / "Makefile").read_text()
    assert targets <= set(re.findall(r"^(\w+):", makefile, re.MULTILINE))
