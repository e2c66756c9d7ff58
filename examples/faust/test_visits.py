"""Workers run in the event loop of the test, one after the other: the counts outlive them."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from visits import new_app

from tidelog.testing.records import TopicRecord, assert_records, produce

pytestmark = pytest.mark.anyio
CHANGELOG = "visits-counter-counts-by-page-changelog"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def servers(tidelog_cluster):
    """A broker with the topics, empty again after the test."""
    tidelog_cluster.create_topic("visits")
    tidelog_cluster.create_topic("counts")
    yield tidelog_cluster.bootstrap_servers
    tidelog_cluster.reset()


@contextlib.asynccontextmanager
async def worker(servers: str):
    app = new_app(servers)
    await app.start()
    try:
        yield app
    finally:
        await app.stop()


async def visit(servers: str, *pages: str) -> None:
    """Write visits. The kit's calls block: a thread makes them."""
    await asyncio.to_thread(produce, servers, "visits", [f'{{"page": "{page}"}}' for page in pages])


async def assert_counts(servers: str, *counts: tuple[str, int]) -> None:
    """Wait until these counts were written, and no others."""
    records = [TopicRecord(b"%d" % count, key=page.encode()) for page, count in counts]
    await asyncio.to_thread(assert_records, servers, "counts", records, timeout_s=60)


async def test_visits_are_counted(servers):
    async with worker(servers):
        await visit(servers, "home", "home", "cart")
        await assert_counts(servers, ("home", 1), ("home", 2), ("cart", 1))


async def test_the_next_worker_goes_on_with_the_counts(servers, tidelog_cluster):
    """It reads them from the changelog topic, of which compaction leaves the last ones."""
    async with worker(servers):
        await visit(servers, "home", "home", "cart")
        await assert_counts(servers, ("home", 1), ("home", 2), ("cart", 1))
    removed = await asyncio.to_thread(tidelog_cluster.topics.compact, CHANGELOG)
    assert removed == 1  # the first count of `home`
    async with worker(servers):
        await visit(servers, "home")
        await assert_counts(servers, ("home", 1), ("home", 2), ("cart", 1), ("home", 3))
