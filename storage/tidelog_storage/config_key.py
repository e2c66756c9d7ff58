"""The functions that declare settings, once and typed: a class body is the table of its keys.

`segment_bytes: int = integer(1073741824, "…", low=1048576)` declares Kafka's `segment.bytes`. The
functions give a `ConfigKey` and are typed `Any`, so that type checkers see the attribute as its
value. Texts of errors are those of Kafka's ConfigDef, because tools show them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_storage.base_error import TidelogError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LOW, MEDIUM, HIGH = "LOW", "MEDIUM", "HIGH"
REQUIRED = object()
"""Default of a key that must be given."""


class ConfigError(TidelogError):
    """An invalid setting: `key` is its name, `message` one line for the user."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
        self.message = message


class Synonym(NamedTuple):
    """A broker setting that gives a topic setting its default, in other units perhaps."""

    name: str
    factor: int = 1  # topic value = broker value * factor


class ConfigKey:
    """One declared setting. `name` is filled in by `collect_keys` from the attribute's name."""

    name: str = ""
    low: float | None = None
    high: float | None = None
    choices: Sequence[str] = ()
    check: Callable[[str, Any], None] | None = None
    """(name, value): raises ConfigError; for rules beyond range and choice."""
    unique: bool = False  # repeated entries of a list are dropped
    importance: str = MEDIUM
    synonyms: Sequence[Synonym] = ()  # the first one set applies
    sensitive: bool = False
    internal: bool = False  # accepted, never described

    def __init__(self, type_name: str, default: object, documentation: str, **options: Any) -> None:
        """`options` are the attributes above, where they differ."""
        self.type_name = type_name
        self.default = default
        self.documentation = documentation
        for option, value in options.items():
            assert hasattr(ConfigKey, option), f"{option} is no option of a setting"
            setattr(self, option, value)

    @property
    def required(self) -> bool:
        """Whether the key has no default."""
        return self.default is REQUIRED

    def parse(self, text: str) -> Any:
        """Parse a setting's text; ConfigError with Kafka's text if it is invalid."""
        value = _PARSERS[self.type_name](self.name, text)
        if isinstance(value, list):
            if self.unique:
                value = list(dict.fromkeys(value))
            for item in value:
                self._check_item(item)
        else:
            self._check_item(value)
        if self.check is not None:
            self.check(self.name, value)
        return value

    def _check_item(self, value: Any) -> None:
        if value == "" and self.choices and self.unique:
            raise ConfigError(self.name, f"Configuration '{self.name}' values must not be empty.")
        if self.low is not None and value < self.low:
            raise refuse(self.name, value, f"Value must be at least {self.low}")
        if self.high is not None and value > self.high:
            raise refuse(self.name, value, f"Value must be no more than {self.high}")
        if self.choices and value not in self.choices:
            raise refuse(self.name, value, f"String must be one of: {', '.join(self.choices)}")

    @staticmethod
    def format(value: object) -> str | None:
        """Format a value as in DescribeConfigs; `parse` reads it back."""
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list):
            return ",".join(value)
        return str(value)


def refuse(name: str, value: object, reason: str) -> ConfigError:
    """Raise the error for an invalid value, with the text of Kafka's ConfigException."""
    if isinstance(value, list):
        value = f"[{', '.join(value)}]"
    return ConfigError(name, f"Invalid value {value} for configuration {name}: {reason}")


def collect_keys(owner: type, kind: type[ConfigKey] = ConfigKey) -> dict[str, ConfigKey]:
    """Return all keys declared in a class and its bases, by Kafka name, in order of declaration."""
    keys: dict[str, ConfigKey] = {}
    for room in reversed(owner.__mro__):
        for attribute, key in vars(room).items():
            if isinstance(key, kind):
                key.name = attribute.replace("_", ".")
                keys[key.name] = key
    return keys


# -- parsing ---------------------------------------------------------------------------------------


def _parse_boolean(name: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise refuse(name, text, "Expected value to be either true or false")
    return lowered == "true"


def _integer_parser(type_name: str, bits: int) -> Callable[[str, str], int]:
    bound = 1 << (bits - 1)

    def parse(name: str, text: str) -> int:
        trimmed = text.strip()
        digits = trimmed[1:] if trimmed[:1] in ("-", "+") else trimmed
        # A long string of digits is not converted: Python refuses it with another text.
        if digits.isascii() and digits.isdigit() and len(digits) < 100:
            number = int(trimmed)
            if -bound <= number < bound:
                return number
        raise refuse(name, text, f"Not a number of type {type_name}")

    return parse


def _parse_double(name: str, text: str) -> float:
    trimmed = text.strip()
    if trimmed[-1:] in ("f", "F", "d", "D") and trimmed[-2:-1].isdigit():
        trimmed = trimmed[:-1]  # Java's literals may carry their type
    try:
        if "_" not in trimmed:
            return float(trimmed)
    except ValueError:
        pass
    raise refuse(name, text, "Not a number of type DOUBLE")


def _parse_string(_name: str, text: str) -> str:
    return text.strip()


def _parse_list(_name: str, text: str) -> list[str]:
    trimmed = text.strip()
    return [item.strip() for item in trimmed.split(",")] if trimmed else []


_PARSERS: Mapping[str, Callable[[str, str], Any]] = {
    "BOOLEAN": _parse_boolean,
    "SHORT": _integer_parser("SHORT", 16),
    "INT": _integer_parser("INT", 32),
    "LONG": _integer_parser("LONG", 64),
    "DOUBLE": _parse_double,
    "STRING": _parse_string,
    "CLASS": _parse_string,
    "PASSWORD": _parse_string,
    "LIST": _parse_list,
}


# -- declarations ----------------------------------------------------------------------------------


boolean: Any = partial(ConfigKey, "BOOLEAN")
integer: Any = partial(ConfigKey, "INT")
long: Any = partial(ConfigKey, "LONG")
double: Any = partial(ConfigKey, "DOUBLE")
string: Any = partial(ConfigKey, "STRING")  # surrounding blanks are cut
strings: Any = partial(ConfigKey, "LIST")  # separated by commas
