"""Rates over windows and buckets of tokens; figures are those of Kafka's Rate and TokenBucket."""

from __future__ import annotations

import pytest

from tidelog.quotas.windows import RateWindows, TokenBucket


def test_a_rate_is_that_of_all_windows_from_the_first_event_on() -> None:
    rate = RateWindows(11, 1)
    assert rate.rate(0) == 0
    rate.record(1000, 0)
    assert rate.rate(0) == 100
    assert rate.rate(500) == pytest.approx(1000 / 10.5)
    rate.record(500, 500)
    assert rate.rate(999) == pytest.approx(1500 / 10.999)
    assert rate.rate(5_250) == pytest.approx(1500 / 10.25)


def test_windows_are_forgotten_one_by_one() -> None:
    rate = RateWindows(3, 1)
    for second in range(3):
        rate.record(100, 1000 * second)
    assert rate.rate(2_999) == pytest.approx(300 / 2.999)
    assert rate.rate(3_000) == pytest.approx(200 / 2.0)
    assert rate.rate(4_999) == pytest.approx(100 / 2.999)
    assert rate.rate(5_000) == 0


def test_what_is_taken_back_does_not_count() -> None:
    rate = RateWindows(11, 1)
    rate.record(1000, 100)
    rate.record(5000, 200)
    rate.record(-5000, 200)
    assert rate.rate(200) == pytest.approx(1000 / 10.1)


@pytest.mark.parametrize(
    ("used", "limit", "now_ms", "expected"),
    [(1000, 100, 0, 0), (1001, 100, 0, 10), (2000, 100, 0, 10_000), (2000, 100, 500, 9_500)],
)
def test_the_throttle_time_is_what_the_excess_takes_at_the_limit(
    used: int, limit: int, now_ms: int, expected: int
) -> None:
    rate = RateWindows(11, 1)
    rate.record(used, 0)
    assert rate.throttle_ms(limit, now_ms) == expected
    assert rate.throttle_ms(limit, 11_000) == 0


def test_many_windows_are_bounded() -> None:
    rate = RateWindows(2, 1)
    for number in range(100):
        rate.record(1, 1000 * number)
    assert rate.rate(99_000) == pytest.approx(2 / 1.0)


def test_a_bucket_is_full_at_first_and_takes_on_debt() -> None:
    bucket = TokenBucket(11, 1)
    assert bucket.tokens(5, 1_000) == 55
    bucket.take(70, 5, 1_000)
    assert bucket.throttle_ms(5, 1_000) == 3_000
    assert bucket.throttle_ms(5, 3_000) == 1_000
    assert bucket.throttle_ms(5, 4_000) == 0
    assert bucket.tokens(5, 5_000) == 5
    assert bucket.tokens(5, 100_000) == 55
