"""Formats of keys and values: what `produce` reads and `consume` prints instead of text.

Numbers are big-endian, as Kafka's serializers write them. Each format has two forms: a value in
JSON, for `--json`, and a text, for lines.
"""

# ruff: noqa: PLC0415 - each format needs its own module

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.common import CommandError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["NAMES", "TEXT", "Format", "Formats", "add_options", "formats_of"]

_LETTERS = {"short": "h", "int": "i", "long": "q", "float": "f", "double": "d"}
NAMES = ("string", "base64", "hex", "json", *_LETTERS)


class Format(NamedTuple):
    """How bytes are shown as a JSON value and read from one; both raise ValueError."""

    name: str
    shown: Callable[[bytes], Any]
    read: Callable[[Any], bytes]

    def to_json(self, data: bytes | None, what: str) -> Any:
        """Return the value in JSON; CommandError if the bytes are not of this format."""
        if data is None:
            return None
        try:
            return self.shown(data)
        except (ValueError, RecursionError):
            option = what.replace("the ", "--")
            text = f"{what} is not {self.name}; read it with {option}-format base64"
            raise CommandError(text) from None

    def to_text(self, data: bytes, what: str) -> str:
        """Return the text for a line; CommandError as `to_json`."""
        value = self.to_json(data, what)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def from_json(self, value: Any, what: str) -> bytes | None:
        """Return the bytes of a value in JSON; CommandError if it is not of this format."""
        if value is None:
            return None
        try:
            return self.read(value)
        except (ValueError, OverflowError, RecursionError):
            raise CommandError(f"{what} {_short(value)} is not {self.name}") from None

    def from_text(self, text: bytes, what: str) -> bytes:
        """Return the bytes of a text; CommandError as `from_json`."""
        given: Any = text
        try:
            given = text.decode()
            if self.name not in ("base64", "hex"):
                given = json.loads(given)
        except (ValueError, RecursionError):
            raise CommandError(f"{what} {_short(given)} is not {self.name}") from None
        if self.name == "json":
            return text  # as it was written
        data = self.from_json(given, what)
        if data is None:
            raise CommandError(f"{what} null is not {self.name}")
        return data


class Formats(NamedTuple):
    """The formats of keys and of values; None stands for text."""

    key: Format | None
    value: Format | None


TEXT = Formats(None, None)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add --key-format and --value-format."""
    for part in ("key", "value"):
        parser.add_argument(
            f"--{part}-format",
            choices=NAMES,
            default="string",
            help=f"what {part}s are (string); numbers are big-endian",
        )


def formats_of(options: argparse.Namespace) -> Formats:
    """Return the formats that were asked for."""
    return Formats(_format(options.key_format), _format(options.value_format))


def _format(name: str) -> Format | None:
    match name:
        case "string":
            return None
        case "base64":
            return Format(name, _show_base64, _read_base64)
        case "hex":
            return Format(name, bytes.hex, _read_hex)
        case "json":
            return Format(name, json.loads, _read_json)
    return _number(name, _LETTERS[name])


def _show_base64(data: bytes) -> str:
    from base64 import b64encode

    return b64encode(data).decode("ascii")


def _read_base64(value: Any) -> bytes:
    from base64 import b64decode

    return b64decode(_string(value), validate=True)


def _read_hex(value: Any) -> bytes:
    return bytes.fromhex(_string(value))


def _read_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _number(name: str, letter: str) -> Format:
    from math import isfinite
    from struct import Struct, error

    form = Struct(f">{letter}")

    def show(data: bytes) -> Any:
        if len(data) != form.size:
            raise ValueError
        (number,) = form.unpack(data)
        return number if isfinite(number) else str(number)  # JSON has no NaN

    def read(value: Any) -> bytes:
        is_real = letter in "fd"
        if type(value) is not int and not (is_real and isinstance(value, float | str)):
            raise ValueError
        try:
            return form.pack(float(value) if is_real else value)
        except error:
            raise ValueError from None

    return Format(name, show, read)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
