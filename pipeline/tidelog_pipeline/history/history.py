"""A query's options as splits, with what each task needs beside."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidelog.embedded.cluster_client import reached
from tidelog_pipeline.history.client import HistoryClient
from tidelog_pipeline.history.decoder import COLUMNS, HEADERS
from tidelog_pipeline.history.offsets import ranges_of
from tidelog_pipeline.history.options import STORE_CLASS, STORE_PREFIX
from tidelog_pipeline.history.planner import cut
from tidelog_pipeline.history.reader import ReadSettings
from tidelog_pipeline.history.views import check_range, split_of, views_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidelog_pipeline.history.options import HistoryOptions
    from tidelog_pipeline.history.planner import Split

__all__ = ["Plan", "columns_of", "connected", "plan", "plan_ranges"]

SPLIT_BYTES = 128 << 20  # what Spark takes of a file for one task
SPLITS_MAX = 20_000  # of larger queries: Spark's driver has each task's plan in its memory
_PREFIX = "remote.log.storage.manager.impl.prefix"

Plan = tuple[list["Split"], ReadSettings]
"""The splits of a query, and what each of its tasks needs beside."""


def columns_of(options: HistoryOptions) -> list[str]:
    """The columns of the Kafka source with these options."""
    return [name for name in COLUMNS if options.includes_headers or name != HEADERS]


@contextmanager
def connected(options: HistoryOptions) -> Iterator[HistoryClient]:
    """Connections to the query's brokers. ClusterError if none answers."""
    servers = options.bootstrap_servers
    with reached(servers):
        client = HistoryClient(
            servers, is_committed=options.is_committed, properties=dict(options.security)
        )
    with client:
        with reached(servers):  # a broker closes a connection that is not secured as it should be
            client.nodes()
        yield client


def plan(options: HistoryOptions) -> Plan:
    """The splits of a batch query. ClusterError, OSError, ValueError, DataLossError."""
    with connected(options) as client:
        return plan_ranges(client, options, ranges_of(client, options))


def plan_ranges(
    client: HistoryClient,
    options: HistoryOptions,
    ranges: Mapping[tuple[str, int], tuple[int, int]],
) -> Plan:
    """The splits of these offsets [start, end) by partition."""
    settings = _settings(client, options)
    whole = []
    for topic in dict.fromkeys(topic for topic, _ in ranges):
        partitions = [partition for name, partition in ranges if name == topic]
        for log in views_of(client, topic, partitions):
            bounds = check_range(
                log, *ranges[topic, log.partition], fails=options.fails_on_data_loss
            )
            if bounds[0] < bounds[1]:
                is_committed = options.is_committed
                whole.append(split_of(client, log, *bounds, is_committed=is_committed))
    return _cut_all(whole, options.partitions_min), settings


def _cut_all(whole: Sequence[Split], partitions_min: int) -> list[Split]:
    size = max(1, sum(split.size for split in whole))
    target = max(SPLIT_BYTES, size // SPLITS_MAX)
    if partitions_min > len(whole):
        target = max(1, min(target, size // partitions_min))
    return [part for split in whole for part in cut(split, -(-split.size // target))]


def _settings(client: HistoryClient, options: HistoryOptions) -> ReadSettings:
    """The brokers' store, with the query's own properties over it."""
    store = {name: text for name, text in client.broker_settings().items() if text is not None}
    prefix = store.get(_PREFIX) or STORE_PREFIX
    kept = {name: text for name, text in store.items() if name in (STORE_CLASS, _PREFIX)}
    kept |= {name: text for name, text in store.items() if name.startswith(prefix)}
    kept |= {prefix + name: text for name, text in options.store}
    return ReadSettings(
        bootstrap_servers=options.bootstrap_servers,
        is_committed=options.is_committed,
        fails_on_data_loss=options.fails_on_data_loss,
        store=tuple(sorted(kept.items())),
        store_class=options.store_class,
        security=options.security,
    )
