"""Java's properties format; the expected values are what java.util.Properties gives."""

from __future__ import annotations

import pytest

from tidelog.config.properties import parse_properties
from tidelog_storage.config_key import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("  a = 1  ", {"a": "1  "}),
        ("a:1\nb 2\nc\t3\nd  :  4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=v", {"": "v"}),
        ("a==b", {"a": "=b"}),
        ("a= =b", {"a": "=b"}),
        ("# c\n! d\n\n   # e\na=1", {"a": "1"}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        ("a=1\\\n   2\\\n\t3", {"a": "123"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("# a comment does not go on\\\na=1", {"a": "1"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a\\ b=1\nc\\=d=2\ne\\:f:3", {"a b": "1", "c=d": "2", "e:f": "3"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u0041\\u00e9", {"a": "A\u00e9"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("", {}),
    ],
)
def test_lines(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text.encode("latin-1")) == expected


def test_bytes_are_latin_1() -> None:
    assert parse_properties(b"a=\xe9") == {"a": "\u00e9"}


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "a=\\u+123"])
def test_broken_unicode_escape(text: str) -> None:
    with pytest.raises(ConfigError, match="Malformed"):
        parse_properties(text.encode())
