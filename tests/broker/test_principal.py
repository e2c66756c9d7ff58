"""Principals and their text."""

from __future__ import annotations

import pytest

from tidelog.security.principal import ANONYMOUS, Principal


def test_text_is_type_and_name() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert Principal.parse("User:CN=a:b,O=c") == Principal("User", "CN=a:b,O=c")


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="principalType:principalName"):
        Principal.parse(text)
