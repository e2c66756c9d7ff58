"""Two tiered tidelogs answer as two tiered Apache Kafkas do: against the recording, and it against
Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat.conformance import recording
from compat.conformance.compare import differences
from compat.conformance.tiered.doors import TieredKafkas, TieredTidelogs
from compat.conformance.tiered.runner import RECORDED, collect
from compat.jvm import require_jars

if TYPE_CHECKING:
    from pathlib import Path

    from compat.conformance.runner import Transcript
    from compat.conformance.tiered.runner import TieredDoor

# What the reference is asked again in every run: a few that are cheap, and of each kind some.
SAMPLE = "*-v1[17]"


def unlike(
    brokers: TieredDoor, recorded: dict[str, Transcript], pattern: str = "*", *, twice: bool = False
) -> list[str]:
    """All differences from the recording; with `twice`, of runs that differ a second time, too."""

    def differing(key: str, heard: Transcript) -> list[str]:
        return [str(one) for one in differences(key, recorded.get(key, []), heard)]

    def is_good(key: str, heard: Transcript) -> bool:
        found = differing(key, heard)
        print(*found, sep="\n", end="\n" if found else "")
        return not found

    brokers.start()
    try:
        heard = collect(brokers, pattern, is_good=is_good if twice else None)
    finally:
        brokers.stop()
    assert heard
    return [line for key in heard for line in differing(key, heard[key])]


@pytest.fixture(scope="module")
def recorded() -> dict[str, Transcript]:
    return recording.load(RECORDED)


@pytest.mark.compat
@pytest.mark.timeout(300)
def test_tiered_brokers_answer_as_kafkas_did(
    tmp_path: Path, recorded: dict[str, Transcript]
) -> None:
    assert unlike(TieredTidelogs(tmp_path), recorded) == []
