"""Formats of keys and values: the same bytes come back, as text and in JSON."""

from __future__ import annotations

import json
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from support.processes import COMMAND, Start, ended
from tidelog.__main__ import main
from tidelog.cli.common import CommandError
from tidelog.cli.formats import NAMES, Format, formats_of
from tidelog.cli.json_records import parse, to_line

SIZES = {"short": 2, "int": 4, "long": 8, "float": 4, "double": 8}


def form(name: str) -> Format:
    found = formats_of(Namespace(key_format="string", value_format=name)).value
    assert found is not None
    return found


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("string", "json")])
@given(data=st.data())
def test_bytes_come_back_from_text_and_from_json(name: str, data: st.DataObject) -> None:
    size = SIZES.get(name)
    sizes = {"max_size": 20} if size is None else {"min_size": size, "max_size": size}
    given_bytes = data.draw(st.binary(**sizes))
    made = form(name)
    shown = json.loads(json.dumps(made.to_json(given_bytes, "the value"), allow_nan=False))
    again = made.from_json(shown, "value")
    text = made.to_text(given_bytes, "the value")
    if shown not in ("nan", "-nan"):  # a NaN comes back as one, not with its other bits
        assert again == given_bytes
    if not isinstance(shown, str) or size is None:
        assert made.from_text(text.encode(), "value") == given_bytes


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(value=JSON)
def test_json_is_json_and_as_text_the_same_bytes(value: Any) -> None:
    made = form("json")
    data = json.dumps(value, indent=1).encode()
    shown = made.to_json(data, "the value")
    assert shown == value
    if value is not None:
        assert json.loads(made.from_json(shown, "value") or b"") == value
    assert made.from_text(data, "value") == data


@pytest.mark.parametrize(
    ("name", "text", "data"),
    [
        ("long", "-2", b"\xff\xff\xff\xff\xff\xff\xff\xfe"),
        ("int", "258", b"\x00\x00\x01\x02"),
        ("short", "1", b"\x00\x01"),
        ("double", "0.5", b"\x3f\xe0\x00\x00\x00\x00\x00\x00"),
        ("float", "2", b"\x40\x00\x00\x00"),
        ("hex", "00ff", b"\x00\xff"),
        ("base64", "AP8=", b"\x00\xff"),
    ],
)
def test_numbers_are_big_endian_as_kafkas(name: str, text: str, data: bytes) -> None:
    assert form(name).from_text(text.encode(), "value") == data


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("short", b"32768"),
        ("long", b"1.5"),
        ("int", b"true"),
        ("int", b"x"),
        ("double", b'"x"'),
        ("float", b"1e39"),
        ("long", b"null"),
        ("json", b"{"),
        ("hex", b"0g"),
        ("base64", b"A"),
        ("hex", b"\xff"),
    ],
)
def test_what_is_not_of_a_format_is_refused(name: str, text: bytes) -> None:
    with pytest.raises(CommandError, match=rf"^the value .* is not {name}$"):
        form(name).from_text(text, "the value")


def test_other_bytes_are_refused_with_a_format_that_takes_them() -> None:
    wanted = "the value is not long; read it with --value-format base64"
    with pytest.raises(CommandError, match=wanted):
        form("long").to_json(b"abc", "the value")


def test_a_line_of_json_has_the_formats_of_both_sides() -> None:
    forms = formats_of(Namespace(key_format="long", value_format="json"))
    record = SimpleNamespace(
        topic="t",
        partition=0,
        offset=0,
        timestamp=5,
        key=(7).to_bytes(8, "big"),
        value=b'{"a": [1]}',
        headers=[("h", b"\xff")],
    )
    line = to_line(record, forms)
    shown = json.loads(line)
    assert (shown["key"], shown["value"]) == (7, {"a": [1]})
    read = parse(line.encode(), forms)
    assert (read.key, read.value, read.headers) == (record.key, record.value, record.headers)
    assert parse(b'{"value": null}', forms).value is None


def test_produce_and_consume_take_formats(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    with tidelog.run() as cluster:
        server = cluster.bootstrap_servers
        words = ("-b", server, "numbers", "--key-format", "long", "--value-format", "hex")
        produce = start(*COMMAND, "produce", *words, "--key-separator", "=")
        assert ended(produce, "7=00ff\n-1=\n")[0] == 0
        wrong = start(*COMMAND, "produce", *words, "--key-separator", "=")
        assert ended(wrong, "x=00\n")[2] == "tidelog produce: line 1: the key 'x' is not long\n"
        read = ["consume", *words, "--from-beginning", "--until-end"]
        assert main([*read, "--key", "="]) == 0
        assert capsys.readouterr().out.splitlines() == ["7=00ff", "-1="]
        assert main([*read[:-3], "json", "--from-beginning", "--until-end"]) == 1
        assert capsys.readouterr().err == (
            "tidelog consume: numbers-0, offset 0: the value is not json;"
            " read it with --value-format base64\n"
        )
