"""The reference's transcripts, kept as JSON: comparing with them needs neither Java nor the jars.

One file an API; `python -m compat.conformance --record` writes them anew from a live reference.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compat.conformance.runner import Transcript

FOLDER = Path(__file__).parent / "recorded"


def load(folder: Path = FOLDER) -> dict[str, Transcript]:
    """Run key -> transcript."""
    merged: dict[str, Transcript] = {}
    for file in sorted(folder.glob("*.json")):
        merged.update(json.loads(file.read_text(encoding="utf-8")))
    return merged


def oldest_and_newest(keys: Iterable[str]) -> set[str]:
    """Of each case the runs of these two versions."""
    versions: dict[str, list[int]] = {}
    for key in keys:
        case, _, version = key.rpartition("-v")
        versions.setdefault(case, []).append(int(version))
    return {f"{case}-v{edge(of)}" for case, of in versions.items() for edge in (min, max)}


def save(transcripts: dict[str, Transcript], folder: Path = FOLDER) -> None:
    """Write one file an API, one line a run, so that changes are easy to read."""
    folder.mkdir(exist_ok=True)
    by_api: dict[str, list[str]] = {}
    for key, transcript in sorted(transcripts.items()):
        line = f"{json.dumps(key)}: {json.dumps(transcript, sort_keys=True, ensure_ascii=False)}"
        by_api.setdefault(key.partition("-")[0], []).append(line)
    for api, lines in by_api.items():
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        (folder / f"{api}.json").write_text(text, encoding="utf-8")


def comparable(transcript: Transcript, nonce: str = "") -> Transcript:
    """A live transcript as it looks after being kept: JSON has no tuples, bytes or int keys."""
    kept: Transcript = json.loads(json.dumps(transcript).replace(nonce, ""))
    return kept
