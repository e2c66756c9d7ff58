"""What comes from clients: frames, requests, responses of other nodes, batches, tokens, metrics."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import struct
from contextlib import suppress
from functools import partial
from typing import Any

from fuzz.grammar import Writer
from fuzz.mutation import mutated, with_checksums
from fuzz.oracles import Target
from support.logs import NOW
from tidelog.config.broker import BrokerConfig
from tidelog.coordinators.groups.consumer.embedded import assignment_of, subscription_of
from tidelog.metrics import otlp
from tidelog.network.request_limits import elements_max
from tidelog.security.oauthbearer import BearerServer, Rules
from tidelog.security.plain import PlainServer
from tidelog.security.refused import RefusedError
from tidelog.security.scram import SCRAM, Credentials, ScramServer, TokenLogin
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.compression import Codec, compress, decompress
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.frames import FrameReader, decode_client_id, decode_response_header
from tidelog_protocol.messages.metadata_records import UserScramCredentialRecord
from tidelog_protocol.records import Record, build_batch, iter_batches, iter_records
from tidelog_storage.config import LogConfig
from tidelog_storage.inspection import AppendTarget, TooMuchAtOnceError
from tidelog_storage.types import StorageError, TopicPartition
from tidelog_storage.validator import place_plain, validate_slowly
from wire_values import filled

_HEAD = struct.Struct(">hhi")
_FRAME_BYTES_MAX = 1 << 20
_CLIENT = b"\0\1c"


# ---- requests and responses ----------------------------------------------------------------------


def request_of(api_key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    """A frame of a request, without its size."""
    api = API[ApiKey(api_key)]
    tags = b"\0" if api.request_header_version(version) == 2 else b""
    return _HEAD.pack(api_key, version, correlation_id) + _CLIENT + tags + body


def drawn_request(rng: random.Random, keys: list[ApiKey] | None = None) -> bytes:
    """A request from the tables, with lies."""
    api = API[rng.choice(keys or list(API))]
    version = rng.randint(api.min_version, api.max_version)
    body = Writer(api.request, version, rng).write()
    return request_of(api.key, version, body, rng.randrange(1 << 31))


def _mutated_request(data: bytes, seed: int) -> bytes:
    rng = random.Random(seed)
    return drawn_request(rng) if rng.random() < 0.5 else mutated(data, seed)


def _run_request(frame: bytes) -> None:
    """As the dispatcher decodes it; what is decoded is encoded and comes back."""
    if len(frame) < _HEAD.size:
        return
    api_key, version, _ = _HEAD.unpack_from(frame)
    api = API.get(api_key)  # type: ignore[call-overload]
    if api is None or not api.min_version <= version <= api.max_version:
        return
    _, position = decode_client_id(frame, flexible=api.request_header_version(version) == 2)
    codec = api.request_codec(version)
    message = codec.decode(memoryview(frame), position, elements_max(api.key))
    _comes_back(codec, message)


def _comes_back(codec: Any, message: Any) -> None:
    again = codec.encode(message)
    assert codec.encode(codec.decode(again)) == again


def _requests() -> list[bytes]:
    return [
        request_of(key, version, api.request_codec(version).encode(filled(api.request, version)))
        for key, api in API.items()
        for version in sorted({api.min_version, api.max_version})
    ]


def _run_response(data: bytes) -> None:
    """An int16 key, an int16 version, and the frame of a response."""
    if len(data) < 4:
        return
    api_key, version = struct.unpack_from(">hh", data)
    api = API.get(api_key)
    if api is None or not api.min_version <= version <= api.max_version:
        return
    frame = data[4:]
    _, position = decode_response_header(api, version, frame)
    codec = api.response_codec(version)
    _comes_back(codec, codec.decode(memoryview(frame), position))


def _response(api: Any, version: int, body: bytes) -> bytes:
    tags = b"\0" if api.response_header_version(version) else b""
    return struct.pack(">hhi", api.key, version, 1) + tags + body


def _responses() -> list[bytes]:
    return [
        _response(api, version, api.response_codec(version).encode(filled(api.response, version)))
        for api in API.values()
        for version in sorted({api.min_version, api.max_version})
    ]


def _mutated_response(data: bytes, seed: int) -> bytes:
    rng = random.Random(seed)
    if rng.random() < 0.5:
        return mutated(data, seed)
    api = API[rng.choice(list(API))]
    version = rng.randint(api.min_version, api.max_version)
    return _response(api, version, Writer(api.response, version, rng).write())


# ---- frames --------------------------------------------------------------------------------------


def _run_frames(data: bytes) -> None:
    """The first two bytes say how the others arrive: in parts of which size, into which buffer."""
    step, buffer_size = (data[0] or 1, 64 << data[1] % 8) if len(data) > 1 else (1, 64)
    shared = memoryview(bytearray(buffer_size))
    reader = FrameReader(_FRAME_BYTES_MAX, shared)
    position, frames = 2, 0
    while position < len(data):
        memory = reader.writable()
        assert len(memory)
        part = data[position : position + min(step, len(memory))]
        memory[: len(part)] = part
        position += len(part)
        frames += sum(4 + len(frame) for frame in reader.received(len(part)))
        assert frames <= position - 2
        assert reader.unfinished_bytes <= 2 * position + (2 << 20)


def _frames() -> list[bytes]:
    many = b"".join(struct.pack(">i", len(each)) + each for each in _requests()[:30])
    return [bytes([size, shift]) + many for size in (1, 7, 255) for shift in (0, 3, 7)]


# ---- record batches ------------------------------------------------------------------------------

_CONFIGS = [
    LogConfig({}),
    LogConfig({"cleanup.policy": "compact"}),
    LogConfig({"compression.type": "gzip"}),
    LogConfig({"compression.type": "zstd"}),
    LogConfig({"message.timestamp.type": "LogAppendTime"}),
    LogConfig({"message.timestamp.before.max.ms": 1000}),
]


def _run_batch(data: bytes) -> None:
    """The first byte chooses the topic's settings, the second the version of Produce."""
    if len(data) < 2:
        return
    config, version = _CONFIGS[data[0] % len(_CONFIGS)], 3 + data[1] % 11
    with suppress(ProtocolError):
        for position, header in iter_batches(data[2:]):
            for _ in iter_records(data[2:], position):
                pass
            assert header.size_in_bytes > 0
    records = memoryview(bytearray(data[2:]))
    if config.keeps_batches and place_plain(records, 1000, 7, NOW, config) is not None:
        return
    target = AppendTarget(1000, 7, NOW, config, TopicPartition("t", 0), version)
    inspection = None
    try:
        validated = validate_slowly(records, target)
    except TooMuchAtOnceError as error:
        inspection = error.inspection
        inspection.keep_own_copy()
        inspection.decompress()
        for _ in inspection.check():
            pass
        inspection.recompress()
        validated = validate_slowly(records, target, inspection)
    assert validated.header.base_offset == 1000


def _batches() -> list[bytes]:
    records = [Record(n, NOW + n, b"k%d" % n, b"v" * 40, (("h", b"x"),)) for n in range(5)]
    kinds: list[dict[str, Any]] = [{"codec": codec} for codec in range(5)]
    kinds.append({"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True})
    kinds.append({"control": True, "producer_id": 7, "producer_epoch": 0})
    return [
        bytes([number, 9]) + build_batch(records, **kind)
        for number in range(len(_CONFIGS))
        for kind in kinds
    ]


def _mutated_batch(data: bytes, seed: int) -> bytes:
    changed = mutated(data, seed)
    return changed if seed % 4 == 0 else changed[:2] + with_checksums(changed[2:])


def _run_compression(data: bytes) -> None:
    if data:
        assert len(decompress(data[0] % 8, data[1:], 1 << 20)) <= 1 << 20


def _compressed() -> list[bytes]:
    texts = (b"", b"abc" * 100, bytes(range(256)) * 40, bytes(3000))
    return [bytes([codec]) + compress(codec, text) for codec in Codec for text in texts]


# ---- what is within requests ---------------------------------------------------------------------

_NONCE = "nonce"
_CREDENTIAL = UserScramCredentialRecord(
    name="u",
    mechanism=1,
    salt=b"s" * 16,
    stored_key=hashlib.sha256(b"k" * 32).digest(),
    server_key=b"e" * 32,
    iterations=4096,
)
_SCRAM = SCRAM["SCRAM-SHA-256"]
_CREDENTIALS = Credentials(
    lambda name, _: _CREDENTIAL if name == "u" else None,
    lambda name, _: TokenLogin("u", NOW, _CREDENTIAL) if name == "t" else None,
)
_RULES = Rules.of("", {})


def _run_sasl(data: bytes) -> None:
    """Tokens, each behind a byte of length; the first byte chooses the mechanism."""
    if not data:
        return
    exchange: Any = (
        PlainServer({"u": "p"}),
        ScramServer(_SCRAM, _CREDENTIALS, lambda: _NONCE),
        BearerServer(lambda value: _RULES.verify(value, NOW)),
    )[data[0] % 3]
    position = 1
    while position < len(data):
        size = data[position]
        exchange.evaluate(data[position + 1 : position + 1 + size])
        position += 1 + size


def _proved(first: str) -> list[bytes]:
    """Both messages of a client that knows the key of `_CREDENTIAL`."""
    bare = first.split(",", 2)[2]
    answer = ScramServer(_SCRAM, _CREDENTIALS, lambda: _NONCE).evaluate(first.encode()).decode()
    final = f"c=biws,{answer.partition(',')[0]}"
    said = f"{bare},{answer},{final}".encode()
    signature = hmac.digest(_CREDENTIAL.stored_key, said, _SCRAM.hash_name)
    proof = bytes(each ^ ord("k") for each in signature)
    return [first.encode(), f"{final},p={base64.b64encode(proof).decode()}".encode()]


def _bearer(claims: object, more: str = "") -> bytes:
    header, body = (
        base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=")
        for each in ({"alg": "none"}, claims)
    )
    return f"n,,\x01auth=Bearer {header}.{body}.\x01{more}\x01".encode()


def _sasl() -> list[bytes]:
    end = {"sub": "u", "exp": 4102444800}
    conversations = [
        (0, [b"\0u\0p"]),
        (0, [b"u\0u\0p"]),
        (0, [b"u\0u\0other"]),
        (1, _proved("n,,n=u,r=abc")),
        (1, _proved("n,a=u,n=u,r=abc,x=1")),
        (1, _proved("n,,n=t,r=abc,tokenauth=true")),
        (1, [b"n,,n=u,r=abc", b"c=biws,r=abcnonce,p=" + b"A" * 44]),
        (2, [_bearer(end)]),
        (2, [_bearer(end | {"iat": 1, "scope": ["a", "b"]}, "x=y\x01")]),
        (2, [_bearer({"sub": "u", "exp": 1})]),
        (2, [b"n,a=u,\x01auth=Bearer a.b.c\x01x=y\x01\x01", b"\x01"]),
    ]
    return [
        bytes([mechanism]) + b"".join(bytes([len(each)]) + each for each in tokens)
        for mechanism, tokens in conversations
    ]


def _run_otlp(data: bytes) -> None:
    if data:
        otlp.decode(data[0] % 5, data[1:], 1 << 20)


def _otlp() -> list[bytes]:
    point = b"\x19" + struct.pack("<Q", 1) + b"\x21" + struct.pack("<d", 1.5)
    attribute = b"\x3a\x0a\x0a\x01a\x12\x05\x0a\x03abc"
    points = _field(1, point + attribute)
    metrics = [_field(1, b"org.apache.kafka.x") + _field(kind, points) for kind in (5, 7, 9, 10)]
    scope = _field(2, b"".join(_field(2, metric) for metric in metrics))
    resource = _field(1, _field(1, b"\x0a\x01k\x12\x03\x0a\x01v")) + scope
    return [bytes([codec]) + compress(codec, _field(1, resource)) for codec in range(5)]


def _field(number: int, content: bytes) -> bytes:
    assert len(content) < 1 << 14
    length = bytes([len(content) & 0x7F | 0x80, len(content) >> 7])
    return bytes([number << 3 | 2]) + length + content


def _run_embedded(data: bytes) -> None:
    with suppress(ProtocolError):
        subscription_of(data)
    assignment_of(data)


def _run_properties(data: bytes) -> None:
    from tidelog.config.properties import parse_properties

    text = data.decode("utf-8", "replace")
    BrokerConfig.from_properties(parse_properties(text))


_EMBEDDED = [
    b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff",
    b"\0\x03\0\0\0\x01\0\x01t\0\0\0\0\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\0\0\0\0\x05\0\x01r",
]

WIRE_TARGETS = [
    Target("requests", _run_request, (ProtocolError,), _requests, _mutated_request),
    Target("responses", _run_response, (ProtocolError,), _responses, _mutated_response),
    Target("frames", _run_frames, (ProtocolError,), _frames),
    Target("batches", _run_batch, (StorageError,), _batches, _mutated_batch),
    Target("compression", _run_compression, (ProtocolError,), _compressed),
    Target("sasl", _run_sasl, (RefusedError, ProtocolError), _sasl),
    Target("otlp", _run_otlp, (ProtocolError,), _otlp),
    Target("embedded", _run_embedded, (ProtocolError,), partial(list, _EMBEDDED)),
]
