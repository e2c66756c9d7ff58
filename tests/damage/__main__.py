"""`python -m damage [WORD...]`: both tables, or the cases whose names have all words.

The verdicts of one broker are compared with `verdicts.txt`; `python -m damage --record` writes it,
after a look at what has changed.
"""

from __future__ import annotations

import asyncio
import collections
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from damage.cases import all_cases, cases_of_three
from damage.directory import build
from damage.play import UNDETECTABLE, Outcome, Verdict, play
from damage.three import UNDETECTABLE_OF_THREE, Three
from damage.verdicts import differences, record

if TYPE_CHECKING:
    from damage.cases import Case


class Table:
    """Outcomes, printed as they come."""

    def __init__(self, title: str, words: list[str], undetectable: frozenset[str]) -> None:
        self.counts: collections.Counter[Verdict] = collections.Counter()
        self.played: dict[str, str] = {}
        self._title = title
        self._words = words
        self._undetectable = undetectable

    def chosen(self, cases: list[Case]) -> list[Case]:
        """Those that are to be played."""
        return [each for each in cases if all(word in str(each) for word in self._words)]

    def note(self, case: Case, outcome: Outcome | None) -> None:
        """None: there was nothing to damage."""
        if outcome is None:
            return
        if str(case) not in self._undetectable:
            self.counts[outcome.verdict] += 1
        self.played[str(case)] = outcome.verdict.value
        print(f"{self._title}: {case}: {outcome.verdict.value}  {outcome.losses}", flush=True)
        for text in outcome.said if self._words else ():
            print(f"    {text}")

    def close(self) -> int:
        """The number of faults."""
        print(self._title, {verdict.value: count for verdict, count in self.counts.items()})
        return sum(count for verdict, count in self.counts.items() if verdict.is_fault)


def failed(error: BaseException) -> Outcome:
    """A case that could not be played to its end."""
    return Outcome(Verdict.TRACEBACK, [f"FAILED {type(error).__name__}: {error}"], [])


async def play_one(folder: Path, table: Table) -> None:
    """The table of one broker."""
    truth = await build(folder)
    for number, case in enumerate(table.chosen(all_cases())):
        try:
            outcome = await play(case, folder, folder / f"case{number}", truth)
        except Exception as error:  # noqa: BLE001 - the others are to be played too
            outcome = failed(error)
        table.note(case, outcome)


async def play_three(folder: Path, table: Table) -> None:
    """The table of three brokers; a new cluster after a case that failed."""
    cases = table.chosen(cases_of_three())
    clusters = 0
    while cases:
        clusters += 1
        async with Three(folder / f"cluster{clusters}") as three:
            while cases:
                case = cases.pop(0)
                try:
                    outcome = await three.play(case)
                except Exception as error:  # noqa: BLE001 - the others are to be played too
                    outcome = failed(error)
                table.note(case, outcome)
                if outcome is not None and outcome.losses:
                    break


async def main(words: list[str]) -> int:
    """The number of faults, and of verdicts of one broker that are not those recorded."""
    one = Table("one broker", words, UNDETECTABLE)
    with tempfile.TemporaryDirectory() as name:
        await play_one(Path(name), one)
    faults = one.close()
    different = differences(one.played)
    print(*different, sep="\n")
    three = Table("three brokers", words, UNDETECTABLE_OF_THREE)
    with tempfile.TemporaryDirectory() as name:
        await play_three(Path(name), three)
    return faults + len(different) + three.close()


async def record_all() -> int:
    """Record the table of one broker: each case twice, on directories of their own."""
    found: dict[str, set[str]] = {}
    for _ in range(2):
        table = Table("one broker", [], UNDETECTABLE)
        with tempfile.TemporaryDirectory() as name:
            await play_one(Path(name), table)
        table.close()
        for case, verdict in table.played.items():
            found.setdefault(case, set()).add(verdict)
    record({case: " or ".join(sorted(verdicts)) for case, verdicts in found.items()})
    return 0


if __name__ == "__main__":
    arguments = sys.argv[1:]
    run = record_all() if arguments == ["--record"] else main(arguments)
    sys.exit(min(asyncio.run(run), 1))
