"""JAAS entries as `sasl.jaas.config` has them: `module flag option=value ...;` (JaasConfig)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MODULES", "LoginEntry", "login_entry"]

_SECURITY = "org.apache.kafka.common.security"
MODULES: Mapping[str, str] = {
    "PLAIN": f"{_SECURITY}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_SECURITY}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_SECURITY}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule",
}
"""The login module of each mechanism."""

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/               # blanks and comments
    |"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'  # quoted
    |([\w.$\-]+)|([=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class LoginEntry(NamedTuple):
    """One login module and its options; they may be secrets."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"LoginEntry({self.module})"


def login_entry(key: str, text: str | None, mechanism: str) -> LoginEntry:
    """Return the entry that the setting `key` has for a mechanism; ConfigError without its text,
    which may be a secret."""
    if text is None:
        raise ConfigError(key, f"{key}: is missing, and {mechanism} is enabled")
    entries = _entries(key, text)
    if len(entries) != 1:
        count = f"{len(entries)} login modules"
        raise ConfigError(key, f"{key}: JAAS config property contains {count}, should be 1 module")
    module = entries[0].module
    if module != MODULES[mechanism]:
        raise ConfigError(key, f"{key}: {module} is not {MODULES[mechanism]}, that of {mechanism}")
    return entries[0]


def _entries(key: str, text: str) -> list[LoginEntry]:
    entries, words = [], list[str | None]()
    for word in _words(key, text):
        if word != ";":
            words.append(word)
            continue
        entries.append(_entry(key, words))
        words = []
    if words:
        raise ConfigError(key, f"{key}: JAAS config entry not terminated by semi-colon")
    return entries


def _entry(key: str, words: list[str | None]) -> LoginEntry:
    if len(words) < 2 or words[0] is None or words[1] is None:
        raise ConfigError(key, f"{key}: Login module control flag not specified in JAAS config")
    if words[1][1:].lower() not in _FLAGS:
        raise ConfigError(key, f"{key}: Invalid login module control flag in JAAS config")
    options, rest = dict[str, str](), words[2:]
    while rest:
        name, equals, value = (*rest[:3], None, None, None)[:3]
        if name is None or equals != "=" or value is None or value == "=":
            raise ConfigError(key, f"{key}: Value not specified for a key in JAAS config")
        options[name[1:]] = value[1:]
        rest = rest[3:]
    return LoginEntry(words[0][1:], options)


def _words(key: str, text: str) -> list[str]:
    """Return the words, each behind a mark that tells it from the signs `=` and `;`."""
    words, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ConfigError(key, f"{key}: not in the form of JAAS at character {position}")
        position = match.end()
        quoted = match[1] if match[1] is not None else match[2]
        if quoted is not None:
            words.append("'" + re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), quoted))
        elif match[3] is not None:
            words.append(f"'{match[3]}")
        elif match[4] is not None:
            words.append(match[4])
    return words
