"""A figure that differs is found and named: the demo's own check can fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

pd = pytest.importorskip("pandas", reason="the demo extra is not installed")

from tidelog_pipeline.report import Checks, plot  # noqa: E402

RIGHT = pd.DataFrame({"carrier": ["AA", "UA"], "departures": [3, 5]})


def test_equal_tables_in_any_order_pass() -> None:
    checks = Checks()
    checks.table("delays", RIGHT.iloc[::-1], RIGHT)
    checks.number("rows", 8, 8)
    assert checks.failed == []


@pytest.mark.parametrize(
    "wrong",
    [
        RIGHT.assign(departures=[3, 6]),
        RIGHT.head(1),
        pd.concat([RIGHT, RIGHT.head(1)]),
        RIGHT.assign(carrier=["AA", "US"]),
    ],
)
def test_a_differing_value_or_row_fails(wrong: pd.DataFrame) -> None:
    checks = Checks()
    checks.table("delays", wrong, RIGHT)
    assert [check.name for check in checks.failed] == ["delays"]


def test_a_differing_number_fails() -> None:
    checks = Checks()
    checks.number("rows", 7, 8)
    assert [(check.from_spark, check.from_pandas) for check in checks.failed] == [("7", "8")]


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    figures = pd.DataFrame(
        {
            "carrier": ["AA", "UA"],
            "departures": [2, 4],
            "departure_delay": [10, 8],
            "arrivals": [2, 4],
            "arrival_delay": [-4, 2],
        }
    )
    days = pd.to_datetime(["2013-01-01", "2013-01-02"])
    daily = pd.DataFrame({"day": days, "departures": [3, 3], "late": [1, 2]})
    target = tmp_path / "delays.png"
    plot(figures, daily, target)
    assert target.read_bytes().startswith(b"\x89PNG")
