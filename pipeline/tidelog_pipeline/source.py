"""`spark.read.format("tidelog")`: a topic's history straight from the remote tier.

Schema, options and errors are those of Spark's Kafka source, so that the format's name alone
changes. A reader plans in Spark's driver and reads one split in a task; both are processes of
Python that import this module. A stream's checkpoint holds the Kafka source's offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog_pipeline.history import HistoryOptions, columns_of, plan, read_split
from tidelog_pipeline.history.stream import StreamOffsets, StreamPlanner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidelog_pipeline.history.planner import Split
    from tidelog_pipeline.history.reader import ReadSettings

__all__ = ["TidelogDataSource"]

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}


class TidelogDataSource(DataSource):
    """Register it by `spark.dataSource.register(TidelogDataSource)`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tidelog"

    def schema(self) -> StructType:
        """All columns of the Kafka source. Fewer, which cost less, by `.schema(...)`."""
        headers = self.options.get("includeheaders", "false").lower() == "true"
        names = [name for name in _TYPES if headers or name != "headers"]
        return StructType([StructField(name, _TYPES[name]) for name in names])

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query. ValueError for a wrong option."""
        options = HistoryOptions.parse(self.options)
        return _BatchReader(options, _columns(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's
        """The reader of a stream. ValueError for a wrong option."""
        options = HistoryOptions.parse(self.options, is_stream=True)
        return _StreamReader(options, _columns(schema, options))


def _columns(schema: StructType, options: HistoryOptions) -> list[str]:
    """The schema's names; ValueError for a column that there is not, or of another type."""
    known = columns_of(options)
    for field in schema.fields:
        if field.name not in known:
            raise ValueError(f"there is no column {field.name}: the columns are {', '.join(known)}")
        if field.dataType != _TYPES[field.name]:
            expected = _TYPES[field.name].simpleString()
            raise ValueError(f"{field.name} is {expected}, not {field.dataType.simpleString()}")
    return [field.name for field in schema.fields]


class _SplitPartition(InputPartition):
    """What one task gets. Its `repr` has no property of the store."""

    def __init__(self, split: Split, settings: ReadSettings) -> None:
        super().__init__(split)
        self.settings = settings


def _partitions(splits: Sequence[Split], settings: ReadSettings) -> list[InputPartition]:
    return [_SplitPartition(split, settings) for split in splits]


def _read(partition: InputPartition | None, columns: Sequence[str]) -> Iterator[Any]:
    """Arrow batches of a partition; Spark makes a partition of None if there is none."""
    if not isinstance(partition, _SplitPartition):
        return iter(())
    return read_split(partition.value, partition.settings, columns)


class _BatchReader(DataSourceReader):
    """One batch query."""

    def __init__(self, options: HistoryOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        return _partitions(*plan(self._options))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(partition, self._columns)


class _StreamReader(DataSourceStreamReader):
    """One stream. Each micro-batch has its own plan, so it takes from the tier what is there."""

    def __init__(self, options: HistoryOptions, columns: list[str]) -> None:
        self._planner = StreamPlanner(options)
        self._columns = columns

    def initialOffset(self) -> StreamOffsets:  # noqa: N802 - PySpark's
        return self._planner.initial()

    def latestOffset(self) -> StreamOffsets:  # noqa: N802
        return self._planner.latest()

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        return _partitions(*self._planner.plan(start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(partition, self._columns)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing: the checkpoint has the offsets."""
