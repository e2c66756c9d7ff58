"""The series that clients pushed: values, limits and their end."""

from __future__ import annotations

import pytest

from tidelog.metrics import client_series
from tidelog.metrics.client_series import ClientSeries
from tidelog.metrics.meters import Labels, Sample
from tidelog.metrics.otlp import Point

ME: Labels = (("client_id", "me"),)


class Series(ClientSeries):
    """Series with a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(lambda: self.now_s)

    def shown(self) -> dict[str, list[float]]:
        return {
            family.name + ("_total" if family.is_counter else ""): [s.value for s in family.samples]
            for family in self.families()
        }


def gauge(name: str, value: float, *, adds: bool = False, labels: Labels = ()) -> Point:
    return Point(name, False, adds, labels, value)


def counter(name: str, value: float, *, adds: bool = True) -> Point:
    return Point(name, True, adds, (), value)


def test_deltas_are_added_up_and_gauges_replaced() -> None:
    series = Series()
    for value in (2.0, 3.0):
        points = [counter("c", value), counter("t", value, adds=False), gauge("g", value)]
        points.append(gauge("queue", value, adds=True))
        assert series.take(b"1", ME, points, 60) == 0
    assert series.shown() == {"c_total": [5], "g": [3], "queue": [5], "t_total": [3]}


def test_the_clients_own_labels_win() -> None:
    series = Series()
    series.take(b"1", ME, [gauge("g", 1, labels=(("client_id", "other"), ("topic", "t")))], 60)
    (family,) = series.families()
    assert family.samples == [Sample((("client_id", "me"), ("topic", "t")), 1)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_counter_cannot_be_that(value: float) -> None:
    series = Series()
    assert series.take(b"1", ME, [counter("c", value), gauge("g", 1)], 60) == 1
    assert series.shown() == {"g": [1]}


def test_a_name_is_of_one_kind() -> None:
    series = Series()
    series.take(b"1", ME, [gauge("n", 1)], 60)
    series.take(b"2", ME, [counter("n", 2)], 60)
    series.take(b"3", ME, [gauge("n", 3)], 60)
    assert series.shown() == {"n_total": [2]}


def test_series_end_with_the_pushes_of_their_client() -> None:
    series = Series()
    series.take(b"1", ME, [gauge("a", 1)], 60)
    series.now_s = 30
    series.take(b"2", ME, [gauge("b", 1)], 60)
    series.now_s = 60
    assert series.shown() == {"b": [1]}
    series.take(b"1", ME, [counter("a", 1)], 60)
    assert series.shown() == {"a_total": [1], "b": [1]}


def test_limits_of_one_client_and_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_series, "SERIES_OF_CLIENT_MAX", 3)
    monkeypatch.setattr(client_series, "SERIES_MAX", 5)
    series = Series()
    assert series.take(b"1", ME, [gauge(f"a{i}", 1) for i in range(5)], 60) == 2
    assert series.take(b"2", ME, [gauge("b", 1)], 60) == 0
    assert series.take(b"1", ME, [gauge("a0", 2)], 60) == 0
    assert series.take(b"3", ME, [gauge("c1", 1), gauge("c2", 1)], 60) == 0
    assert series.shown() == {"a0": [2], "a1": [1], "a2": [1], "c1": [1], "c2": [1]}
