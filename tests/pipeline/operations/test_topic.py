"""The topic that an operation reads, as a user gives it. No broker."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tidelog_pipeline.operations import OperationError, Source


@pytest.mark.parametrize(
    "name",
    ["startingTimestamp", "subscribe", "includeHeaders", "isolation", "KAFKA.bootstrap.servers"],
)
def test_what_is_read_is_no_option(name: str) -> None:
    with pytest.raises(OperationError, match=f"^{name} is no option here"):
        Source("127.0.0.1:1", "t", {name: "1"})


def test_options_that_say_how_to_read_are_kept() -> None:
    given = {"kafka.Isolation.level": "read_uncommitted", "failOnDataLoss": "false"}
    given |= {"rsm.config.dir": "/tier", "minPartitions": "9"}
    source = Source("127.0.0.1:1", "t", given)
    assert source.isolation_level == "read_uncommitted"
    assert source.given().items() >= given.items()
