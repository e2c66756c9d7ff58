"""Words in which `config_keys.py` declares the broker's settings, one typed line per key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LOW, MEDIUM, HIGH = "LOW", "MEDIUM", "HIGH"
# How a key may change while the broker runs (Kafka's dynamic update modes).
READ_ONLY, PER_BROKER, CLUSTER_WIDE = "read-only", "per-broker", "cluster-wide"

_REQUIRED = object()
_INERT = " Accepted for Kafka's sake, without effect here."


class ConfigError(Exception):
    """A setting that cannot be: `key` is its name, the text one line for the person who set it."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
        self.message = message


class BrokerKey:
    """One declared setting. `name` is filled in by `BrokerConfig` from the attribute's name."""

    __slots__ = (
        "choices",
        "default",
        "documentation",
        "high",
        "importance",
        "inert",
        "low",
        "mode",
        "name",
        "type_name",
    )

    def __init__(
        self,
        type_name: str,
        default: object,
        documentation: str,
        *,
        low: float | None = None,
        high: float | None = None,
        choices: Sequence[str] = (),
        importance: str = MEDIUM,
        mode: str = READ_ONLY,
        inert: bool = False,
    ) -> None:
        self.name = ""
        self.type_name = type_name
        self.default = default
        self.documentation = documentation + _INERT if inert else documentation
        self.low = low
        self.high = high
        self.choices = choices
        self.importance = importance
        self.mode = mode
        self.inert = inert

    @property
    def required(self) -> bool:
        """Whether the key has no default."""
        return self.default is _REQUIRED

    def parse(self, text: str) -> Any:
        """The value of a setting's text; ConfigError with Kafka's words if it is none."""
        value = _PARSERS[self.type_name](self.name, text.strip())
        for item in value if isinstance(value, list) else (value,):
            self._check(item)
        return value

    def _check(self, value: Any) -> None:
        if self.low is not None and value < self.low:
            raise refuse(self.name, value, f"Value must be at least {self.low}")
        if self.high is not None and value > self.high:
            raise refuse(self.name, value, f"Value must be no more than {self.high}")
        if self.choices and value not in self.choices:
            raise refuse(self.name, value, f"String must be one of: {', '.join(self.choices)}")


def refuse(name: str, value: object, reason: str) -> ConfigError:
    """The error for a bad value, in the words of Kafka's ConfigException."""
    return ConfigError(name, f"Invalid value {value} for configuration {name}: {reason}")


def _parse_boolean(name: str, text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise refuse(name, text, "Expected value to be either true or false")
    return lowered == "true"


def _integer_parser(type_name: str, bits: int) -> Callable[[str, str], int]:
    bound = 1 << (bits - 1)

    def parse(name: str, text: str) -> int:
        digits = text[1:] if text[:1] in ("-", "+") else text
        if digits.isascii() and digits.isdigit() and -bound <= int(text) < bound:
            return int(text)
        raise refuse(name, text, f"Not a number of type {type_name}")

    return parse


def _parse_double(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise refuse(name, text, "Not a number of type DOUBLE") from None


def _parse_string(name: str, text: str) -> str:
    return text


def _parse_list(name: str, text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text else []


_PARSERS: Mapping[str, Callable[[str, str], Any]] = {
    "BOOLEAN": _parse_boolean,
    "SHORT": _integer_parser("SHORT", 16),
    "INT": _integer_parser("INT", 32),
    "LONG": _integer_parser("LONG", 64),
    "DOUBLE": _parse_double,
    "STRING": _parse_string,
    "LIST": _parse_list,
}


def boolean(default: bool, documentation: str, **options: Any) -> Any:
    """true or false."""
    return BrokerKey("BOOLEAN", default, documentation, **options)


def integer(default: int | None, documentation: str, **options: Any) -> Any:
    """A 32-bit int."""
    return BrokerKey("INT", default, documentation, **options)


def required_integer(documentation: str, **options: Any) -> Any:
    """A 32-bit int that must be given."""
    return BrokerKey("INT", _REQUIRED, documentation, **options)


def short(default: int, documentation: str, **options: Any) -> Any:
    """A 16-bit int."""
    return BrokerKey("SHORT", default, documentation, **options)


def long(default: int | None, documentation: str, **options: Any) -> Any:
    """A 64-bit int."""
    return BrokerKey("LONG", default, documentation, **options)


def double(default: float, documentation: str, **options: Any) -> Any:
    """A float."""
    return BrokerKey("DOUBLE", default, documentation, **options)


def string(default: str | None, documentation: str, **options: Any) -> Any:
    """A string, surrounding blanks cut."""
    return BrokerKey("STRING", default, documentation, **options)


def strings(default: tuple[str, ...] | None, documentation: str, **options: Any) -> Any:
    """A list, given with commas."""
    value = None if default is None else list(default)
    return BrokerKey("LIST", value, documentation, **options)
