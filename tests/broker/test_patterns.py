"""Patterns of clients: RE2's syntax, whole texts, linear time. Python's `re` is the model where
both agree."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.data_path import ManualClock
from tidelog.api.txn_admin import TxnAdminApi
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.txn_admin import ListTransactionsRequest

pytest.importorskip("re2", reason="the re2 extra is not installed")
from tidelog.config.patterns import matcher

ATOMS = st.sampled_from(
    ["a", "b", "0", "-", ".", "[ab]", "[^a]", "[0-9b]", r"\d", r"\w", r"\S", "^", "$", r"\b", r"\B"]
)
OPERATORS = st.sampled_from(["", "", "*", "+", "?", "*?", "{2}", "{1,}", "{0,2}"])


def joined(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(children, min_size=1, max_size=4)
    return st.builds(
        "({}){}".format, several.map("".join) | several.map("|".join), OPERATORS
    ) | st.builds("(?:{})".format, several.map("".join))


# An assertion with an operator is an error in Python, so operators stand behind groups alone.
# In an empty text Python finds no `\B`.
SUBJECTS = st.text("ab0- \n", min_size=1, max_size=6)
PATTERNS = st.recursive(ATOMS, joined, max_leaves=8)


@settings(max_examples=300)
@given(PATTERNS, st.lists(SUBJECTS, min_size=1, max_size=5))
def test_matches_as_re_does(text: str, subjects: list[str]) -> None:
    matches = matcher(text)
    # Where `$` also stands before a last line feed, Python means what RE2 calls `$` no more.
    model = re.compile(text.replace("$", r"\Z"), re.ASCII)
    for subject in subjects:
        assert matches(subject) == (model.fullmatch(subject) is not None), subject


@pytest.mark.parametrize(
    "text",
    [
        *("(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", "(?>a)", "(?#a)", r"(a)\1", r"\8", "(?P=n)"),
        *("*", "a**", "a++", "a*+", "a{2}{3}", "a{2,1}", "a{1001}", "(?i)*", "(?x)a", "(?-)"),
        *("(", ")", "a)", "(a", "[a", "[z-a]", "[[:foo:]]", r"\p{Grek}", r"\pX"),
        *("(?P<>a)", "(?P<n", "(?P<a-b>a)", "\\", r"\u0041", r"\x4", r"\x{}"),
        *(r"\x{110000}", r"\Z", r"\é", "((a{1000}){1000}){1000}"),
        *(r"a\C", r"[\]]\C", r"\Qa\E\C", "(?P<n>a)(?<n>b)"),
    ],
)
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        matcher(text)


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("", "", "a"),
        ("a{", "a{", "a"),
        ("a{,2}", "a{,2}", "aa"),
        ("[]a]+", "]a]", "b"),
        ("[^]a]", "b", "]"),
        ("[a&&b]+", "a&b", "c"),
        (r"[\w.-]+", "a.b-c", "a b"),
        ("[[:alpha:][:digit:]]+", "a1", "a_"),
        ("[[:^upper:]]+", "a1", "aB"),
        (r"\pL\p{Nd}\P{L}\p{^L}", "é1__", "1é__"),
        (r"\Qa.b\E+", "a.bb", "axb"),
        (r"\Qa*", "a*", "aa"),
        (r"\x{1f600}\x41\101\07\-", "\U0001f600AA\a-", "A"),
        ("(?i)straße|K", "STRAßE", "strasse"),
        ("(?i:A)b", "ab", "aB"),
        ("((?i)a)b", "Ab", "AB"),
        ("(?s).(?-s:.)", "\na", "a\n"),
        ("(?m)^a$\n^b$", "a\nb", "a\n"),
        ("^a$", "a", "a\n"),
        (r"\Aa\z", "a", "a\n"),
        ("(?P<x>a)(?<y>b)", "ab", "a"),
        ("(a|ab)(c|bcd)", "abcd", "abd"),
        ("()*a|", "a", "b"),
        (r"\w+", "abc", "é"),
        (r"\p{Greek}", "λ", "l"),
        (r"\QC\C\E\\C", r"C\C\C", "C"),
        ("[(?P<n>][](?P<n>](?P<n>a)(?P<m>b)", "(]ab", "ab"),
    ],
)
def test_what_a_pattern_means(text: str, yes: str, no: str) -> None:
    matches = matcher(text)
    assert matches(yes)
    assert not matches(no)


def test_many_groups_take_little_memory() -> None:
    assert matcher("(" * 1000 + "a" + ")" * 1000)("a")


def test_without_google_re2_a_pattern_is_unsupported_and_the_log_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "tidelog.config.patterns", raising=False)
    monkeypatch.setitem(sys.modules, "re2", None)
    coordinator = SimpleNamespace(led=SimpleNamespace(is_loading=False, active=list))
    api: Any = TxnAdminApi(SimpleNamespace(coordinator=coordinator), None, ManualClock())
    answer = api.list(None, ListTransactionsRequest(transactional_id_pattern="a.*"))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "pip install 'tidelog[re2]'" in caplog.text
    assert api.list(None, ListTransactionsRequest()).error_code == ErrorCode.NONE


def test_nasty_patterns_take_no_longer_than_others() -> None:
    """With backtracking this would not end."""
    for text in ("(a+)+b", "(a|a)*b", "(a*)*b", "(a|aa)+b", "(.*)*(.*)*(.*)*b"):
        assert not matcher(text)("a" * 5000)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(", "missing closing )"),
        ("[a", "missing closing ]"),
        ("*", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("[z-a]", "invalid character class range"),
        ("(?P<n", "invalid named capture"),
        ("(?<=a)b", "invalid named capture"),
        ("(?z)", "invalid or unsupported Perl syntax"),
        (r"\8", "invalid escape sequence"),
        (r"\C", "invalid escape sequence"),
        ("(?<n>a)|(?P<n>b)", "duplicate capture group name"),
        ("\\", "trailing backslash at end of expression"),
    ],
)
def test_reasons_are_those_of_java(text: str, reason: str) -> None:
    """Those of RE2/J 1.8, which Kafka 4.3.1 answers."""
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        matcher(text)
