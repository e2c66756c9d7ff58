"""What the README and `docs/` say of the broker is what the broker does."""

from __future__ import annotations

import re
from pathlib import Path

from support.docker_engine import PACKAGES

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "\n".join(page.read_text() for page in PAGES)
APIS = (ROOT / "docs/apis.md").read_text()
README_LINES_MAX = 120


def test_the_number_of_apis_is_that_of_the_table() -> None:
    """The table is generated (`test_docs.py`) from what a broker lists."""
    rows = re.findall(r"^\| \w+ \(\d+\) \| (.+?) \|", APIS, re.MULTILINE)
    served = [versions for versions in rows if versions != "none"]
    assert len(rows) >= len(served) > 60
    assert f"[{len(served)} APIs]" in (ROOT / "README.md").read_text()


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    readme = (ROOT / "README.md").read_text()
    assert readme.count("\n") <= README_LINES_MAX
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", readme)
    assert len(links) > 8
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_contributing_names_what_the_tests_of_containers_need() -> None:
    assert f"`apt-get install {PACKAGES}`" in (ROOT / "CONTRIBUTING.md").read_text()


def test_every_command_they_name_is_there() -> None:
    from tidelog.__main__ import COMMANDS

    scripts = "\n".join(re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
    named = set(re.findall(r"^(?:.*\| )?tidelog ([a-z-]+)", scripts, re.MULTILINE))
    named |= set(re.findall(r"`tidelog ([a-z]+(?:-[a-z]+)*)", TEXT)) - {"ready"}
    assert len(named) > 5
    assert named <= set(COMMANDS)
    targets = set(re.findall(r"(?:`|^)make (\w+)", TEXT, re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()
    assert len(targets) > 5
    assert targets <= set(re.findall(r"^(\w+):", makefile, re.MULTILINE))
