"""The vocabulary of the message tables: a message is a class whose body is its table.

A field is one line, in wire order, with version ranges written as in Kafka's own definitions ("0+",
"3-7"). A class covers all versions; the compiler turns a class and a version into an encoder and a
decoder. Nested structures are nested classes with Kafka's names::

    class Example(Message, versions="0-4", flexible="3+"):
        class Topic(Struct):
            name: str = string()
            partitions: list[int] = array(int32)

        throttle_time_ms: int = int32("1+")
        topics: list[Topic] | None = array(Topic, nullable="2+")
        cluster_id: str | None = string("3+", nullable="3+", tag=0, default=None)

Making a class only stores the table: ranges are parsed when a version is compiled, and the
constructor is generated when the first instance is made, so that a broker, which starts in a tenth
of a second, does not pay for messages it never uses.
"""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    TypeAlias,
    TypeVar,
    cast,
    dataclass_transform,
    overload,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "Buffer",
    "Field",
    "Message",
    "Records",
    "Struct",
    "array",
    "boolean",
    "bytes_",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "record_data",
    "string",
    "struct",
    "uint16",
    "uint32",
    "uuid",
    "version_range",
]

T = TypeVar("T")

ALL = "0+"
_SECRETS = frozenset({"auth_bytes", "hmac", "salted_password", "server_key", "stored_key"})
"""Fields whose values no representation shows."""
VERSION_MAX = 32767
"""Upper end of an open range such as "3+"."""

Buffer: TypeAlias = bytes | memoryview
Records: TypeAlias = "Buffer | Sequence[Buffer]"
"""Batches: a slice of the frame after decoding; bytes or several parts for encoding."""


class _Missing:
    """Placeholder in a generated constructor for a default that each instance creates."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<default>"


MISSING = _Missing()


def version_range(text: str) -> tuple[int, int]:
    """Parse "0+", "3-7" or "5" to (first, last), both inclusive."""
    first, dash, last = text.partition("-")
    if dash:
        return int(first), int(last)
    if text.endswith("+"):
        return int(text[:-1]), VERSION_MAX
    return int(text), int(text)


class Field:
    """One row of a table.

    `kind` names the wire type, `element` what an array or a struct field holds (a kind or a
    class); `versions` and `nullable` are ranges as text (None: never). A field with a `tag` is
    tagged in all its versions.
    """

    __slots__ = ("default", "element", "kind", "name", "nullable", "tag", "versions")

    def __init__(
        self,
        kind: str,
        versions: str,
        default: object,
        *,
        element: str | type[Struct] | None = None,
        nullable: str | None = None,
        tag: int | None = None,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = versions
        self.default = default
        self.element = element
        self.nullable = nullable
        self.tag = tag

    def __repr__(self) -> str:
        return f"<Field {self.name}: {self.kind} {self.versions}>"

    def in_version(self, version: int) -> bool:
        """Return whether this version carries the field."""
        first, last = version_range(self.versions)
        return first <= version <= last

    def nullable_in(self, version: int) -> bool:
        """Return whether the field may be null in this version."""
        if self.nullable is None:
            return False
        first, last = version_range(self.nullable)
        return first <= version <= last


def boolean(versions: str = ALL, *, default: bool = False, tag: int | None = None) -> bool:
    """One byte, 0 or 1."""
    return cast("bool", Field("boolean", versions, default, tag=tag))


def int8(versions: str = ALL, *, default: int = 0, tag: int | None = None) -> int:
    """Signed byte."""
    return cast("int", Field("int8", versions, default, tag=tag))


def int16(versions: str = ALL, *, default: int = 0, tag: int | None = None) -> int:
    """Signed, two bytes."""
    return cast("int", Field("int16", versions, default, tag=tag))


def uint16(versions: str = ALL, *, default: int = 0, tag: int | None = None) -> int:
    """Unsigned, two bytes."""
    return cast("int", Field("uint16", versions, default, tag=tag))


def int32(versions: str = ALL, *, default: int = 0, tag: int | None = None) -> int:
    """Signed, four bytes."""
    return cast("int", Field("int32", versions, default, tag=tag))


def uint32(versions: str = ALL, *, default: int = 0, tag: int | None = None) -> int:
    """Unsigned, four bytes."""
    return cast("int", Field("uint32", versions, default, tag=tag))


def int64(versions: str = ALL, *, default: int = 0, tag: int | None = None) -> int:
    """Signed, eight bytes."""
    return cast("int", Field("int64", versions, default, tag=tag))


def float64(versions: str = ALL, *, default: float = 0.0, tag: int | None = None) -> float:
    """IEEE 754 double."""
    return cast("float", Field("float64", versions, default, tag=tag))


def uuid(versions: str = ALL, *, tag: int | None = None) -> bytes:
    """Sixteen bytes, kept as `bytes`; all zero is Kafka's "none"."""
    return cast("bytes", Field("uuid", versions, bytes(16), tag=tag))


@overload
def string(versions: str = ALL, *, default: str = "", tag: int | None = None) -> str: ...
@overload
def string(
    versions: str = ALL, *, nullable: str, default: str | None = "", tag: int | None = None
) -> str | None: ...
def string(
    versions: str = ALL,
    *,
    nullable: str | None = None,
    default: str | None = "",
    tag: int | None = None,
) -> str | None:
    """UTF-8 text of at most 32767 bytes."""
    return cast("str", Field("string", versions, default, nullable=nullable, tag=tag))


@overload
def bytes_(versions: str = ALL, *, default: bytes = b"", tag: int | None = None) -> bytes: ...
@overload
def bytes_(
    versions: str = ALL, *, nullable: str, default: bytes | None = b"", tag: int | None = None
) -> bytes | None: ...
def bytes_(
    versions: str = ALL,
    *,
    nullable: str | None = None,
    default: bytes | None = b"",
    tag: int | None = None,
) -> bytes | None:
    """Opaque bytes, copied out of the frame."""
    return cast("bytes", Field("bytes", versions, default, nullable=nullable, tag=tag))


def record_data(versions: str = ALL, *, nullable: str | None = None) -> Records | None:
    """Record batches: never copied, neither out of a frame nor into one."""
    default = b"" if nullable is None else None
    return cast("bytes", Field("records", versions, default, nullable=nullable))


@overload
def array(element: Callable[..., T], versions: str = ALL, *, tag: int | None = None) -> list[T]: ...
@overload
def array(
    element: Callable[..., T],
    versions: str = ALL,
    *,
    nullable: str,
    default: _Missing | None = MISSING,
    tag: int | None = None,
) -> list[T] | None: ...
def array(
    element: Callable[..., T],
    versions: str = ALL,
    *,
    nullable: str | None = None,
    default: _Missing | None = MISSING,
    tag: int | None = None,
) -> list[T] | None:
    """Return a list of structures (a class) or of primitives (one of the functions above)."""
    is_class = isinstance(element, StructType)
    inner = cast("type[Struct]", element) if is_class else _KINDS[element]
    field = Field("array", versions, default, element=inner, nullable=nullable, tag=tag)
    return cast("list[T]", field)


@overload
def struct(element: type[T], versions: str = ALL) -> T: ...
@overload
def struct(
    element: type[T],
    versions: str = ALL,
    *,
    nullable: str,
    default: None = None,
    tag: int | None = None,
) -> T | None: ...
@overload
def struct(element: type[T], versions: str = ALL, *, tag: int) -> T | None: ...
def struct(
    element: type[T],
    versions: str = ALL,
    *,
    nullable: str | None = None,
    default: None = None,
    tag: int | None = None,
) -> T | None:
    """One structure.

    An absent tagged structure is None, which Kafka calls a default instance. One with only default
    values is not written either, so both look the same on the wire. If it is also nullable, then
    absent is the default instance, and None is written.
    """
    absent = default if (nullable is None) != (tag is None) else MISSING
    inner = cast("type[Struct]", element)
    field = Field("struct", versions, absent, element=inner, nullable=nullable, tag=tag)
    return cast("T", field)


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """Metaclass that moves the rows out of a class body and leaves slots."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        versions: str = ALL,
        flexible: str | None = None,
        api_key: int | None = None,
    ) -> StructType:
        """Make the class; only messages set `versions`, `flexible` and `api_key`."""
        fields = []
        for attribute, value in namespace.items():
            if type(value) is Field:
                value.name = attribute
                fields.append(value)
        for field in fields:
            del namespace[field.name]
        if "__slots__" not in namespace:
            namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["FIELDS"] = tuple(fields)
        namespace["VERSIONS"] = versions
        namespace["FLEXIBLE"] = flexible
        namespace["API_KEY"] = api_key
        return super().__new__(cls, name, bases, namespace)


class Struct(metaclass=StructType):
    """A structure of the wire: mutable, slotted, made by keywords with Kafka's defaults.

    Fields outside the version hold their defaults after decoding and are omitted on encoding.
    """

    __slots__ = ()
    FIELDS: ClassVar[tuple[Field, ...]]
    VERSIONS: ClassVar[str]
    FLEXIBLE: ClassVar[str | None]
    API_KEY: ClassVar[int | None]

    def __init__(self, **values: Any) -> None:
        # The first instance of its class: generate the constructor and call it.
        cls = type(self)
        type.__setattr__(cls, "__init__", _constructor(cls))
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        inner = ", ".join(
            f"{field.name}={'[hidden]' if field.name in _SECRETS else repr(value)}"
            for field in self.FIELDS
            for value in (getattr(self, field.name),)
        )
        return f"{type(self).__qualname__}({inner})"


class Message(Struct):
    """A top-level structure: a request, a response or a record's key or value."""

    __slots__ = ()


_KINDS: dict[Any, str] = {
    boolean: "boolean",
    int8: "int8",
    int16: "int16",
    uint16: "uint16",
    int32: "int32",
    uint32: "uint32",
    int64: "int64",
    float64: "float64",
    uuid: "uuid",
    string: "string",
    bytes_: "bytes",
}


def _constructor(cls: type[Struct]) -> Callable[..., None]:
    """Generate `__init__` with one keyword per field."""
    scope: dict[str, Any] = {"MISSING": MISSING}
    parameters = []
    body = []
    for field in cls.FIELDS:
        name = field.name
        if field.default is not MISSING:
            parameters.append(f"{name}={field.default!r}")
            body.append(f" self.{name} = {name}")
            continue
        parameters.append(f"{name}=MISSING")
        fresh = "[]"
        if field.kind == "struct":
            scope[f"new_{name}"] = field.element
            fresh = f"new_{name}()"
        body.append(f" self.{name} = {fresh} if {name} is MISSING else {name}")
    keywords = f", *, {', '.join(parameters)}" if parameters else ""
    source = f"def __init__(self{keywords}):\n" + "\n".join(body or [" pass"])
    exec(source, scope)  # noqa: S102 - the text is made of our own tables alone
    return cast("Callable[..., None]", scope["__init__"])
