"""Delta and Iceberg tables that an export writes: one commit for each chunk, which names it.

What a table has is decided by its own log of commits. So an export says in its manifest what comes
next, commits, and confirms it; a run that was killed in between asks the table (`settle`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tidelog_pipeline.operations.errors import OperationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog_pipeline.operations.manifest import Manifest

__all__ = ["Commits", "Table", "open_table", "settle"]

_DATE = "date"
_NAME = "tidelog.chunk"  # of a snapshot of Iceberg
_APPLICATION = "tidelog-export"
_SCHEMA = (
    "key binary, value binary, topic string, `partition` int, `offset` bigint, "
    "`timestamp` timestamp, timestampType int, headers array<struct<key: string, value: binary>>"
)


class Commits(NamedTuple):
    """The records of each chunk that a table names, and whether that is all its history."""

    records: dict[str, int]
    is_whole: bool


class Table(Protocol):
    """A table at a place. Errors are Spark's and Py4J's."""

    def append(self, frame: DataFrame, number: int, name: str) -> None:
        """Add the rows of a chunk in one commit, which has its name."""

    def commits(self) -> Commits:
        """What the table has."""


def settle(manifest: Manifest, table: Table) -> None:
    """End the chunk that a run before announced: confirm it if the table has it.

    OperationError if the table's history is too short to tell.
    """
    chunk = manifest.announced()
    if chunk is None:
        return
    commits = table.commits()
    if chunk.staging in commits.records:
        manifest.confirm(chunk, commits.records[chunk.staging])
        return
    before = None if manifest.last is None else manifest.last.staging
    if not commits.is_whole and before not in commits.records:
        raise OperationError(
            "the table's history was cut since the last run: it does not say whether the table has "
            f"chunk {chunk.number}; export to a new place"
        )


def open_table(spark: SparkSession, table_format: str, place: str, *, by_date: bool) -> Table:
    """The table, which need not be there yet. OperationError if the session has no such tables."""
    jvm: Any = spark._jvm
    if table_format == "delta":
        _check(jvm.io.delta.tables.DeltaTable, table_format)
        return _Delta(spark, place, by_date=by_date)
    _check(jvm.org.apache.iceberg.hadoop.HadoopTables, table_format)
    return _Iceberg(spark, place, by_date=by_date)


def _check(class_: Any, table_format: str) -> None:
    if type(class_).__name__ == "JavaPackage":  # Py4J knows no class of this name
        raise OperationError(
            f"this session has not the jars of {table_format}: "
            f"session(table_format={table_format!r}) has"
        )


class _Delta:
    """A commit's user metadata is the chunk's name; a number that comes again is ignored (Delta's
    idempotent writes)."""

    def __init__(self, spark: SparkSession, place: str, *, by_date: bool) -> None:
        self._spark = spark
        self._place = place
        self._by_date = by_date

    def append(self, frame: DataFrame, number: int, name: str) -> None:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own idiom

        if self._by_date:
            frame = frame.withColumn(_DATE, F.to_date("timestamp"))
        writer = frame.write.format("delta").mode("append")
        if self._by_date:
            writer = writer.partitionBy(_DATE)
        options = {"txnAppId": _APPLICATION, "txnVersion": str(number), "userMetadata": name}
        writer.options(**options).save(self._place)

    def commits(self) -> Commits:
        table: Any = self._spark._jvm.io.delta.tables.DeltaTable  # type: ignore[union-attr]
        if not table.isDeltaTable(self._spark._jsparkSession, self._place):
            return Commits({}, is_whole=True)
        place = self._place.replace("`", "``")
        history = self._spark.sql(f"DESCRIBE HISTORY delta.`{place}`")
        rows = history.select("version", "userMetadata", "operationMetrics").collect()
        records = {
            name: int((metrics or {}).get("numOutputRows", 0)) for _, name, metrics in rows if name
        }
        return Commits(records, is_whole=any(version == 0 for version, _, _ in rows))


class _Iceberg:
    """A table without a catalog, by Iceberg's HadoopTables; a snapshot's summary has the name."""

    def __init__(self, spark: SparkSession, place: str, *, by_date: bool) -> None:
        self._spark = spark
        self._place = place
        self._by_date = by_date

    def append(self, frame: DataFrame, number: int, name: str) -> None:
        if not self._is_there():
            self._create()
        writer = frame.write.format("iceberg").mode("append")
        writer.option(f"snapshot-property.{_NAME}", name).save(self._place)

    def commits(self) -> Commits:
        if not self._is_there():
            return Commits({}, is_whole=True)
        rows = (
            self._spark.read.format("iceberg")
            .load(f"{self._place}#snapshots")
            .select("parent_id", "summary")
            .collect()
        )
        records = {
            summary[_NAME]: int(summary.get("added-records", 0))
            for _, summary in rows
            if _NAME in summary
        }
        return Commits(records, is_whole=not rows or any(parent is None for parent, _ in rows))

    def _tables(self) -> Any:
        jvm, context = self._spark._jvm, self._spark.sparkContext._jsc
        return jvm.org.apache.iceberg.hadoop.HadoopTables(  # type: ignore[union-attr]
            context.hadoopConfiguration()
        )

    def _is_there(self) -> bool:
        return bool(self._tables().exists(self._place))

    def _create(self) -> None:
        jvm: Any = self._spark._jvm
        given = jvm.org.apache.spark.sql.types.StructType.fromDDL(_SCHEMA)
        schema = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(given)
        spec = jvm.org.apache.iceberg.PartitionSpec.builderFor(schema)
        if self._by_date:
            spec = spec.day("timestamp")
        properties = jvm.java.util.HashMap()
        # A topic is in the order of its time, about: a task has few days, and needs no shuffle.
        properties.put("write.distribution-mode", "none")
        properties.put("write.spark.fanout.enabled", "true")
        self._tables().create(schema, spec.build(), properties, self._place)
