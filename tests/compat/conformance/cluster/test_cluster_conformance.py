"""Three tidelogs answer as three Apache Kafkas do: against the recording, and it against Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat.conformance import recording
from compat.conformance.cluster.doors import KafkaCluster, TidelogCluster
from compat.conformance.cluster.runner import RECORDED, collect
from compat.conformance.compare import differences
from compat.jvm import require_jars

if TYPE_CHECKING:
    from pathlib import Path

    from compat.conformance.cluster.doors import ClusterDoor
    from compat.conformance.runner import Transcript


@pytest.fixture(scope="module")
def recorded() -> dict[str, Transcript]:
    return recording.load(RECORDED)


def unlike(cluster: ClusterDoor, recorded: dict[str, Transcript], *, again: bool) -> list[str]:
    """All differences from the recording; with `again`, of runs that differ each time."""

    def differing(key: str, heard: Transcript) -> list[str]:
        return [str(one) for one in differences(key, recorded.get(key, []), heard)]

    def is_good(key: str, heard: Transcript) -> bool:
        found = differing(key, heard)
        print(*found, sep="\n", end="\n" if found else "")
        return not found

    cluster.start()
    try:
        heard = collect(cluster, is_good=is_good if again else None)
    finally:
        cluster.stop()
    assert recorded.keys() <= heard.keys(), "not every run of the recording"
    return [line for key in recorded for line in differing(key, heard[key])]


@pytest.mark.compat
@pytest.mark.timeout(300)
def test_a_cluster_answers_as_kafkas_did(tmp_path: Path, recorded: dict[str, Transcript]) -> None:
    assert unlike(TidelogCluster(tmp_path), recorded, again=False) == []


@pytest.mark.reference
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_recording_is_what_kafkas_answer(
    tmp_path: Path, recorded: dict[str, Transcript]
) -> None:
    require_jars()
    # As for the single broker: JVMs that a busy machine holds up are asked again.
    assert unlike(KafkaCluster(tmp_path), recorded, again=True) == []
