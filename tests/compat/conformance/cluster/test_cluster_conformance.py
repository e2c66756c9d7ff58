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
    from collections.abc import Iterable
    from pathlib import Path

    from compat.conformance.cluster.doors import ClusterDoor
    from compat.conformance.runner import Transcript


@pytest.fixture(scope="module")
def recorded() -> dict[str, Transcript]:
    return recording.load(RECORDED)


def newest(recorded: dict[str, Transcript]) -> list[str]:
    """Of each case the run of the newest version: `python -m compat.conformance.cluster` asks for
    all."""
    of_case: dict[str, str] = {}
    for key in recorded:
        name, _, version = key.rpartition("-v")
        if int(version) > int(of_case.get(name, "-1")):
            of_case[name] = version
    return [f"{name}-v{version}" for name, version in of_case.items()]


def unlike(
    cluster: ClusterDoor, recorded: dict[str, Transcript], chosen: Iterable[str], *, again: bool
) -> list[str]:
    """All differences of the chosen runs from the recording; with `again`, of runs that differ
    each time."""

    def differing(key: str, heard: Transcript) -> list[str]:
        return [str(one) for one in differences(key, recorded[key], heard)]

    def is_good(key: str, heard: Transcript) -> bool:
        found = differing(key, heard)
        print(*found, sep="\n", end="\n" if found else "")
        return not found

    cluster.start()
    try:
        heard = collect(cluster, *chosen, is_good=is_good if again else None)
    finally:
        cluster.stop()
    assert heard.keys() >= set(chosen), "not every run was carried out"
    return [line for key in chosen for line in differing(key, heard[key])]


@pytest.mark.compat
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_each_version", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_cluster_answers_as_kafkas_did(
    tmp_path: Path, recorded: dict[str, Transcript], is_each_version: bool
) -> None:
    chosen = recorded.keys() if is_each_version else recording.oldest_and_newest(recorded)
    assert unlike(TidelogCluster(tmp_path), recorded, chosen, again=False) == []


@pytest.mark.reference
@pytest.mark.nightly  # the recording changes with its cases alone, and three JVMs take long
@pytest.mark.timeout(600)
def test_the_recording_is_what_kafkas_answer(
    tmp_path: Path, recorded: dict[str, Transcript]
) -> None:
    require_jars()
    # As for the single broker: JVMs that a busy machine holds up are asked again.
    assert unlike(KafkaCluster(tmp_path), recorded, newest(recorded), again=True) == []
