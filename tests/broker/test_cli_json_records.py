"""Records as lines of JSON: what `consume --json` prints, `produce --json` writes again."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.common import CommandError
from tidelog.cli.json_records import JsonRecord, parse, to_line

DATA = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
HEADERS = st.lists(st.tuples(st.text(max_size=5), DATA), max_size=3)


@given(key=DATA, value=DATA, headers=HEADERS, timestamp=st.integers(0, (1 << 63) - 1))
def test_a_record_comes_back_as_it_was(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp: int,
) -> None:
    record = SimpleNamespace(
        topic="t",
        partition=3,
        offset=7,
        timestamp=timestamp,
        key=key,
        value=value,
        headers=tuple(headers),
    )
    line = to_line(record)
    assert "\n" not in line
    assert parse(line.encode()) == JsonRecord(key, value, headers, timestamp, 3)


def test_text_is_text_and_other_bytes_are_base64() -> None:
    record = SimpleNamespace(
        topic="t",
        partition=0,
        offset=0,
        timestamp=5,
        key="ü".encode(),
        value=b"\xff\x00",
        headers=[("h", b"1"), ("h", None)],
    )
    assert json.loads(to_line(record)) == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": 5,
        "key": "ü",
        "value": {"base64": "/wA="},
        "headers": [["h", "1"], ["h", None]],
    }


def test_missing_fields_are_null_and_minus_one_is_no_timestamp() -> None:
    assert parse(b'{"timestamp": -1}') == JsonRecord(None, None, [], None, None)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"{", "the line is not JSON"),
        (b"\xff", "the line is not JSON"),
        (b"[" * 100_000, "the line is not JSON"),
        (b"[1]", "the line is not a JSON object"),
        (b'{"valuee": "x"}', "there is no field 'valuee'; did you mean value?"),
        (b'{"value": 1}', "value is not null, a string"),
        (b'{"value": {"base64": "="}}', "value is not null, a string"),
        (b'{"value": {"base64": 1}}', "value is not null, a string"),
        (b'{"value": "\\ud800"}', "value is not null, a string"),
        (b'{"headers": {"h": "x"}}', "headers is not a list"),
        (b'{"headers": [["h"]]}', "headers is not a list"),
        (b'{"headers": [["h", 1]]}', "header 'h' is not null, a string"),
        (b'{"timestamp": 1.5}', "timestamp is not a number from 0 to"),
        (b'{"timestamp": true}', "timestamp is not a number from 0 to"),
        (b'{"partition": -2}', "partition is not a number from 0 to 2147483647"),
    ],
)
def test_a_line_that_is_no_record_is_refused(line: bytes, text: str) -> None:
    with pytest.raises(CommandError) as refused:
        parse(line)
    assert str(refused.value).startswith(text)
