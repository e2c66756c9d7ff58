"""Every version of every API that tidelog serves is compared with Apache Kafka's answers."""

from __future__ import annotations

from compat.conformance import recording
from compat.conformance.controllers import AT_CONTROLLER
from tidelog_protocol.apis import API

FOLDERS = ("", "cluster", "controllers", "sasl", "telemetry", "tiered")
NEWER = {("ApiVersions", 5), ("DeleteGroups", 3)}
"""Versions of Kafka 4.4, which the reference does not have."""


def compared() -> set[tuple[str, int]]:
    """Name and version of what has a run."""
    found = set()
    for folder in FOLDERS:
        for key in recording.load(recording.FOLDER / folder):
            case, _, version = key.removesuffix(AT_CONTROLLER).rpartition("-v")
            found.add((case.partition("-")[0], int(version)))
    return found


def test_no_version_of_an_api_is_without_a_run() -> None:
    served = {
        (api.name, version)
        for api in API.values()
        for version in range(api.min_version, api.max_version + 1)
    }
    assert served - compared() - NEWER == set()


def test_all_folders_of_recordings_count() -> None:
    assert {"", *(each.name for each in recording.FOLDER.iterdir() if each.is_dir())} == {*FOLDERS}
