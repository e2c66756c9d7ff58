"""Error codes against kio's, and the three that are younger."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from tidelog_protocol.errors import ErrorCode, error_name


def test_codes_run_without_a_gap_as_kafka_4_4_has_them() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 137))


def test_names_and_retriability_are_kafkas() -> None:
    for theirs in KioErrorCode:
        ours = ErrorCode(int(theirs))
        assert ours.name == theirs.name.upper()
        assert ours.retriable == theirs.retriable, ours


def test_codes_that_kio_lacks() -> None:
    younger = [(code.name, code.retriable) for code in ErrorCode if code > 133]
    assert younger == [
        ("GROUP_DELETION_FAILED", False),
        ("STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED", False),
        ("CONTROLLER_ID_NOT_REGISTERED", False),
    ]


def test_codes_go_on_the_wire_as_numbers() -> None:
    assert ErrorCode.NONE == 0
    assert ErrorCode.UNKNOWN_SERVER_ERROR.to_bytes(2, "big", signed=True) == b"\xff\xff"


def test_an_error_has_its_name_or_its_number() -> None:
    assert error_name(ErrorCode.NOT_CONTROLLER) == "NOT_CONTROLLER"
    assert error_name(12345) == "12345"  # one that a newer broker sends
