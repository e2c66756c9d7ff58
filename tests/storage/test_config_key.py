"""The vocabulary of settings: every type, both ways."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_storage.config_key import (
    REQUIRED,
    ConfigError,
    ConfigKey,
    boolean,
    collect_keys,
    double,
    integer,
    long,
    refuse,
    string,
    strings,
)

short: Any = partial(ConfigKey, "SHORT")
class_name: Any = partial(ConfigKey, "CLASS")
password: Any = partial(ConfigKey, "PASSWORD", sensitive=True)


class Table:
    a_flag: bool = boolean(True, "A flag.")
    a_short: int = short(1, "A short.")
    an_int: int = integer(REQUIRED, "An int.")
    a_long: int | None = long(None, "A long.")


class Longer(Table):
    a_ratio: float = double(0.5, "A ratio.")
    a_text: str = string("x", "A text.")
    a_class: str = class_name("a.B", "A class.")
    a_secret: str = password("s", "A secret.")
    a_list: list[str] = strings([], "A list.")


KEYS = collect_keys(Longer)


def test_keys_in_order_under_kafka_names() -> None:
    assert list(KEYS) == [
        "a.flag",
        "a.short",
        "an.int",
        "a.long",
        "a.ratio",
        "a.text",
        "a.class",
        "a.secret",
        "a.list",
    ]
    assert [name for name, key in KEYS.items() if key.required] == ["an.int"]
    assert [name for name, key in KEYS.items() if key.sensitive] == ["a.secret"]


@pytest.mark.parametrize(
    ("name", "largest"),
    [("a.short", 2**15 - 1), ("an.int", 2**31 - 1), ("a.long", 2**63 - 1)],
)
def test_ranges_of_the_integer_types(name: str, largest: int) -> None:
    key = KEYS[name]
    assert key.parse(str(largest)) == largest
    assert key.parse(str(-largest - 1)) == -largest - 1
    assert key.parse("0" * 50 + "7") == 7
    for text in (str(largest + 1), str(-largest - 2), "9" * 5000, "", "-", "1.0", "\u0661"):
        with pytest.raises(ConfigError, match="Not a number of type"):
            key.parse(text)


@pytest.mark.parametrize("text", ["", "x", "1_0", "0x1", "1.5x", "f"])
def test_no_doubles(text: str) -> None:
    with pytest.raises(ConfigError, match="Not a number of type DOUBLE"):
        KEYS["a.ratio"].parse(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("x", "x"),
        (True, "true"),
        (False, "false"),
        (["a", "b"], "a,b"),
        ([], ""),
        (5, "5"),
        (0.5, "0.5"),
    ],
)
def test_format(value: object, text: str | None) -> None:
    assert ConfigKey.format(value) == text


@settings(derandomize=True, max_examples=60)
@given(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.booleans())
def test_parse_reads_what_format_writes(number: int, ratio: float, flag: bool) -> None:
    for name, value in (("a.long", number), ("a.ratio", ratio), ("a.flag", flag)):
        text = ConfigKey.format(value)
        assert text is not None
        assert KEYS[name].parse(text) == value


def test_text_is_trimmed_and_lists_are_split() -> None:
    assert KEYS["a.text"].parse("  x y ") == "x y"
    assert KEYS["a.class"].parse(" a.B ") == "a.B"
    assert KEYS["a.list"].parse(" a , b,,c ") == ["a", "b", "", "c"]


def test_the_words_of_a_refusal() -> None:
    error = refuse("a.list", ["a", "b"], "Why")
    assert (error.key, error.message) == (
        "a.list",
        "Invalid value [a, b] for configuration a.list: Why",
    )
