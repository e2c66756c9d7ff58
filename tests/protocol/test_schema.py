"""The vocabulary of tables: what a class body becomes."""

from __future__ import annotations

import copy

import pytest

from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchResponse
from tidelog_protocol.schema import (
    Field,
    Message,
    Struct,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int32,
    record_data,
    string,
    struct,
    uuid,
    version_range,
)


class Sample(Message, api_key=9, versions="1-4", flexible="3+"):
    """A table of everything."""

    class Inner(Struct):
        number: int = int32(default=-1)

    flag: bool = boolean(default=True)
    small: int = int8("2-3")
    name: str = string()
    nothing: str | None = string(nullable="2+", default=None)
    data: bytes = bytes_()
    ratio: float = float64()
    identity: bytes = uuid()
    batches: object = record_data(nullable="0+")
    numbers: list[int] = array(int32)
    inners: list[Inner] | None = array(Inner, nullable="0+", default=None)
    single: Inner = struct(Inner)
    maybe: Inner | None = struct(Inner, nullable="0+")
    tagged: Inner | None = struct(Inner, "3+", tag=0)


def test_defaults_are_kafkas() -> None:
    made = Sample()
    assert made == Sample(
        flag=True,
        small=0,
        name="",
        nothing=None,
        data=b"",
        ratio=0.0,
        identity=bytes(16),
        batches=None,
        numbers=[],
        inners=None,
        single=Sample.Inner(number=-1),
        maybe=None,
        tagged=None,
    )


def test_lists_and_structures_are_not_shared_between_instances() -> None:
    one, other = Sample(), Sample()
    one.numbers.append(1)
    one.single.number = 5
    assert other.numbers == []
    assert other.single.number == -1


def test_instances_are_slotted_and_made_by_keywords_that_exist() -> None:
    made = Sample()
    assert not hasattr(made, "__dict__")
    with pytest.raises(AttributeError):
        made.nmae = "x"
    with pytest.raises(TypeError):
        Sample(nmae="x")
    with pytest.raises(TypeError):
        Sample("x")
    with pytest.raises(TypeError):
        Sample.Inner(numbre=1)


def test_equality_looks_at_the_class_and_all_fields() -> None:
    assert Sample(name="a") == Sample(name="a")
    assert Sample(name="a") != Sample(name="b")
    assert Sample.Inner() != FetchResponse.EpochEndOffset()
    assert Sample() != "Sample"
    with pytest.raises(TypeError):
        hash(Sample())


def test_instances_can_be_copied() -> None:
    made = Sample(numbers=[1], single=Sample.Inner(number=3))
    again = copy.deepcopy(made)
    assert again == made
    assert again.numbers is not made.numbers


def test_repr_reads_like_code() -> None:
    assert repr(Sample.Inner(number=3)) == "Sample.Inner(number=3)"
    assert "name='a'" in repr(Sample(name="a"))


def test_the_table_is_kept_in_wire_order() -> None:
    names = [field.name for field in Sample.FIELDS]
    assert names[:4] == ["flag", "small", "name", "nothing"]
    assert (Sample.VERSIONS, Sample.FLEXIBLE, Sample.API_KEY) == ("1-4", "3+", 9)
    small = Sample.FIELDS[1]
    assert [small.in_version(version) for version in range(5)] == [False, False, True, True, False]
    nothing = Sample.FIELDS[3]
    assert [nothing.nullable_in(version) for version in range(4)] == [False, False, True, True]
    assert not small.nullable_in(2)
    assert repr(small) == "<Field small: int8 2-3>"
    assert isinstance(small, Field)


@pytest.mark.parametrize(
    ("text", "first_and_last"), [("0+", (0, 32767)), ("3-7", (3, 7)), ("5", (5, 5))]
)
def test_version_ranges(text: str, first_and_last: tuple[int, int]) -> None:
    assert version_range(text) == first_and_last


def test_error_codes_may_stand_for_their_numbers() -> None:
    assert FetchResponse(error_code=ErrorCode.NONE) == FetchResponse(error_code=0)


def test_structures_are_reachable_under_their_message() -> None:
    assert FetchResponse.PartitionData is FetchResponse.FetchableTopicResponse.PartitionData
    assert FetchResponse.LeaderIdAndEpoch is FetchResponse.PartitionData.LeaderIdAndEpoch
