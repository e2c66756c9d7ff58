"""Output of a tool without what differs from run to run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TRACE = re.compile(r"\s+at .*\)$|\s*\.\.\. \d+ (common frames omitted|more)$")
OF_THE_DRIVER = re.compile(r"exit -?\d+|Driver\$ToolExit: .*")  # what becomes of System.exit
DAY = r"20\d\d-\d\d-\d\d"
VOLATILE: Sequence[tuple[str, str]] = (
    (r"^\[[\w.-]+( \| [\w.-]+)*\] (?=ERROR|WARN)", ""),  # the thread that logs
    (r"(?<=Epoch: )\d+$", "<n>"),
    (r'"(/|<folder>)[^"]*"', '"<folder>"'),
    (r"(?<=SNAPSHOT_FOOTER at offset )\d+", "<n>"),
    (r"(?<=consumer-g-)\d+", "<n>"),
    (r'(?<="avg_throughput":)[\d.E-]+', "<n>"),
    (r"(?<=lientId=)[\w-]+", "<client>"),
    (r"(localhost|127\.0\.0\.1) \d{4,5}(?= )", "<host> <port>"),
    (r"(localhost|127\.0\.0\.1):\d+", "<broker>"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uuid>"),
    (r"(?<![\w-])(?!([A-Z][a-z]+)+(?![\w-]))[\w-]{22}(?![\w-])", "<id>"),  # no name as long
    (rf"{DAY}[T ]\d\d:\d\d:\d\d[\d:.,]*Z?", "<time>"),
    (r"(?<![\d.])1[5-9]\d{11}(?![\d.])", "<time>"),
)
OFFSETS = re.compile(r'(?<="offsets":\[)[\d,]+')  # a share consumer's are a set
NUMBER = re.compile(r"(?<![\w.])-?\d+(\.\d+)?(E-?\d+)?")


def lines_of(
    text: str, names: Iterable[tuple[str, str]] = (), *, numbers: bool = False, ordered: bool = True
) -> list[str]:
    """The lines of an output, without stack traces and empty ones.

    `names`: more patterns, and what takes their place. `numbers` are left out, too, for figures.
    Without `ordered` lines come by their alphabet: Kafka's order is that of its hash tables.
    """
    found = []
    for line in text.splitlines():
        if TRACE.fullmatch(line) or OF_THE_DRIVER.fullmatch(line.strip()):
            continue
        plain = " ".join(line.split())
        for pattern, name in (*names, *VOLATILE):
            plain = re.sub(pattern, name, plain)
        plain = OFFSETS.sub(_by_number, plain)
        if numbers:
            plain = NUMBER.sub("<n>", plain)
        if plain:
            found.append(plain)
    return found if ordered else sorted(found)


def _by_number(found: re.Match[str]) -> str:
    return ",".join(sorted(found[0].split(","), key=int))
