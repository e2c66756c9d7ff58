"""Kafka's own kafka-producer-perf-test and kafka-consumer-perf-test, each in a JVM of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidelog_bench.loads.load import Load, Moved, output_of
from tidelog_bench.peers import kafka_jars

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog_bench.loads.load import Work
    from tidelog_bench.peers.peer import Served

__all__ = ["JavaTools", "run_java"]

# As bin/kafka-producer-perf-test.sh of the distribution.
_JVM = ("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
_SENT = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec")
_FETCHED_COLUMN = 4
_FETCH_RATE_COLUMN = 9


class JavaTools(Load):
    """The Java clients as Kafka itself measures them."""

    name = "java"

    def produce(self, peer: Served, work: Work) -> Moved:
        """The last line of the tool speaks of all records."""
        properties = ["acks=all"]
        if work.batches.bytes_max is not None:
            properties.append(f"batch.size={work.batches.bytes_max}")
            properties.append("buffer.memory=67108864")
        if work.batches.linger_ms is not None:
            properties.append(f"linger.ms={work.batches.linger_ms}")
        properties += _security(peer)
        output = _run(
            "ProducerPerformance",
            ["--bootstrap-server", peer.bootstrap, "--topic", work.topic],
            ["--num-records", str(work.records), "--record-size", str(work.record_bytes)],
            ["--throughput", "-1", "--command-property", *properties],
        )
        lines = [match for line in output.splitlines() if (match := _SENT.match(line))]
        assert lines, f"no figures from the producer: {output}"
        records, rate = int(lines[-1][1]), float(lines[-1][2])
        assert records == work.records, f"{records} of {work.records} records were sent"
        return Moved(records, records / rate)

    def consume(self, peer: Served, work: Work) -> Moved:
        """Its rate without the time of the group's first rebalance."""
        properties = ["auto.offset.reset=earliest", *_security(peer)]
        output = _run(
            "ConsumerPerformance",
            ["--bootstrap-server", peer.bootstrap, "--topic", work.topic],
            ["--num-records", str(work.records), "--group", f"{work.topic}-java"],
            [word for each in properties for word in ("--command-property", each)],
            ["--hide-header", "--timeout", "60000"],
        )
        cells = [cell.strip() for cell in output.strip().splitlines()[-1].split(",")]
        records, rate = int(cells[_FETCHED_COLUMN]), float(cells[_FETCH_RATE_COLUMN])
        assert records >= work.records, f"{records} of {work.records} records came"
        return Moved(records, records / rate)


def _security(peer: Served) -> list[str]:
    """Return the properties of its TLS, if it has some."""
    if peer.authority is None:
        return []
    store = [f"ssl.truststore.location={peer.authority}", "ssl.truststore.type=PEM"]
    return ["security.protocol=SSL", *store]


def run_java(main: str, *options: Sequence[str]) -> str:
    """What a class of the jars printed, or a source file that is compiled as it starts."""
    arguments = [word for words in options for word in words]
    classpath = ["-cp", kafka_jars.classpath()]
    return output_of([kafka_jars.java(), *_JVM, _QUIET, *classpath, main, *arguments])


def _run(tool: str, *options: Sequence[str]) -> str:
    return run_java(f"org.apache.kafka.tools.{tool}", *options)
