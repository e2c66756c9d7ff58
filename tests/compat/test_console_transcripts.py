"""Kafka's console tools print of tidelog what they print of Apache Kafka 4.3.1 (recorded).

`python -m compat.console --record` (with tests/ on the path) records anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat.console.allowed import ALLOWED, expected_of
from compat.console.normalise import lines_of
from compat.console.recording import FOLDER, differences, load, new_tidelog, played, recorded
from compat.console.transcripts import SESSIONS

if TYPE_CHECKING:
    from pathlib import Path

    from compat.jvm import Jvm

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]


def test_each_session_is_recorded() -> None:
    assert sorted(file.stem for file in FOLDER.glob("*.txt")) == sorted(SESSIONS)


def test_each_allowed_difference_is_one() -> None:
    for row in ALLOWED:
        assert expected_of(row.session, recorded(row.session), [row]) != recorded(row.session), row


@pytest.mark.parametrize("topic_id", ["Akn-qyXbRRSrt-9KjnDoTA", "AbcDefGhiJklMnoPqrStu_", "A" * 22])
def test_an_id_is_left_out_whatever_its_letters(topic_id: str) -> None:
    assert lines_of(f"TopicId: {topic_id}") == ["TopicId: <id>"]


def test_the_name_of_a_class_is_no_id() -> None:
    assert lines_of("UnknownServerException: of") == ["UnknownServerException: of"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if one.is_in_ci else pytest.mark.nightly)
        for name, one in SESSIONS.items()
    ],
)
def test_tools_print_what_they_print_of_kafka(name: str, java: Jvm, tmp_path: Path) -> None:
    expected, one = load(name), SESSIONS[name]
    found = played(one, new_tidelog(one, tmp_path), java, expected)
    assert "".join(differences(expected, found)) == ""
