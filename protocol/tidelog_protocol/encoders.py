"""Generate the source of an encoder from a table and a version.

The generated function appends pieces to a list and joins it once. Neighbouring fields of fixed
size, lengths and empty sections of tagged fields are packed by one `struct` call. Record batches
are never joined: `encode_parts` ends one piece before them and starts the next after them.
`encode_in_turns` yields between array elements, so that a caller may do other things meanwhile.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, cast

from tidelog_protocol.decoders import FORMATS, has_records
from tidelog_protocol.primitives import STRING_BYTES_MAX, UVARINTS, ZERO_UUID, write_uvarint
from tidelog_protocol.schema import MISSING, Field, Message, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tidelog_protocol.schema import Buffer

__all__ = ["TURN_ELEMENTS", "encoder", "parts_encoder", "turns_encoder"]

COPIED_BYTES_MAX = 512
"""Record batches up to this size are copied: a separate part costs more."""

TURN_ELEMENTS = 2048
"""Array elements of all depths between two turns, a power of 2: about 2 ms."""

TOO_LONG = f"a string of more than {STRING_BYTES_MAX} bytes"

_packers: dict[str, Any] = {}


def encoder(message: type[Message], version: int, *, flexible: bool) -> Callable[[Any], bytes]:
    """Generate `encode(message)`, which gives bytes."""
    if not has_records(message):
        return cast("Callable[[Any], bytes]", _Writer(message, version, flexible=flexible).made())
    parts = parts_encoder(message, version, flexible=flexible)
    return lambda value: b"".join(parts(value))


def parts_encoder(
    message: type[Message], version: int, *, flexible: bool
) -> Callable[[Any], list[Buffer]]:
    """Generate `encode(message)`, which gives a list of buffers."""
    made = _Writer(message, version, flexible=flexible).made(result="[join(o)]")
    return cast("Callable[[Any], list[Buffer]]", made)


def turns_encoder(
    message: type[Message], version: int, *, flexible: bool
) -> Callable[[Any], Generator[None, None, list[Buffer]]]:
    """Generate `encode(message)`, a generator that yields between parts of its work and returns a
    list of buffers."""
    made = _Writer(message, version, flexible=flexible, turns=True).made()
    return cast("Callable[[Any], Generator[None, None, list[Buffer]]]", made)


class _Writer:
    """Writes one encoder, line by line. `o` is the list of pieces, `w` its `append`."""

    def __init__(
        self, message: type[Message], version: int, *, flexible: bool, turns: bool = False
    ) -> None:
        self.turns = turns
        self.message = message
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.indent = " "
        self.pending: list[tuple[str, str | None]] = []  # (struct format, expression)
        self.append = "w"
        self.names = 0
        self.scope: dict[str, Any] = {
            "U": UVARINTS,
            "uvarint": write_uvarint,
            "join": b"".join,
            "pack": struct.pack,
            "StructError": struct.error,
            "ZERO_UUID": ZERO_UUID,
        }

    def made(self, result: str = "join(o)") -> Callable[[Any], Any]:
        """Compile and return the function; `result` is what it returns if there are no parts."""
        head = ["def encode(m):", " o = []; w = o.append"]
        if has_records(self.message) or self.turns:
            head.append(" parts = []")
        if self.turns:
            head += [" turn = 0", " if turn: yield"]  # a generator, also without arrays
        self.structure(self.message, "m")
        self.flush()
        if has_records(self.message) or self.turns:
            self.line("if o: parts.append(join(o))")
            self.line("return parts")
        else:
            self.line(f"return {result}")
        source = "\n".join(head + self.lines)
        name = f"<encode {self.message.__name__} v{self.version}>"
        exec(compile(source, name, "exec"), self.scope)  # noqa: S102 - made of our own tables alone
        return cast("Callable[[Any], Any]", self.scope["encode"])

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

    def flush(self) -> None:
        """Pack the pending fields with one call."""
        if not self.pending:
            return
        layout = ">" + "".join(each for each, _ in self.pending)
        values = ", ".join(value for _, value in self.pending if value is not None)
        self.pending.clear()
        packer = _packers.get(layout)
        if packer is None:
            packer = _packers[layout] = struct.Struct(layout).pack
        if not values:
            self.line(f"{self.append}({packer()!r})")
            return
        name = "p_" + layout[1:].replace("?", "o")
        self.scope[name] = packer
        self.line(f"{self.append}({name}({values}))")

    def length(self, length: str, *, short: bool) -> None:
        """Write the length held by a variable; compact ones are already one higher."""
        if self.flexible:
            self.flush()
            self.line(f"{self.append}(U[{length}] if {length} < 128 else uvarint({length}))")
        else:
            self.pending.append(("h" if short else "i", length))
            self.flush()

    # Structures

    def structure(self, cls: type[Struct], source: str) -> None:
        """Write a structure held by a variable; its end may still be pending."""
        tagged = []
        for field in cls.FIELDS:
            if not field.in_version(self.version):
                continue
            if field.tag is not None and self.flexible:
                tagged.append(field)
            else:
                self.value(field, f"{source}.{field.name}")
        if self.flexible:
            self.tags(source, tagged)

    def tags(self, source: str, known: list[Field]) -> None:
        """Write the tagged fields that differ from their defaults, in the order of their tags."""
        if not known:
            self.pending.append(("x", None))
            return
        self.flush()
        known = sorted(known, key=lambda field: cast("int", field.tag))
        bare = " and ".join(self.is_default(f, f"{source}.{f.name}", deep=False) for f in known)
        self.line(f"if {bare}: {self.append}(U[0])")
        self.line("else:")
        self.enter()
        if len(known) == 1 and known[0].kind != "struct":  # then this one is there
            pieces = self.tagged(known[0], source)
            tag = write_uvarint(1) + write_uvarint(cast("int", known[0].tag))
            self.line(f"{self.append}({tag!r})")
            self.line(f"{self.append}(uvarint(len({pieces}))); {self.append}({pieces})")
        else:
            self.some_tagged(known, source)
        self.leave()

    def tagged(self, field: Field, source: str) -> str:
        """Write the value of a tagged field to a variable; return its name."""
        outer, pieces = self.append, self.name("o")
        self.line(f"{pieces} = []")
        self.append = f"{pieces}.append"
        self.value(field, f"{source}.{field.name}")
        self.flush()
        self.append = outer
        self.line(f"{pieces} = join({pieces})")
        return pieces

    def some_tagged(self, known: list[Field], source: str) -> None:
        """Write those fields that differ from their defaults, and before them their number."""
        count, section = self.name("t"), self.name("s")
        self.line(f"{count} = 0; {section} = []")
        for field in known:
            self.line(f"if not ({self.is_default(field, f'{source}.{field.name}', deep=True)}):")
            self.enter()
            pieces = self.tagged(field, source)
            self.line(f"{count} += 1")
            self.line(f"{section} += ({write_uvarint(cast('int', field.tag))!r}, ")
            self.lines[-1] += f"uvarint(len({pieces})), {pieces})"
            self.leave()
        self.line(f"{self.append}(uvarint({count}))")
        self.line(f"{self.append}(join({section}))")

    def is_default(self, field: Field, place: str, *, deep: bool) -> str:
        """Return a condition: the field has its default; `deep` looks into structures too."""
        is_nullable = field.nullable_in(self.version)
        if field.kind == "struct":
            if not (deep or is_nullable) or not isinstance(field.element, type):
                return f"{place} is None"
            inner = " and ".join(
                self.is_default(each, f"{place}.{each.name}", deep=True)
                for each in field.element.FIELDS
                if each.in_version(self.version)
            )
            if is_nullable:  # its default is the default instance, so null is written
                return f"({place} is not None and {inner})"
            return f"({place} is None or ({inner}))"
        if field.default is None:
            return f"{place} is None"
        if field.default is MISSING:
            return f"{place} is not None and not {place}" if is_nullable else f"not {place}"
        return f"{place} == {field.default!r}"

    # Values

    def value(self, field: Field, place: str) -> None:
        """Write one field."""
        kind = field.kind
        nullable = field.nullable_in(self.version)
        if kind in FORMATS:
            self.pending.append((FORMATS[kind], place))
        elif kind == "array":
            self.array(field, place, nullable=nullable)
        elif kind == "struct":
            self.single(field, place, nullable=nullable)
        elif kind == "records":
            self.records(place, nullable=nullable)
        else:
            self.bytes_like(kind, place, nullable=nullable)

    def bytes_like(self, kind: str, place: str, *, nullable: bool) -> None:
        """Write a string or bytes."""
        data, length = self.name("v"), self.name("n")
        encode = f"{data} = {data}.encode(); " if kind == "string" else ""
        if self.flexible:
            self.flush()
        self.line(f"{data} = {place}")
        if self.flexible and nullable:
            self.line(f"if {data} is None: {self.append}(U[0])")
            self.line("else:")
            self.enter()
        if self.flexible or not nullable:
            self.line(f"{encode}{length} = len({data}){' + 1' if self.flexible else ''}")
        else:
            self.line(f"if {data} is None: {length} = -1; {data} = b''")
            self.line(f"else: {encode}{length} = len({data})")
        if kind == "string" and self.flexible:
            self.line(f"if {length} > {STRING_BYTES_MAX + 1}: raise StructError({TOO_LONG!r})")
        self.length(length, short=kind == "string")
        self.line(f"{self.append}({data})")
        if self.flexible and nullable:
            self.leave()

    def records(self, place: str, *, nullable: bool) -> None:
        """Write batches: their length, then the batches themselves by reference."""
        data, length = self.name("v"), self.name("n")
        self.flush()
        self.line(f"{data} = {place}")
        if nullable:
            self.line(f"if {data} is None: {data} = (); {length} = -1")
        test = "elif" if nullable else "if"
        self.line(f"{test} type({data}) is list or type({data}) is tuple:")
        self.line(f" {length} = sum(map(len, {data}))")
        self.line(f"else: {length} = len({data}); {data} = ({data},)")
        if self.flexible:
            self.line(f"{length} += 1")
        self.length(length, short=False)
        self.line(f"if {length} > {COPIED_BYTES_MAX}:")
        self.line(" parts.append(join(o)); o.clear(); parts += " + data)
        self.line(f"else: o += {data}")

    def single(self, field: Field, place: str, *, nullable: bool) -> None:
        """Write one structure; a nullable one has a byte before it: -1 for null, 0 if tagged."""
        element = field.element
        assert element is not None
        assert not isinstance(element, str)
        source = self.name("m")
        self.line(f"{source} = {place}")
        if not nullable:
            self.structure(element, source)
            return
        self.flush()
        null = struct.pack(">b", -1 if field.tag is None else 0)
        self.line(f"if {source} is None: {self.append}({null!r})")
        self.line("else:")
        self.enter()
        self.pending.append(("b", "1"))
        self.structure(element, source)
        self.flush()
        self.leave()

    def array(self, field: Field, place: str, *, nullable: bool) -> None:
        """Write an array."""
        element = field.element
        assert element is not None
        items, length = self.name("a"), self.name("n")
        self.line(f"{items} = {place}")
        plus = " + 1" if self.flexible else ""
        if nullable:
            null = "0" if self.flexible else "-1"
            self.line(f"if {items} is None: {length} = {null}; {items} = ()")
            self.line(f"else: {length} = len({items}){plus}")
        else:
            self.line(f"{length} = len({items}){plus}")
        self.length(length, short=False)
        if element == "uuid":
            self.line(f"{self.append}(join({items}))")
        elif isinstance(element, str) and element in FORMATS:
            layout = f"f'>{{len({items})}}{FORMATS[element]}'"
            self.line(f"{self.append}(pack({layout}, *{items}))")
        else:
            self.loop(element, items)

    def loop(self, element: str | type[Struct], items: str) -> None:
        """Write elements one by one."""
        item = self.name("m")
        self.line(f"for {item} in {items}:")
        self.enter()
        if self.turns:
            self.line("turn += 1")
            # A million pieces would be joined at the end.
            self.line(f"if not turn % {TURN_ELEMENTS}: parts.append(join(o)); o.clear(); yield")
        if isinstance(element, str):
            self.bytes_like(element, item, nullable=False)
        else:
            self.structure(element, item)
        self.flush()
        self.leave()
