"""What a long operation has done, and the waves in which it works."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_pipeline.operations.journal import WAVE_BYTES, WAVES_MAX, Journal, waves

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_added_is_there_after_a_kill_and_another_question_begins_anew(
    tmp_path: Path,
) -> None:
    file = tmp_path / "folder" / "unfinished.jsonl"
    one = Journal(file, {"of": "a topic"})
    assert not file.parent.exists()
    one.add({"a": [1, None]})
    one.add({"b": "text", "c": {}})
    done = {"a": [1, None], "b": "text", "c": {}}
    with file.open("a") as stream:
        stream.write('["d", 4')
    again = Journal(file, {"of": "a topic"})
    assert again.done == done
    again.add({"d": 5})
    assert Journal(file, {"of": "a topic"}).done == done | {"d": 5}
    other = Journal(file, {"of": "another one"})
    assert other.done == {}
    other.add({"e": 6})
    assert Journal(file, {"of": "a topic"}).done == {}
    assert Journal(file, {"of": "another one"}).done == {"e": 6}
    assert [each.name for each in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("text", ["", "x", '{"of": 1}\n[1]\n', '{"of": 1}\nx\n', '{"of": 1}\n7\n'])
def test_a_damaged_file_counts_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "unfinished.jsonl"
    file.write_text(text)
    assert Journal(file, {"of": 1}).done == {}
    file.write_bytes(b"\xff\xfe")
    assert Journal(file, {"of": 1}).done == {}


def test_without_a_file_nothing_is_kept() -> None:
    journal = Journal(None, {})
    journal.add({"a": 1})
    assert journal.done == {"a": 1}


@given(st.lists(st.integers(0, 3 * WAVE_BYTES), max_size=60), st.integers(1, 100))
def test_waves_have_each_item_once_and_are_few_and_large(sizes: list[int], factor: int) -> None:
    sizes = [size * factor for size in sizes]
    found = waves(sizes, lambda size: size)
    assert [size for wave in found for size in wave] == sizes
    assert all(found)
    assert len(found) <= WAVES_MAX + 1
    for one, other in pairwise(found):
        assert sum(one) + sum(other) >= min(WAVE_BYTES, sum(sizes) // WAVES_MAX)
