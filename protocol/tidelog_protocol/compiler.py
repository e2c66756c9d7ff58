"""One table and one version become an encoder and a decoder, each made on its first use.

Every schema is turned into straight-line Python by `decoders` and `encoders`: nested structures are
inlined, neighbouring fixed-size fields read or written by one `struct` call, fields of other
versions vanish. The generated source only ever contains names and constants of our own tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidelog_protocol.decoders import decoder
from tidelog_protocol.encoders import encoder, parts_encoder, turns_encoder
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.primitives import UNLIMITED
from tidelog_protocol.schema import Message, version_range

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tidelog_protocol.schema import Buffer

__all__ = ["Codec", "codec"]

M = TypeVar("M", bound=Message)


class Codec(Generic[M]):
    """Encoder and decoder of one message in one version.

    `decode(buffer, offset=0, elements=UNLIMITED)` gives the message that starts at `offset`; what
    follows it is ignored, as Kafka does. It raises ProtocolError and nothing else, also for more
    array elements and tagged fields, of all depths together, than `elements`. Record batches are
    slices of `buffer`: they live as long as it does. `decode_whole` refuses what follows, for
    records that fill a value.

    `encode(message)` gives the bytes. `encode_parts(message)` gives them in pieces, with record
    batches as they were given, uncopied unless they are tiny. `encode_in_turns(message)` is a
    generator that returns them, for large messages without records; it yields between elements of
    arrays.
    """

    __slots__ = (
        "decode",
        "decode_whole",
        "encode",
        "encode_in_turns",
        "encode_parts",
        "flexible",
        "message",
        "version",
    )

    decode: Callable[..., M]
    decode_whole: Callable[..., M]
    encode: Callable[[M], bytes]
    encode_parts: Callable[[M], list[Buffer]]
    encode_in_turns: Callable[[M], Generator[None, None, list[Buffer]]]

    def __init__(self, message: type[M], version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = is_flexible(message, version)
        self.decode = self._first_decode
        self.decode_whole = self._first_decode_whole
        self.encode = self._first_encode
        self.encode_parts = self._first_encode_parts
        self.encode_in_turns = self._first_encode_in_turns

    def __repr__(self) -> str:
        return f"<Codec {self.message.__name__} v{self.version}>"

    def _first_decode(self, buffer: Buffer, offset: int = 0, elements: int = UNLIMITED) -> M:
        self.decode = decoder(self.message, self.version, flexible=self.flexible)
        return self.decode(buffer, offset, elements)

    def _first_decode_whole(self, buffer: Buffer, offset: int = 0, elements: int = UNLIMITED) -> M:
        self.decode_whole = decoder(self.message, self.version, flexible=self.flexible, whole=True)
        return self.decode_whole(buffer, offset, elements)

    def _first_encode(self, message: M) -> bytes:
        self.encode = encoder(self.message, self.version, flexible=self.flexible)
        return self.encode(message)

    def _first_encode_parts(self, message: M) -> list[Buffer]:
        self.encode_parts = parts_encoder(self.message, self.version, flexible=self.flexible)
        return self.encode_parts(message)

    def _first_encode_in_turns(self, message: M) -> Generator[None, None, list[Buffer]]:
        self.encode_in_turns = turns_encoder(self.message, self.version, flexible=self.flexible)
        return self.encode_in_turns(message)


_codecs: dict[tuple[type[Message], int], Codec[Any]] = {}


def codec(message: type[M], version: int) -> Codec[M]:
    """Return the codec of a message in a version; ProtocolError when there is no such version."""
    known = _codecs.get((message, version))
    if known is None:
        first, last = version_range(message.VERSIONS)
        if not first <= version <= last:
            raise ProtocolError(f"{message.__name__} has no version {version}")
        known = _codecs[message, version] = Codec(message, version)
    return known


def is_flexible(message: type[Message], version: int) -> bool:
    """Whether a version has compact lengths and tagged fields (KIP-482)."""
    if message.FLEXIBLE is None:
        return False
    first, last = version_range(message.FLEXIBLE)
    return first <= version <= last
