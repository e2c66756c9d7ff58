"""The user's name that a client's certificate has.

A certificate's subject in the form of RFC 2253, as Java writes it, then the rules of
`ssl.principal.mapping.rules`: the first that matches gives the name (SslPrincipalMapper).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NameRules", "distinguished_name"]

_KEYWORDS = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
# Others are object identifiers, with their value as DER: its tag.
_NUMBERED = {
    "emailAddress": ("1.2.840.113549.1.9.1", 0x16),
    "serialNumber": ("2.5.4.5", 0x13),
    "title": ("2.5.4.12", 0x0C),
    "givenName": ("2.5.4.42", 0x0C),
    "surname": ("2.5.4.4", 0x0C),
}
_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)")
_SPLIT = re.compile(rf"\s*({_RULE.pattern})\s*(,\s*|$)")


def distinguished_name(subject: Sequence[Sequence[tuple[str, str]]]) -> str:
    """Return the name of a subject as `ssl.SSLSocket.getpeercert` gives it, its last part first."""
    return ",".join("+".join(_attribute(*each) for each in part) for part in reversed(subject))


def _attribute(name: str, value: str) -> str:
    numbered = _NUMBERED.get(name)
    if numbered is not None:
        number, tag = numbered
        data = value.encode()
        return f"{number}=#{tag:02x}{_der_length(len(data)).hex()}{data.hex()}"
    text = re.sub(r'([,=+<>#;"\\])', r"\\\1", value)
    if text.startswith(" "):
        text = f"\\{text}"
    if text.endswith(" "):
        text = f"{text[:-1]}\\ "
    return f"{_KEYWORDS.get(name, name)}={text}"


def _der_length(size: int) -> bytes:
    if size < 0x80:
        return bytes((size,))
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((0x80 | len(digits),)) + digits


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None  # None: the name as it is
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        result = _expand(self.replacement, match)
        return {"L": result.lower(), "U": result.upper()}.get(self.case, result)


class NameRules:
    """The rules of `ssl.principal.mapping.rules`."""

    def __init__(self, text: str, key: str = "ssl.principal.mapping.rules") -> None:
        """ConfigError if a rule is invalid."""
        self._rules = [
            rule for each in _SPLIT.finditer(text.strip()) if (rule := _parsed(each[1], key))
        ]

    def name_of(self, subject: Sequence[Sequence[tuple[str, str]]] | Any) -> str | None:
        """Return the user's name of a certificate's subject; None if no rule matches."""
        name = distinguished_name(subject)
        return next((found for rule in self._rules if (found := rule.apply(name))), None)


def _parsed(text: str, key: str) -> _Rule | None:
    match = _RULE.match(text)
    if text == "DEFAULT":
        return _Rule(None, "", "")
    if match is None or match[2] is None:
        if text:
            raise ConfigError(key, f"{key}: Invalid rule: {text}")
        return None  # as in Kafka
    # Its end is lazy: it takes in what is behind the slash when the whole text is one rule.
    case = text[match.end(3) + 1 :].strip()
    if case not in ("", "L", "U"):
        raise ConfigError(key, f"{key}: Invalid rule: `{text}`, unmatched substring: `{case}`")
    try:
        return _Rule(re.compile(match[2]), match[3], case)
    except re.error as error:
        raise ConfigError(key, f"{key}: Invalid rule: {text}: {error}") from None


def _expand(replacement: str, match: re.Match[str]) -> str:
    """Put groups in the place of $1 ...; a number without a group stands for itself."""

    def group(reference: re.Match[str]) -> str:
        if reference[1] is not None:
            return reference[1]  # an escaped character
        digits = reference[2]
        for length in range(len(digits), 0, -1):
            number = int(digits[:length])
            if 0 <= number <= match.re.groups:
                return (match[number] or "") + digits[length:]
        return f"${digits}"

    return re.sub(r"\\(.)|\$(\d+)", group, replacement)
