"""Whatever the bytes: a message or ProtocolError, for every table and version."""

from __future__ import annotations

import contextlib
import random
import sys
from typing import Any

import pytest

from tidelog_protocol.apis import API
from tidelog_protocol.compiler import Codec, codec
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages import (
    consumer_protocol,
    consumer_records,
    coordinator_records,
    metadata_records,
    quorum_records,
    remote_metadata,
    share_group_records,
    streams_group_records,
)
from tidelog_protocol.messages.data import FetchRequest, ProduceRequest
from tidelog_protocol.schema import Message, Struct, version_range
from wire_values import filled, from_json


def tables() -> list[type[Message]]:
    found = [table for api in API.values() for table in (api.request, api.response)]
    found += metadata_records.RECORDS.values()
    found += quorum_records.CONTROL_RECORDS.values()
    found += remote_metadata.RECORDS.values()
    found += [getattr(coordinator_records, name) for name in coordinator_records.__all__]
    found += [getattr(consumer_protocol, name) for name in consumer_protocol.__all__]
    found += [table for pair in consumer_records.TABLES.values() for table in pair]
    found += [table for pair in share_group_records.TABLES.values() for table in pair]
    found += [table for pair in streams_group_records.TABLES.values() for table in pair]
    return found


def codecs(table: type[Message]) -> list[Codec[Any]]:
    first, last = version_range(table.VERSIONS)
    return [codec(table, version) for version in range(first, last + 1)]


every_table = pytest.mark.parametrize("table", tables(), ids=lambda table: table.__name__)


@every_table
def test_a_full_message_comes_back(table: type[Message]) -> None:
    for each in codecs(table):
        message = filled(table, each.version)
        data = each.encode(message)
        assert each.decode(data) == message
        assert each.decode(bytearray(data)) == message
        assert each.decode_whole(data) == message
        assert each.decode(data + b"more") == message
        with pytest.raises(ProtocolError, match="bytes left over"):
            each.decode_whole(data + b"more")
        shown = repr(message)
        if "=[hidden]" in shown:  # a secret
            assert table.__name__ in WITH_SECRETS
        else:
            assert eval(shown, vars(sys.modules[table.__module__])) == message


WITH_SECRETS = {
    "AlterUserScramCredentialsRequest",
    "CreateDelegationTokenResponse",
    "DescribeDelegationTokenResponse",
    "ExpireDelegationTokenRequest",
    "RenewDelegationTokenRequest",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "UserScramCredentialRecord",
}


@every_table
def test_bytes_missing_anywhere_are_a_protocol_error(table: type[Message]) -> None:
    for each in codecs(table):
        data = each.encode(filled(table, each.version))
        for cut in range(len(data)):
            with pytest.raises(ProtocolError):
                each.decode(data[:cut])


@every_table
def test_changed_bytes_give_a_message_or_a_protocol_error(table: type[Message]) -> None:
    chance = random.Random(table.__name__)
    for each in codecs(table):
        data = each.encode(filled(table, each.version))
        for _ in range(60):
            changed = bytearray(data)
            for _ in range(chance.choice((1, 1, 2, 5))):
                at = chance.randrange(len(changed) + 1)
                changed[at : at + chance.randrange(3)] = chance.choice(
                    (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80", b"\0", chance.randbytes(2))
                )
            decode_or_refuse(each, bytes(changed))
        for length in range(40):
            decode_or_refuse(each, chance.randbytes(length))


def decode_or_refuse(each: Codec[Any], data: bytes) -> None:
    try:
        message = each.decode(memoryview(data))
    except ProtocolError:
        return
    assert type(message) is each.message


@every_table
def test_unknown_tagged_fields_are_skipped(table: type[Message]) -> None:
    for each in codecs(table):
        if not each.flexible:
            continue
        message = table()
        data = each.encode(message)
        assert data[-1] == 0, "defaults leave the section of tagged fields empty"
        one = data[:-1] + b"\x01" + b"\x63" + b"\x03abc"
        two = data[:-1] + b"\x02" + b"\x62" + b"\0" + b"\xff\xff\x03" + b"\x80\x01" + b"?" * 128
        many = data[:-1] + b"\x80\x02" + b"\x63\0" * 256
        for known in (one, two, many):
            assert each.decode(known) == message
            with pytest.raises(ProtocolError):
                each.decode(known[:-1])
        with pytest.raises(ProtocolError):
            each.decode(data[:-1] + b"\x01\x63\xff\xff\xff\xff\x0f")


def elements(value: Any) -> int:
    """Count the elements of all arrays of a message, with those within them."""
    if isinstance(value, Struct):
        return sum(elements(getattr(value, field.name)) for field in value.FIELDS)
    return len(value) + sum(map(elements, value)) if isinstance(value, list) else 0


@every_table
def test_elements_and_tagged_fields_are_paid_from_one_budget(table: type[Message]) -> None:
    for each in codecs(table):
        sent = filled(table, each.version)
        data = each.encode(sent)
        count = least_budget(each, data)
        assert elements(sent) <= count
        if not each.flexible:
            assert count == elements(sent)
            continue
        data = each.encode(table())
        assert data[-1] == 0, "defaults leave the section of tagged fields empty"
        assert least_budget(each, data[:-1] + b"\x03" + b"\x63\0" * 3) == 3 + elements(table())


def least_budget(each: Codec[Any], data: bytes) -> int:
    """Return the smallest budget with which the bytes are decoded."""
    for budget in range(10_000):
        with contextlib.suppress(ProtocolError):
            each.decode(data, 0, budget)
            return budget
    raise AssertionError("no budget is enough")


@pytest.mark.parametrize("version", [4, 12])
def test_array_lengths_are_bounded_by_the_bytes_that_are_there(version: int) -> None:
    each = codec(FetchRequest, version)
    message = FetchRequest(topics=[FetchRequest.FetchTopic(topic="t")])
    data = each.encode(message)
    # The array of topics is followed by the name: int16 or compact length, and "t".
    huge = b"\x7f\xff\xff\xff" if version == 4 else b"\xff\xff\xff\xff\x0f"
    name, before = (b"\0\x01t", 4) if version == 4 else (b"\x02t", 1)
    at = data.index(name)
    with pytest.raises(ProtocolError, match="array beyond the end"):
        each.decode(data[: at - before] + huge + data[at:])


@pytest.mark.parametrize(
    ("version", "length"),
    [(3, "80000000"), (3, "fffffffe"), (3, "7fffffff"), (9, "ffffffff0f"), (9, "ffffffffff01")],
)
def test_lengths_of_records_are_checked(version: int, length: str) -> None:
    each = codec(ProduceRequest, version)
    data = {"topic_data": [{"name": "t", "partition_data": [{"index": 1, "records": "f00f"}]}]}
    good = each.encode(from_json(ProduceRequest, data))
    written = b"\0\0\0\x02" if version == 3 else b"\x03"
    at = good.index(written + b"\xf0\x0f")
    with pytest.raises(ProtocolError):
        each.decode(good[:at] + bytes.fromhex(length) + good[at + len(written) :])
