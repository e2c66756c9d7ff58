"""The table of verdicts of one broker, as it was recorded: one line a case."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PATH = Path(__file__).parent / "verdicts.txt"


def recorded() -> dict[str, str]:
    """The verdicts by case; those that are not the same in each run have several, with "or"."""
    lines = PATH.read_text().splitlines() if PATH.exists() else []
    return dict(line.split(": ", 1) for line in lines)


def record(verdicts: Mapping[str, str]) -> None:
    """Write the table."""
    PATH.write_text("".join(f"{case}: {verdict}\n" for case, verdict in verdicts.items()))


def differences(played: Mapping[str, str]) -> list[str]:
    """Cases that came out otherwise than it is recorded."""
    known = recorded()
    return [
        f"{case}: {verdict}, not {known.get(case, 'in the table')}"
        for case, verdict in played.items()
        if verdict not in known.get(case, "").split(" or ")
    ]
