"""Counts the visits of each page, with Faust. The counts are in a table, and so in a topic."""

from __future__ import annotations

import faust


class Visit(faust.Record, serializer="json"):
    """What a web server writes."""

    page: str


def new_app(servers: str) -> faust.App:
    """One worker: counts what comes in `visits`, and writes each new count to `counts`."""
    app = faust.App(
        "visits-counter",
        broker=[f"kafka://{server}" for server in servers.split(",")],
        store="memory://",
        topic_partitions=1,
        web_enabled=False,
        broker_commit_every=1,
    )
    visits = app.topic("visits", value_type=Visit)
    counts = app.topic("counts", value_serializer="json")
    table = app.Table("counts-by-page", default=int)

    @app.agent(visits)
    async def count(stream):
        async for visit in stream:
            table[visit.page] += 1
            await counts.send(key=visit.page, value=table[visit.page])

    return app
