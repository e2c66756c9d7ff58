"""One SparkSession and one broker for the Spark tests; both are real."""

from __future__ import annotations

import asyncio
import itertools

import pytest

NAMES = itertools.count()


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A small session; the tests skip, saying why, where Spark can't run."""
    import tidelog_pipeline

    try:
        session = tidelog_pipeline.session(
            "tests",
            settings={
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                "spark.driver.memory": "1g",
            },
        )
    except (
        tidelog_pipeline.SparkMissingError,
        tidelog_pipeline.JavaMissingError,
        tidelog_pipeline.JarsMissingError,
    ) as missing:
        pytest.skip(str(missing))
    yield session
    session.stop()


@pytest.fixture
def topic(tidelog_bootstrap):
    """Creates topics of four partitions that keep old events; call it for a fresh name."""
    from tidelog_pipeline.replay import create_topic

    def create(partitions: int = 4) -> str:
        name = f"spark-{next(NAMES)}"
        asyncio.run(create_topic(tidelog_bootstrap, name, partitions, {"retention.ms": "-1"}))
        return name

    return create
