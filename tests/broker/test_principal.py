"""Principals and their text."""

from __future__ import annotations

import pytest

from tidelog.security.principal import ANONYMOUS, Principal


def test_text_is_type_and_name() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert Principal.parse("User:CN=a:b,O=c") == Principal("User", "CN=a:b,O=c")


@pytest.mark.parametrize("text", [":alice", "User:", ":", "User::", "a:b:c"])
def test_a_type_or_a_name_may_be_empty(text: str) -> None:
    """SecurityUtils.parseKafkaPrincipal takes them, and Kafka stores them in tokens."""
    assert str(Principal.parse(text)) == text


def test_a_text_without_a_colon_is_a_name() -> None:
    assert Principal.parse("alice") == Principal("", "alice")
    assert Principal.parse("") == Principal("", "")
