"""The topic that an operation reads: which offsets are meant, and the splits of them."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidelog.cli.common import CommandError
from tidelog.cli.positions import time_ms
from tidelog.embedded.cluster_settings import ClusterError
from tidelog_pipeline.history import HistoryOptions, plan
from tidelog_pipeline.history.client import EARLIEST, KAFKA_PREFIX, LATEST
from tidelog_pipeline.history.history import connected
from tidelog_pipeline.history.options import BOOTSTRAP_SERVERS, STORE_CLASS, STORE_PREFIX
from tidelog_pipeline.operations.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from tidelog_pipeline.history.client import HistoryClient
    from tidelog_pipeline.history.history import Plan

__all__ = ["Source"]

Ranges = dict[int, tuple[int, int]]
# What is read, and how its rows look, is the operation's own: startingTimestamp would go before its
# offsets.
_OPTIONS = frozenset({"failondataloss", "minpartitions", STORE_CLASS})


@dataclass(frozen=True, slots=True)
class Source:
    """A topic of a cluster. `options` are those of the Kafka source and of the remote store that
    say how to read, as `Cluster.client_config("spark")` gives them; OperationError for another
    one."""

    bootstrap_servers: str
    topic: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for given, value in self.options.items():
            name = given.lower()
            is_other_cluster = name == BOOTSTRAP_SERVERS and value != self.bootstrap_servers
            is_clients = name.startswith((KAFKA_PREFIX, STORE_PREFIX)) and not is_other_cluster
            if not is_clients and name not in _OPTIONS:
                raise OperationError(
                    f"{given} is no option here: there are failOnDataLoss, minPartitions, those of "
                    f"a client ({KAFKA_PREFIX}NAME) and of the remote store ({STORE_PREFIX}NAME)"
                )

    @property
    def isolation_level(self) -> str:
        """`read_committed`, unless the options say otherwise."""
        given = {name.lower(): text for name, text in self.options.items()}
        return given.get("kafka.isolation.level", "read_committed")

    def given(self, ranges: Ranges | None = None) -> dict[str, str]:
        """The options of `format("tidelog")` for these offsets, or all."""
        options = {
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
            **self.options,
            "kafka.bootstrap.servers": self.bootstrap_servers,
        }
        if ranges is None:
            return options | {"subscribe": self.topic}
        starts = {str(partition): start for partition, (start, _) in ranges.items()}
        ends = {str(partition): end for partition, (_, end) in ranges.items()}
        return options | {
            "assign": json.dumps({self.topic: sorted(ranges)}),
            "startingOffsets": json.dumps({self.topic: starts}),
            "endingOffsets": json.dumps({self.topic: ends}),
        }

    @contextmanager
    def connected(self) -> Iterator[HistoryClient]:
        """Connections to the brokers. OperationError if they can't answer."""
        try:
            options = HistoryOptions.parse(self.given())
            with connected(options) as client:
                yield client
        except (ClusterError, OSError, ValueError) as error:
            raise OperationError(str(error)) from None

    def plan(self, ranges: Ranges) -> Plan:
        """The splits of these offsets. DataLossError if some are gone."""
        try:
            return plan(HistoryOptions.parse(self.given(ranges)))
        except (ClusterError, OSError, ValueError) as error:
            raise OperationError(str(error)) from None

    def frame(self, spark: SparkSession, ranges: Ranges, schema: str | None = None) -> DataFrame:
        """The records with these offsets."""
        reader: Any = spark.read.format("tidelog")
        if schema is not None:
            reader = reader.schema(schema)
        frame: DataFrame = reader.options(**self.given(ranges)).load()
        return frame

    def ranges(self, start: str | None, end: str) -> tuple[str, Ranges]:
        """The topic's id, and [start, end) by partition. A place is `earliest`, `latest`, an offset
        or a time. OperationError if there is no such topic or place."""
        with self.connected() as client:
            topic_id, partitions = client.partitions_of(self.topic)
            named = [(self.topic, each) for each in partitions]
            earliest = client.offsets(dict.fromkeys(named, EARLIEST))
            latest = client.offsets(dict.fromkeys(named, LATEST))
            bounds = {each: (earliest[each], latest[each]) for each in named}
            starts = self._places(client, start or "earliest", bounds)
            ends = self._places(client, end, bounds)
            found = {}
            for each in named:
                first, after = starts[each], ends[each]
                if first > after:
                    name = f"{self.topic}-{each[1]}"
                    raise OperationError(f"{name}: the range begins at {first} and ends at {after}")
                found[each[1]] = (first, after)
        return topic_id.hex(), found

    def _places(
        self, client: HistoryClient, text: str, bounds: Mapping[tuple[str, int], tuple[int, int]]
    ) -> dict[tuple[str, int], int]:
        """The offset of a place in each partition. `bounds` are their first and next offsets."""
        if text in ("earliest", "latest"):
            return {each: bound[text == "latest"] for each, bound in bounds.items()}
        if text.isascii() and text.isdigit():
            for (topic, partition), (earliest, latest) in bounds.items():
                if not earliest <= int(text) <= latest:
                    name = f"{topic}-{partition}"
                    raise OperationError(f"{name} has offsets {earliest} to {latest}, not {text}")
            return dict.fromkeys(bounds, int(text))
        try:
            time = time_ms(text)
        except CommandError as error:
            raise OperationError(str(error)) from None
        offsets = client.offsets(dict.fromkeys(bounds, time))
        return {
            each: latest if offsets[each] < 0 else min(max(offsets[each], earliest), latest)
            for each, (earliest, latest) in bounds.items()
        }
