"""JAAS entries, as Kafka's JaasConfig reads them."""

from __future__ import annotations

import pytest

from tidelog.security.jaas import MODULES, login_entry
from tidelog_storage.config_key import ConfigError

PLAIN = MODULES["PLAIN"]


def options(text: str) -> dict[str, str]:
    return login_entry("k", text, "PLAIN").options


def test_options_may_be_quoted_and_commented() -> None:
    text = f"""{PLAIN} Required // a comment
        username=admin password="a \\"b\\"; =c" /* more
        lines */ user_admin='x y';"""
    assert options(text) == {"username": "admin", "password": 'a "b"; =c', "user_admin": "x y"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "is missing"),
        ("", "0 login modules"),
        (PLAIN, "not terminated by semi-colon"),
        (f"{PLAIN};", "control flag not specified"),
        (f"{PLAIN} often;", "Invalid login module control flag"),
        (f"{PLAIN} required a;", "Value not specified"),
        (f"{PLAIN} required a=;", "Value not specified"),
        (f"{PLAIN} required; {PLAIN} required;", "2 login modules"),
        ("some.Other required hush=hush;", "some.Other is not"),
        (f'{PLAIN} required password="hush', "at character"),
    ],
)
def test_other_texts_are_refused_without_secrets(text: str | None, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        login_entry("k", text, "PLAIN")
    assert caught.value.message.startswith("k: ")
    assert "hush" not in caught.value.message


def test_an_entry_does_not_show_its_options() -> None:
    assert "hush" not in repr(login_entry("k", f"{PLAIN} required password=hush;", "PLAIN"))
