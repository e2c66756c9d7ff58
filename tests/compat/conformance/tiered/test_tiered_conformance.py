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
from tidelog_bench.peers.kafka_jars import JarsUnavailableError, classpath

if TYPE_CHECKING:
    from pathlib import Path

    from compat.conformance.runner import Transcript

# Of every kind some: `python -m compat.conformance.tiered` asks for all.
ASKED_AGAIN = (
    "CreateTopics-tiered-configurations-v7",
    "DeleteRecords-across-the-tiers-v2",
    "DescribeConfigs-keys-of-*-v4",
    "Fetch-as-a-follower-v17",
    "Fetch-at-every-offset-v12",
    "Fetch-committed-v13",
    "Fetch-several-partitions-v17",
    "ListOffsets-specials-v11",
    "ListOffsets-times-v11",
    "OffsetForLeaderEpoch-end-offsets-v4",
)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Transcript]:
    return recording.load(RECORDED)


def differing(recorded: dict[str, Transcript], key: str, heard: Transcript) -> list[str]:
    found = [str(one) for one in differences(key, recorded.get(key, []), heard)]
    print(*found, sep="\n", end="\n" if found else "")
    return found


def has_jars() -> bool:
    try:
        classpath()
    except JarsUnavailableError:
        return False
    return True


@pytest.mark.compat
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_each_version", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_tiered_brokers_answer_as_kafkas_did(
    tmp_path: Path, recorded: dict[str, Transcript], is_each_version: bool
) -> None:
    """With Kafka's console tools, where its jars are to be had."""
    brokers, with_tools = TieredTidelogs(tmp_path), has_jars()
    chosen = recorded.keys() if is_each_version else recording.oldest_and_newest(recorded)
    brokers.start()
    try:
        heard = collect(brokers, *chosen, with_tools=with_tools)
    finally:
        brokers.stop()
    of_tools = {key for key in recorded if "-console-" in key}
    assert heard.keys() == chosen - (set() if with_tools else of_tools)
    assert [line for key in heard for line in differing(recorded, key, heard[key])] == []


@pytest.mark.reference
@pytest.mark.nightly  # the recording changes with its cases alone
@pytest.mark.timeout(600)
def test_the_recording_is_what_tiered_kafkas_answer(
    tmp_path: Path, recorded: dict[str, Transcript]
) -> None:
    """JVMs that a busy machine holds up are asked again; our own brokers are not."""
    require_jars()
    brokers = TieredKafkas(tmp_path)

    def is_good(key: str, heard: Transcript) -> bool:
        return not differing(recorded, key, heard)

    brokers.start()
    try:
        heard = collect(brokers, *ASKED_AGAIN, is_good=is_good)
    finally:
        brokers.stop()
    assert len(heard) >= len(ASKED_AGAIN)
    assert [line for key in heard for line in differing(recorded, key, heard[key])] == []
