"""`python -m damage [WORD...]`: the whole table, or the cases whose names have all words."""

from __future__ import annotations

import asyncio
import collections
import sys
import tempfile
from pathlib import Path

from damage.cases import all_cases
from damage.directory import build
from damage.play import UNDETECTABLE, Verdict, play


async def main(words: list[str]) -> int:
    """The number of silent losses."""
    counts: collections.Counter[Verdict] = collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = await build(folder)
        for number, case in enumerate(all_cases()):
            if not all(word in str(case) for word in words):
                continue
            try:
                outcome = await play(case, folder, folder / f"case{number}", truth)
            except Exception as error:  # noqa: BLE001 - the others are to be played too
                print(f"{case}: FAILED {type(error).__name__}: {error}", flush=True)
                counts[Verdict.SILENT] += 1
                continue
            if outcome is None:
                continue
            if str(case) not in UNDETECTABLE:
                counts[outcome.verdict] += 1
            print(f"{case}: {outcome.verdict.value}  {outcome.losses}", flush=True)
            for text in outcome.said if words else ():
                print(f"    {text}")
    print({verdict.value: count for verdict, count in counts.items()})
    return counts[Verdict.SILENT]


if __name__ == "__main__":
    sys.exit(min(asyncio.run(main(sys.argv[1:])), 1))
