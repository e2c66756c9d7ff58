"""Generate the source of a decoder from a table and a version.

The generated function walks the buffer `b` (of `z` bytes) with the position `p`. Every length is
checked against the remaining bytes before anything of that length is built, so a frame cannot make
the decoder build more than its own bytes can hold. An empty element of one byte is far larger in
memory, and handlers work on each: `left` is the budget of array elements and tagged fields.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, cast

from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.primitives import (
    SAFE_STRING_BYTES,
    UNLIMITED,
    continue_uvarint,
    long_string,
    skip_tagged_fields,
)
from tidelog_protocol.schema import MISSING, Field, Message, Struct

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["decoder"]

FORMATS = {
    "boolean": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""`struct` formats of the kinds of fixed size."""

_unpackers: dict[str, tuple[Any, int]] = {}


def decoder(
    message: type[Message], version: int, *, flexible: bool, whole: bool = False
) -> Callable[..., Any]:
    """Generate `decode(buffer, offset=0, elements=UNLIMITED)`; if `whole`, bytes after the message
    are an error."""
    writer = _Writer(message, version, flexible=flexible)
    source = writer.function(whole=whole)
    exec(compile(source, f"<decode {message.__name__} v{version}>", "exec"), writer.scope)  # noqa: S102 - made of our own tables alone
    return cast("Callable[..., Any]", writer.scope["decode"])


def has_records(structure: type[Struct]) -> bool:
    """Return whether this structure holds record batches at any depth."""
    for field in structure.FIELDS:
        inner = field.element
        if field.kind == "records":
            return True
        if inner is not None and not isinstance(inner, str) and has_records(inner):
            return True
    return False


class _Writer:
    """Writes one decoder, line by line."""

    def __init__(self, message: type[Message], version: int, *, flexible: bool) -> None:
        self.message = message
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.indent = "  "
        self.pending: list[tuple[str, str]] = []  # (struct format, target) still to be read
        self.names = 0
        self.scope: dict[str, Any] = {
            "ProtocolError": ProtocolError,
            "new": object.__new__,
            "more": continue_uvarint,
            "skip": skip_tagged_fields,
            "unpack_from": struct.unpack_from,
            "long_string": long_string,
            "StructError": struct.error,
        }

    def function(self, *, whole: bool) -> str:
        """Return the source of the whole function."""
        name = self.message.__name__
        if has_records(self.message):
            # Slices of a memoryview are views; of anything else they would be copies.
            self.line("if type(b) is not memoryview: b = memoryview(b)")
        self.line("z = len(b)")
        target = self.structure(self.message)
        self.flush()
        if whole:
            self.line(f"if p != z: {self.refuse('bytes left over')}")
        self.line(f"return {target}")
        head = [f"def decode(b, p=0, left={UNLIMITED}):", " try:"]
        tail = [
            " except (IndexError, StructError) as error:",
            f"  raise ProtocolError('{name} v{self.version}: truncated') from error",
        ]
        return "\n".join(head + self.lines + tail)

    # Lines, names, groups of fixed size

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def enter(self) -> None:
        self.indent += " "

    def leave(self) -> None:
        self.indent = self.indent[:-1]

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def refuse(self, what: str) -> str:
        return f"raise ProtocolError('{self.message.__name__} v{self.version}: {what}')"

    def flush(self) -> None:
        """Read the pending fields of fixed size with one call."""
        if not self.pending:
            return
        targets = ", ".join(target for _, target in self.pending)
        layout = ">" + "".join(each for each, _ in self.pending)
        if layout == ">B":
            self.line(f"{targets} = b[p]; p += 1")
        else:
            known = _unpackers.get(layout)
            if known is None:
                made = struct.Struct(layout)
                known = _unpackers[layout] = (made.unpack_from, made.size)
            unpack = "u_" + layout[1:].replace("?", "o")
            self.scope[unpack] = known[0]
            comma = "," if len(self.pending) == 1 else ""
            self.line(f"{targets}{comma} = {unpack}(b, p); p += {known[1]}")
        self.pending.clear()

    def length(self, *, short: bool) -> str:
        """Read a length; a compact length is one too high, and 0 stands for null."""
        length = self.name("n")
        if self.flexible:
            self.pending.append(("B", length))
            self.flush()
            self.line(f"if {length} > 127: {length}, p = more(b, p, {length})")
        else:
            self.pending.append(("h" if short else "i", length))
            self.flush()
        return length

    # Structures

    def structure(self, cls: type[Struct]) -> str:
        """Read a structure into a new local variable; its last fields may still be pending."""
        target = self.name("m")
        self.scope[f"C_{target}"] = cls
        self.line(f"{target} = new(C_{target})")
        tagged = []
        for field in cls.FIELDS:
            place = f"{target}.{field.name}"
            if not field.in_version(self.version):
                self.absent(field, place)
            elif field.tag is not None and self.flexible:
                self.absent(field, place)
                tagged.append(field)
            else:
                self.value(field, place)
        if self.flexible:
            self.tags(target, tagged)
        return target

    def absent(self, field: Field, place: str) -> None:
        """Give a field that isn't on the wire its default."""
        if field.default is not MISSING:
            self.line(f"{place} = {field.default!r}")
        elif field.kind == "array":
            self.line(f"{place} = []")
        else:
            fresh = self.name("F")
            self.scope[fresh] = field.element
            self.line(f"{place} = {fresh}()")

    def tags(self, target: str, known: list[Field]) -> None:
        """Read a structure's tagged fields; skip unknown ones (KIP-482)."""
        count = self.name("t")
        self.pending.append(("B", count))
        self.flush()
        if not known:
            self.line(f"if {count}: p, left = skip(b, p, {count}, left)")
            return
        tag, end = self.name("k"), self.name("e")
        self.line(f"if {count}:")
        self.enter()
        self.line(f"if {count} > 127: {count}, p = more(b, p, {count})")
        self.charge(count)
        self.line(f"for _ in range({count}):")
        self.enter()
        for local in (tag, end):
            self.line(f"{local} = b[p]; p += 1")
            self.line(f"if {local} > 127: {local}, p = more(b, p, {local})")
        self.line(f"{end} += p")
        self.line(f"if {end} > z: {self.refuse('tagged field beyond the end')}")
        for number, field in enumerate(known):
            self.line(f"{'elif' if number else 'if'} {tag} == {field.tag}:")
            self.enter()
            self.value(field, f"{target}.{field.name}")
            self.flush()
            self.leave()
        self.line(f"else: p = {end}")
        self.line(f"if p != {end}: {self.refuse('tagged field of another size')}")
        self.leave()
        self.leave()

    def charge(self, count: str) -> None:
        """Take this many elements or tagged fields from the budget, before any is read."""
        self.line(f"left -= {count}")
        self.line(f"if left < 0: {self.refuse('more elements than a request may have')}")

    # Values

    def value(self, field: Field, place: str) -> None:
        """Read one field."""
        kind = field.kind
        nullable = field.nullable_in(self.version)
        if kind in FORMATS:
            self.pending.append((FORMATS[kind], place))
        elif kind == "array":
            self.array(field, place, nullable=nullable)
        elif kind == "struct":
            self.single(field, place, nullable=nullable)
        else:
            self.bytes_like(kind, place, nullable=nullable)

    def bytes_like(self, kind: str, place: str, *, nullable: bool) -> None:
        """Read a string, bytes or records: a length and that many bytes."""
        length = self.length(short=kind == "string")
        if nullable:
            self.line(f"if {length}{'' if self.flexible else ' != -1'}:")
            self.enter()
        end = self.name("e")
        self.line(f"{end} = p + {length}{' - 1' if self.flexible else ''}")
        self.line(f"if {end} > z or {end} < p: {self.refuse('length beyond the end')}")
        piece = f"b[p:{end}]"
        if kind == "string":
            # Invalid UTF-8 is replaced, as Java's decoder does.
            short = f"str({piece}, 'utf-8', 'replace')"
            piece = f"{short} if {length} < {SAFE_STRING_BYTES} else long_string({piece})"
        elif kind == "bytes":
            piece = f"bytes({piece})"
        self.line(f"{place} = {piece}; p = {end}")
        if nullable:
            self.leave()
            self.line(f"else: {place} = None")

    def single(self, field: Field, place: str, *, nullable: bool) -> None:
        """Read one structure; a nullable one has a byte before it: 1, or less for null."""
        element = field.element
        assert element is not None
        assert not isinstance(element, str)
        if not nullable:
            target = self.structure(element)
            self.flush()
            self.line(f"{place} = {target}")
            return
        marker = self.name("n")
        self.pending.append(("b", marker))
        self.flush()
        self.line(f"if {marker} < {0 if field.tag is None else 1}: {place} = None")
        self.line("else:")
        self.enter()
        target = self.structure(element)
        self.flush()
        self.line(f"{place} = {target}")
        self.leave()

    def array(self, field: Field, place: str, *, nullable: bool) -> None:
        """Read an array; the smallest size of its elements bounds its length."""
        element = field.element
        assert element is not None
        length = self.length(short=False)
        if self.flexible:
            self.line(f"{length} -= 1")
        if nullable:
            self.line(f"if {length} == -1: {place} = None")
            self.line("else:")
            self.enter()
        least = self.least(element)
        needed = length if least == 1 else f"{length} * {least}"
        too_long = self.refuse("array beyond the end")
        self.line(f"if {length} < 0 or {needed} > z - p: {too_long}")
        self.charge(length)
        if element == "uuid":
            self.line(f"{place} = [bytes(b[i:i + 16]) for i in range(p, p + {needed}, 16)]")
            self.line(f"p += {needed}")
        elif isinstance(element, str) and element in FORMATS:
            layout = f"f'>{{{length}}}{FORMATS[element]}'"
            self.line(f"{place} = list(unpack_from({layout}, b, p)); p += {needed}")
        else:
            self.loop(element, place, length)
        if nullable:
            self.leave()

    def loop(self, element: str | type[Struct], place: str, length: str) -> None:
        """Read `length` elements one by one."""
        items = self.name("a")
        self.line(f"{items} = {place} = []")
        self.line(f"for _ in range({length}):")
        self.enter()
        if isinstance(element, str):
            item = self.name("v")
            self.bytes_like(element, item, nullable=False)
        else:
            item = self.structure(element)
            self.flush()
        self.line(f"{items}.append({item})")
        self.leave()

    def least(self, element: str | type[Struct]) -> int:
        """Return how many bytes an element has at least."""
        if isinstance(element, str):
            if element in FORMATS:
                return struct.calcsize(">" + FORMATS[element])
            if self.flexible:
                return 1
            return 2 if element == "string" else 4
        total = 1 if self.flexible else 0
        for field in element.FIELDS:
            if not field.in_version(self.version) or (field.tag is not None and self.flexible):
                continue
            total += self.least_of_field(field)
        assert total > 0, element
        return total

    def least_of_field(self, field: Field) -> int:
        """Return how many bytes a field has at least."""
        if field.kind == "array":
            return 1 if self.flexible else 4
        if field.kind == "struct":
            assert field.element is not None
            return 1 if field.nullable_in(self.version) else self.least(field.element)
        return self.least(field.kind)
