"""Cases: frames that are wrong, unknown or unusual; pipelining. Recorded: closed, or the answer."""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING

from compat.conformance.messages import APIS, decode, encode, request_payload
from compat.conformance.registry import case
from compat.conformance.session import CLOSED

if TYPE_CHECKING:
    from compat.conformance.session import Session


def header(api_key: int, version: int, client: bytes = b"\0\1x") -> bytes:
    return struct.pack(">hhi", api_key, version, 7) + client


def outcome(s: Session, label: str, data: bytes) -> None:
    """Send these bytes on a new connection; was it closed, or what came back?"""
    connection = s.connection(label)
    connection.send(data)
    with contextlib.suppress(OSError):  # it may be closed by now
        connection.shutdown_sending()
    frame = connection.read_frame()
    answer = dict(CLOSED) if frame is None else {"answered": True}
    s.record("frames", {"label": label, **answer})
    s.disconnect(label)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


@case("ApiVersions", last=0)
def sizes(s: Session, version: int) -> None:
    outcome(s, "negative", struct.pack(">i", -1) + b"x" * 20)
    outcome(s, "zero", struct.pack(">i", 0))
    outcome(s, "too large", struct.pack(">i", 104857601) + b"x" * 20)
    outcome(s, "TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 32)
    outcome(s, "HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    outcome(s, "torn", framed(header(18, 0))[:-2])


@case("ApiVersions", last=0)
def headers(s: Session, version: int) -> None:
    outcome(s, "shorter than a header", framed(b"\0\x12\0"))
    outcome(s, "unknown api", framed(header(999, 0)))
    outcome(s, "negative api", framed(header(-1, 0)))
    outcome(s, "metadata of version 99", framed(header(3, 99) + b"\0" * 20))
    outcome(s, "metadata of version -1", framed(header(3, -1) + b"\0" * 20))
    outcome(s, "produce of version 2", framed(header(0, 2) + b"\0" * 20))
    outcome(s, "controller's api", framed(header(52, 0) + b"\0" * 40))
    outcome(s, "client id longer than the frame", framed(header(18, 0, b"\x7f\xff")))
    outcome(s, "client id of length -2", framed(header(18, 0, b"\xff\xfe")))
    outcome(s, "null client id", framed(header(18, 0, b"\xff\xff")))
    outcome(s, "client id not UTF-8", framed(header(18, 0, b"\0\2\xff\xfe")))


@case("ApiVersions", last=0)
def bodies(s: Session, version: int) -> None:
    outcome(s, "no body", framed(header(3, 1)))
    outcome(s, "array longer than the frame", framed(header(3, 1) + b"\x7f\xff\xff\xff"))
    outcome(s, "bytes left over", framed(header(3, 1) + b"\0\0\0\0" + b"left over"))
    outcome(s, "string of length -1", framed(header(3, 1) + b"\0\0\0\1\xff\xff"))
    flexible = header(3, 12) + b"\0"
    outcome(s, "flexible, good", framed(flexible + b"\1" + b"\0\0\0"))
    outcome(s, "unknown tag in the header", framed(header(3, 12) + b"\1\x63\2ab\1\0\0\0"))
    outcome(s, "tag out of the frame", framed(header(3, 12) + b"\1\x63\x7f"))
    outcome(s, "varint too long", framed(flexible + b"\xff" * 11))


@case("ApiVersions", last=0)
def api_versions_fallback(s: Session, version: int) -> None:
    tables = APIS["ApiVersions"]
    for asked in (6, 99, 32767):
        connection = s.connection(str(asked))
        connection.send_frame(header(18, asked) + b"\0\5abcd\4ab\0")
        frame = connection.read_frame()
        s.record("ApiVersions", CLOSED if frame is None else decode(tables, 0, frame))
    outcome(s, "negative version", framed(header(18, -1)))


@case("ApiVersions", last=0)
def answers_in_order(s: Session, version: int) -> None:
    """Requests in one packet, a slow one first: answered one by one, in order."""
    name = s.topic()
    fetch = {
        "replica_id": -1,
        "max_wait_ms": 300,
        "min_bytes": 1,
        "max_bytes": 1000,
        "topics": [
            {
                "topic": name,
                "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}],
            }
        ],
    }
    wanted = [("Fetch", 4, fetch), ("ApiVersions", 0, {}), ("Metadata", 1, {"topics": []})]
    data = b""
    for number, (api, asked, fields) in enumerate(wanted):
        body = encode(APIS[api], asked, fields)
        data += framed(request_payload(APIS[api], asked, number, None, body))
    connection = s.connection("pipeline")
    connection.send(data)
    order = [int.from_bytes((connection.read_frame() or b"")[:4]) for _ in wanted]
    s.record("frames", {"order": order})
