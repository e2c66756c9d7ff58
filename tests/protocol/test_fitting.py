"""Answers that do not fit their fields, and strings that no field can hold."""

from __future__ import annotations

import struct

import pytest

from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.fitting import fit
from tidelog_protocol.messages.admin import CreateTopicsResponse
from tidelog_protocol.messages.group_admin import DescribeGroupsResponse
from tidelog_protocol.messages.groups import HeartbeatRequest
from tidelog_protocol.primitives import write_uvarint

LONG = "é" * 20_000  # two bytes each
CUT = "é" * 16_383


@pytest.mark.parametrize("version", [4, 5])
def test_a_string_that_is_too_long_is_cut_and_the_error_stays(version: int) -> None:
    Result = CreateTopicsResponse.CreatableTopicResult  # noqa: N806 - short
    answer = CreateTopicsResponse(
        topics=[
            Result(name="a", error_code=ErrorCode.INVALID_CONFIG, error_message=LONG),
            Result(name="b"),
        ]
    )
    good = codec(CreateTopicsResponse, version)
    with pytest.raises(struct.error):
        good.encode(answer)
    assert not fit(answer)
    first, second = good.decode(good.encode(answer)).topics
    assert (first.error_code, first.error_message) == (ErrorCode.INVALID_CONFIG, CUT)
    assert second.error_code == ErrorCode.NONE


def test_what_is_changed_without_an_error_gets_one_at_the_nearest_place() -> None:
    Group = DescribeGroupsResponse.DescribedGroup  # noqa: N806 - short
    member = Group.DescribedGroupMember(member_id=LONG)
    answer = DescribeGroupsResponse(groups=[Group(group_id="a", members=[member]), Group()])
    assert not fit(answer)
    assert answer.groups[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert answer.groups[0].members[0].member_id == CUT
    assert answer.groups[1] == Group()


def test_a_number_out_of_range_becomes_the_nearest() -> None:
    answer = CreateTopicsResponse(throttle_time_ms=1 << 40)
    assert fit(answer), "no place has a code for it"
    assert answer.throttle_time_ms == (1 << 31) - 1


def heartbeat(group: bytes, version: int) -> bytes:
    """A Heartbeat with these bytes for its group id."""
    rest = codec(HeartbeatRequest, version).encode(HeartbeatRequest())
    if version == 3:
        return struct.pack(">h", len(group)) + group + rest[2:]
    return write_uvarint(len(group) + 1) + group + rest[1:]


@pytest.mark.parametrize(
    ("version", "group"), [(4, b"x" * 32_768), (3, b"\xff" * 10_923), (4, b"\xff" * 10_923)]
)
def test_a_string_that_no_answer_can_hold_is_refused(version: int, group: bytes) -> None:
    """Kafka refuses compact strings above 32767 bytes; what is not UTF-8 grows when it is read."""
    decode = codec(HeartbeatRequest, version).decode
    with pytest.raises(ProtocolError, match="a string of more than 32767 bytes"):
        decode(heartbeat(group, version))
    shorter = heartbeat(group[:10_922], version)
    assert len(decode(shorter).group_id) == 10_922
    assert decode(heartbeat(b"x" * 32_767, version)).group_id == "x" * 32_767
