"""`docs/reliability.md`: the commands that replay faults name tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| .* \| `(tests/[^`]*)` \|$")
OPTION = re.compile(r'-k (?:"([^"]*)"|(\S+))')


def commands() -> list[str]:
    text = (ROOT / "docs/reliability.md").read_text()
    faults = text[text.index("## Faults that were found and fixed") :]
    return [found[1] for line in faults.splitlines() if (found := ROW.match(line))]


def test_each_fault_is_replayed_by_tests_that_are_there() -> None:
    assert len(commands()) >= 35
    missing = []
    for command in commands():
        option = OPTION.search(command)
        paths = [ROOT / word for word in OPTION.sub("", command).split()]
        if not all(path.exists() for path in paths):
            missing.append(command)
            continue
        files = [
            one for path in paths for one in (path.rglob("test_*.py") if path.is_dir() else [path])
        ]
        text = "".join(one.read_text() for one in files)
        words = re.split(r" or | and ", (option[1] or option[2]) if option else "def test")
        missing += [f"{command}: {word}" for word in words if word.strip('"') not in text]
    assert missing == []
