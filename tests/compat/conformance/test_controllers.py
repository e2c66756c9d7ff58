"""tidelog's controllers answer as Kafka's do: against the recording, and it against Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat.conformance import recording
from compat.conformance.compare import differences
from compat.conformance.controllers import RECORDED, collect, tidelog_node
from compat.jvm import require_jars
from compat.reference import ApacheKafka

if TYPE_CHECKING:
    from pathlib import Path

    from compat.conformance.controllers import Node
    from compat.conformance.runner import Transcript


@pytest.fixture(scope="module")
def recorded() -> dict[str, Transcript]:
    return recording.load(RECORDED)


def unlike(node: Node, recorded: dict[str, Transcript], *, again: bool) -> list[str]:
    """All differences from the recording; with `again`, those of runs that differ twice."""
    node.start()
    try:
        heard = collect(node)
        if again:
            wrong = [key for key, one in recorded.items() if differences(key, one, heard[key])]
            heard |= collect(node, *wrong, nonce=".again") if wrong else {}
    finally:
        node.stop()
    assert heard.keys() >= recorded.keys(), "not every run was carried out"
    return [
        str(one) for key, kept in recorded.items() for one in differences(key, kept, heard[key])
    ]


@pytest.mark.compat
@pytest.mark.timeout(300)
def test_a_controller_answers_as_kafkas_did(
    tmp_path: Path, recorded: dict[str, Transcript]
) -> None:
    assert unlike(tidelog_node(tmp_path), recorded, again=False) == []


@pytest.mark.reference
@pytest.mark.nightly  # the recording changes with its cases alone
@pytest.mark.timeout(600)
def test_the_recording_is_what_kafkas_controller_answers(
    tmp_path: Path, recorded: dict[str, Transcript]
) -> None:
    require_jars()
    assert unlike(ApacheKafka(tmp_path), recorded, again=True) == []
