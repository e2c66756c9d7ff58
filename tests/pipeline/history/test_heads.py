"""Where records begin: lanes find the same as a walk through all, whatever is in the records."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest

pytest.importorskip("numpy", reason="the spark extra is not installed")

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_pipeline.history import heads
from tidelog_pipeline.history.heads import PADDING, heads_of
from tidelog_protocol.batch import HEADER_BYTES
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.records import Record, build_batch

LANE_RECORDS = 8
COUNT = 100


def payload(values: list[bytes]) -> bytes:
    """The records of one batch."""
    records = [Record(n, 5 * n, None, value) for n, value in enumerate(values)]
    return bytes(build_batch(records))[HEADER_BYTES:]


def found(payloads: list[bytes], counts: list[int], *, gapless: bool = True) -> list[int]:
    edges = [0, *accumulate(map(len, payloads))]
    data = b"".join([*payloads, PADDING])
    every = np.array(counts, dtype=np.int64)
    return heads_of(data, edges, every, [gapless] * len(counts)).tolist()


@pytest.fixture
def followed(monkeypatch) -> list[int]:
    """How many lanes were followed, of each try."""
    lanes = []
    real = heads._followed

    def follow(data, edges, counts):
        lanes.append(len(counts))
        return real(data, edges, counts)

    monkeypatch.setattr(heads, "_followed", follow)
    monkeypatch.setattr(heads, "_LANE_RECORDS", LANE_RECORDS)
    return lanes


def test_a_large_batch_is_cut_into_lanes(followed) -> None:
    chance = random.Random(1)
    payloads = [
        payload([chance.randbytes(chance.randrange(low, 300)) for _ in range(COUNT)])
        for low in (0, 100, 200)
    ]
    cut = found(payloads, [COUNT] * 3)
    assert cut == found(payloads, [COUNT] * 3, gapless=False)
    assert followed == [followed[0], 3]
    assert followed[0] > 2 * COUNT // LANE_RECORDS


def test_values_that_look_like_records_change_nothing(followed) -> None:
    inner = payload([b"x" * 9] * COUNT)
    payloads = [payload([inner if n % 10 == 5 else b"" for n in range(COUNT)]), payload([b"y"] * 9)]
    cut = found(payloads, [COUNT, 9])
    assert cut == found(payloads, [COUNT, 9], gapless=False)
    assert len(followed) == 3, "the guesses were right: the test proves nothing"


@pytest.mark.parametrize("value", [b"", bytes(50), b"\xff" * 70, b"\x80" * 90])
def test_values_of_one_byte_are_cut_as_well(followed, value: bytes) -> None:
    payloads = [payload([value] * COUNT)]
    assert found(payloads, [COUNT]) == found(payloads, [COUNT], gapless=False)
    assert followed[0] > 1


def test_records_that_do_not_fill_their_payload_are_an_error(followed) -> None:
    whole = payload([b"value"] * COUNT)
    for payloads, count in (([whole[:-1]], COUNT), ([whole], COUNT - 1), ([b""], COUNT)):
        with pytest.raises(ProtocolError):
            found(payloads, [count])


@settings(deadline=None)
@given(st.data())
def test_damage_is_found_with_lanes_as_without(data) -> None:
    damaged = bytearray(payload([b"value" * (n % 7) for n in range(COUNT)]))
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heads, "_LANE_RECORDS", LANE_RECORDS)
        results = []
        for gapless in (True, False):
            try:
                results.append(found([bytes(damaged)], [COUNT], gapless=gapless))
            except ProtocolError:
                results.append([])
    assert results[0] == results[1]
