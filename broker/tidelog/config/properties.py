r"""Java's `.properties` format, in which Kafka's `server.properties` is written.

A line holds one `key=value`; `:` or blanks also separate. Lines that begin with `#` or `!` are
comments. A line that ends in a single backslash continues in the next one. `\n`, `\t`, `\r`, `\f`
and `\u0041` have their Java meaning; any other escaped character stands for itself. The last value
of a repeated key wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(data: bytes) -> dict[str, str]:
    r"""Parse the settings of a file. ConfigError for a broken `\u` escape, as in Java."""
    text = data.decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")
    properties = {}
    for line in _logical_lines(text.split("\n")):
        key, value = _split(line)
        properties[_unescape(key)] = _unescape(value)
    return properties


def _logical_lines(lines: list[str]) -> Iterator[str]:
    """Yield lines with continuations joined, without comments and blank lines."""
    joined = ""
    continues = False
    for line in lines:
        stripped = line.lstrip(_BLANKS)
        if not continues and (not stripped or stripped[0] in "#!"):
            continue
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        continues = backslashes % 2 == 1
        joined += stripped[:-1] if continues else stripped
        if not continues:
            yield joined
            joined = ""
    if joined:
        yield joined


def _split(line: str) -> tuple[str, str]:
    """Split key and value, both still escaped, at the first unescaped separator."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character if character != "\\" else "")
            continue
        escaped = text[position]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise ConfigError(text, f"Malformed \\uxxxx encoding in '{text}'")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out)
