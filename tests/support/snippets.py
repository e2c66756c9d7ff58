"""The code blocks of the README and of `docs/`, to be run by tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_CODE = ("", "text", "{toctree}", "{eval-rst}", "{include}")
FILE_NAME = re.compile(r"# (\w+\.py)\n")


class Snippet(NamedTuple):
    """A block, and the named files that stand above it in its section."""

    place: str
    language: str
    text: str
    files: tuple[tuple[str, str], ...]

    @property
    def is_test(self) -> bool:
        return re.search(r"^(async )?def test_", self.text, re.MULTILINE) is not None


def snippets() -> Iterator[Snippet]:
    seen: set[str] = set()
    for page in PAGES:
        for section in re.split(r"^(?=## )", page.read_text(), flags=re.MULTILINE):
            files: list[tuple[str, str]] = []
            for number, (language, text) in enumerate(BLOCK.findall(section)):
                named = FILE_NAME.match(text)
                if language == "python" and named and not named[1].startswith("test_"):
                    files.append((named[1], text))
                elif language not in NOT_CODE and text not in seen:
                    seen.add(text)
                    title = section.splitlines()[0].strip("# ")
                    place = f"{page.stem}: {title}: {number}"
                    yield Snippet(place, language, text, tuple(files))


ALL = list(snippets())


def of(
    language: str, *, tests: bool = False, spark: bool = False, docker: bool = False
) -> list[object]:
    return [
        pytest.param(snippet, id=snippet.place)
        for snippet in ALL
        if snippet.language == language
        and snippet.is_test == tests
        and ("tidelog_pipeline" in snippet.text) == spark
        and ("docker " in snippet.text or "TidelogContainer" in snippet.text) == docker
    ]


def run_script(snippet: Snippet, folder: Path) -> None:
    """Run a block of Python in this process, for what is there: a Spark session, an engine."""
    for name, text in snippet.files:
        (folder / name).write_text(text)
    exec(compile(snippet.text, snippet.place, "exec"), {"__name__": "__main__"})
