"""RE2's syntax of regular expressions, read into a tree. Pure; see `patterns.py`.

It follows https://github.com/google/re2/wiki/Syntax with the choices of RE2/J, Kafka's library:
classes such as `\\w` are ASCII, `$` is the end of the text, a repetition counts up to 1000.
"""

from __future__ import annotations

import unicodedata
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Assertion",
    "Characters",
    "Either",
    "Node",
    "PatternError",
    "Repeat",
    "Sequence",
    "is_word",
    "parse",
]

_REPEAT_MAX = 1000
_DEPTH_MAX = 100


class PatternError(ValueError):
    """The text is not a valid pattern."""


class Characters(NamedTuple):
    """Any one character of a set."""

    accepts: Callable[[str], bool]


class Assertion(Enum):
    """A condition between two characters."""

    TEXT_START = auto()
    TEXT_END = auto()
    LINE_START = auto()
    LINE_END = auto()
    WORD_BOUNDARY = auto()
    NO_WORD_BOUNDARY = auto()


class Sequence(NamedTuple):
    """A sequence; an empty one matches the empty text."""

    parts: tuple[Node, ...]


class Either(NamedTuple):
    """Patterns of which one has to match."""

    options: tuple[Node, ...]


class Repeat(NamedTuple):
    """A repetition, `least` to `most` times; None: unlimited."""

    body: Node
    least: int
    most: int | None


Node = Characters | Assertion | Sequence | Either | Repeat


def is_word(character: str) -> bool:
    """Whether `\\w` matches."""
    return character.isascii() and (character.isalnum() or character == "_")


def _ascii(test: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda one: one.isascii() and test(one)


_PERL: dict[str, Callable[[str], bool]] = {
    "d": _ascii(str.isdigit),
    "s": lambda one: one in "\t\n\f\r ",
    "w": is_word,
}
_POSIX: dict[str, Callable[[str], bool]] = {
    "alnum": _ascii(str.isalnum),
    "alpha": _ascii(str.isalpha),
    "ascii": str.isascii,
    "blank": lambda one: one in "\t ",
    "cntrl": lambda one: one < " " or one == "\x7f",
    "digit": _ascii(str.isdigit),
    "graph": lambda one: "!" <= one <= "~",
    "lower": _ascii(str.islower),
    "print": lambda one: " " <= one <= "~",
    "punct": lambda one: "!" <= one <= "~" and not one.isalnum(),
    "space": lambda one: one in "\t\n\v\f\r ",
    "upper": _ascii(str.isupper),
    "word": is_word,
    "xdigit": lambda one: one in "0123456789abcdefABCDEF",
}
_ASSERTIONS = {
    "A": Assertion.TEXT_START,
    "z": Assertion.TEXT_END,
    "b": Assertion.WORD_BOUNDARY,
    "B": Assertion.NO_WORD_BOUNDARY,
}
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_CATEGORIES = {
    group: frozenset(f"{group}{detail}" for detail in ("", *details))
    for group, details in {
        "C": "cfos",
        "L": "lmotu",
        "M": "cen",
        "N": "dlo",
        "P": "cdefios",
        "S": "ckmo",
        "Z": "lps",
    }.items()
}
_OCTAL = frozenset("01234567")
_DIGITS = frozenset("0123456789")
_HEX = frozenset("0123456789abcdefABCDEF")


def parse(text: str) -> Node:
    """Parse a pattern into a tree; PatternError if it is invalid."""
    parser = _Parser(text)
    node = parser.alternatives(0)
    if parser.rest():
        raise PatternError("unexpected )")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._flags = frozenset[str]()
        self._names: set[str] = set()

    def rest(self) -> bool:
        return self._at < len(self._text)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self, missing: str) -> str:
        if not self.rest():
            raise PatternError(missing)
        self._at += 1
        return self._text[self._at - 1]

    def _take(self, prefix: str) -> bool:
        found = self._text.startswith(prefix, self._at)
        if found:
            self._at += len(prefix)
        return found

    def _until(self, end: str, missing: str) -> str:
        stop = self._text.find(end, self._at)
        if stop < 0:
            raise PatternError(missing)
        found = self._text[self._at : stop]
        self._at = stop + len(end)
        return found

    # -- structure -------------------------------------------------------------------------------

    def alternatives(self, depth: int) -> Node:
        """Parse alternatives up to the end or a closing parenthesis."""
        if depth > _DEPTH_MAX:
            raise PatternError("expression nests too deeply")
        options = [self._sequence(depth)]
        while self._take("|"):
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else Either(tuple(options))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.rest() and self._peek() not in "|)":
            if self._take("\\Q"):
                stop = self._text.find("\\E", self._at)
                quoted = self._text[self._at :] if stop < 0 else self._text[self._at : stop]
                self._at += len(quoted) + (0 if stop < 0 else 2)
                parts.extend(self._literal(one) for one in quoted)
                if quoted:
                    parts[-1] = self._repeated(parts[-1])
                continue
            atom = self._atom(depth)
            if atom is not None:
                parts.append(self._repeated(atom))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _atom(self, depth: int) -> Node | None:
        """Parse an atom; None for flags, which match nothing."""
        one = self._next("")
        if one == "(":
            return self._group(depth)
        if one == "[":
            return self._class()
        if one == "\\":
            return self._escape()
        if one in "*+?":
            raise PatternError(f"missing argument to repetition operator: {one}")
        return self._special(one) or self._literal(one)

    def _special(self, one: str) -> Node | None:
        is_line = "m" in self._flags
        if one == ".":
            return Characters(_any if "s" in self._flags else _not_newline)
        if one == "^":
            return Assertion.LINE_START if is_line else Assertion.TEXT_START
        if one == "$":
            return Assertion.LINE_END if is_line else Assertion.TEXT_END
        return None

    def _literal(self, one: str) -> Characters:
        return self._folded(lambda other: other == one)

    def _folded(self, accepts: Callable[[str], bool]) -> Characters:
        if "i" not in self._flags:
            return Characters(accepts)
        return Characters(lambda one: accepts(one) or accepts(one.lower()) or accepts(one.upper()))

    def _group(self, depth: int) -> Node | None:
        outside = self._flags
        if self._take("?") and not self._begins_named() and not self._read_flags():
            return None  # they apply to the end of the enclosing group
        inner = self.alternatives(depth + 1)
        if not self._take(")"):
            raise PatternError("missing closing )")
        self._flags = outside
        return inner

    def _begins_named(self) -> bool:
        """Return whether `(?P<name>` or `(?<name>` follows; look-behinds do not count."""
        if not (self._take("P<") or (not self._is_look_behind() and self._take("<"))):
            return False
        name = self._until(">", "invalid named capture")
        if not name or not all(is_word(one) for one in name) or name in self._names:
            raise PatternError(f"invalid named capture: {name}")
        self._names.add(name)
        return True

    def _is_look_behind(self) -> bool:
        return self._text.startswith(("<=", "<!"), self._at)

    def _read_flags(self) -> bool:
        """Read flags after `(?`; return whether a group follows."""
        flags, is_off, is_any = self._flags, False, False
        while True:
            one = self._next("missing closing )")
            if one in ":)" and (is_any or not is_off):
                self._flags = flags
                return one == ":"
            if one in "imsU":
                is_any = True
                flags = flags - {one} if is_off else flags | {one}
            elif one == "-" and not is_off:
                is_off, is_any = True, False
            else:
                raise PatternError("invalid or unsupported Perl syntax")

    def _repeated(self, atom: Node) -> Node:
        """Parse the repetition after an atom; a second one needs its own group."""
        bounds = self._bounds()
        if bounds is None:
            return atom
        self._take("?")  # lazy or greedy makes no difference for a whole match
        least, most = bounds
        again = self._at
        if self._bounds() is not None:
            raise PatternError(f"invalid nested repetition operator: {self._text[again:]}")
        return Repeat(atom, least, most)

    def _bounds(self) -> tuple[int, int | None] | None:
        for operator, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(operator):
                return bounds
        start = self._at
        if not self._take("{"):
            return None
        least = self._number()
        most: int | None = least
        if least is not None and self._take(","):
            most = self._number()
        if least is None or not self._take("}"):
            self._at = start  # an ordinary brace
            return None
        if least > _REPEAT_MAX or (most or 0) > _REPEAT_MAX:
            raise PatternError("invalid repeat count")
        if most is not None and most < least:
            raise PatternError("invalid repeat count")
        return least, most

    def _number(self) -> int | None:
        start = self._at
        while self._peek() in _DIGITS:
            self._at += 1
        digits = self._text[start : self._at]
        if not digits or (len(digits) > 1 and digits[0] == "0"):
            self._at = start
            return None
        return int(digits[:9])

    # -- characters ------------------------------------------------------------------------------

    def _escape(self) -> Node:
        one = self._peek()
        if one in _ASSERTIONS:
            self._at += 1
            return _ASSERTIONS[one]
        named = self._named_class()
        return self._literal(self._escaped()) if named is None else self._folded(named)

    def _named_class(self) -> Callable[[str], bool] | None:
        """Parse a class after a backslash: `d`, `S`, `pL`, `P{Lu}`, ..."""
        one = self._peek()
        if not one or one.lower() not in "dswp":
            return None
        self._at += 1
        accepts = self._category() if one in "pP" else _PERL[one.lower()]
        return _negated(accepts) if one.isupper() else accepts

    def _category(self) -> Callable[[str], bool]:
        name = self._next("invalid character class range")
        if name == "{":
            name = self._until("}", "invalid character class range")
        is_negated = name.startswith("^")
        name = name.removeprefix("^")
        if name == "Any":
            accepts: Callable[[str], bool] = _any
        elif name in _CATEGORIES.get(name[:1], ()):
            accepts = lambda one: unicodedata.category(one).startswith(name)  # noqa: E731
        else:
            raise PatternError(f"invalid character class range: {name}")
        return _negated(accepts) if is_negated else accepts

    def _escaped(self) -> str:
        """Parse a single character after a backslash."""
        one = self._next("trailing backslash at end of expression")
        if one in _CONTROLS:
            return _CONTROLS[one]
        if one == "x":
            return self._hexadecimal()
        if one == "0" or (one in _OCTAL and self._peek() in _OCTAL and self.rest()):
            digits = one
            while len(digits) < 3 and self.rest() and self._peek() in _OCTAL:
                digits += self._next("")
            return chr(int(digits, 8))
        if one.isascii() and not one.isalnum():
            return one
        raise PatternError(f"invalid escape sequence: \\{one}")

    def _hexadecimal(self) -> str:
        if self._take("{"):
            digits = self._until("}", "invalid escape sequence: \\x{")
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
            if len(digits) < 2:
                raise PatternError("invalid escape sequence: \\x")
        if not digits or not set(digits) <= _HEX or int(digits, 16) > 0x10FFFF:
            raise PatternError(f"invalid escape sequence: \\x{digits}")
        return chr(int(digits, 16))

    def _class(self) -> Characters:
        """Parse a class after an opening bracket."""
        is_negated = self._take("^")
        tests: list[Callable[[str], bool]] = []
        while not tests or self._peek() != "]":
            tests.append(self._class_item())
        self._at += 1
        folded = self._folded(lambda one: any(test(one) for test in tests))
        return Characters(_negated(folded.accepts)) if is_negated else folded

    def _class_item(self) -> Callable[[str], bool]:
        if self._text.startswith("[:", self._at):
            posix = self._posix()
            if posix is not None:
                return posix
        low = self._class_character()
        if not isinstance(low, str):
            return low
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in {"]", ""}:
            return lambda one: one == low
        self._at += 1
        high = self._class_character()
        if not isinstance(high, str) or high < low:
            raise PatternError("invalid character class range")
        return lambda one: low <= one <= high

    def _class_character(self) -> str | Callable[[str], bool]:
        one = self._next("missing closing ]")
        if one != "\\":
            return one
        named = self._named_class()
        return self._escaped() if named is None else named

    def _posix(self) -> Callable[[str], bool] | None:
        stop = self._text.find(":]", self._at + 2)
        if stop < 0:
            return None
        name = self._text[self._at + 2 : stop]
        self._at = stop + 2
        accepts = _POSIX.get(name.removeprefix("^"))
        if accepts is None:
            raise PatternError(f"invalid character class range: [:{name}:]")
        return _negated(accepts) if name.startswith("^") else accepts


def _any(one: str) -> bool:
    del one
    return True


def _not_newline(one: str) -> bool:
    return one != "\n"


def _negated(test: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda one: not test(one)
