"""The readers of `format("tidelog")`: they plan in Spark's driver and read one split in a task."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from tidelog_pipeline.history import HistoryOptions, columns_of, plan, read_split
from tidelog_pipeline.history.stream import StreamOffsets, StreamPlanner
from tidelog_pipeline.source_types import TYPES
from tidelog_pipeline.source_worker import spare_next_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from tidelog_pipeline.history.planner import Split
    from tidelog_pipeline.history.reader import ReadSettings

__all__ = ["BatchReader", "StreamReader"]


def _columns(schema: StructType, options: HistoryOptions) -> list[str]:
    """The schema's names; ValueError for a column that there is not, or of another type."""
    known = columns_of(options)
    for field in schema.fields:
        if field.name not in known:
            raise ValueError(f"there is no column {field.name}: the columns are {', '.join(known)}")
        if field.dataType != TYPES[field.name]:
            expected = TYPES[field.name].simpleString()
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
    if isinstance(partition, _SplitPartition):
        try:
            yield from read_split(partition.value, partition.settings, columns)
        finally:
            spare_next_tasks()


class BatchReader(DataSourceReader):
    """One batch query; ValueError for a wrong option."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = HistoryOptions.parse(given)
        self._columns = _columns(schema, self._options)

    def partitions(self) -> Sequence[InputPartition]:
        """The splits of the query."""
        return _partitions(*plan(self._options))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The Arrow batches of one task."""
        return _read(partition, self._columns)


class StreamReader(DataSourceStreamReader):
    """One stream. Each micro-batch has its own plan, so it takes from the tier what is there.

    A wrong option is a ValueError of the first call: PySpark's runner of streams hides one of the
    constructor behind an error of its own.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._given = given
        self._schema = schema

    @cached_property
    def _options(self) -> HistoryOptions:
        options = HistoryOptions.parse(self._given, is_stream=True)
        _columns(self._schema, options)
        return options

    @property
    def _planner(self) -> StreamPlanner:
        return StreamPlanner(self._options)

    def initialOffset(self) -> StreamOffsets:  # noqa: N802 - PySpark's
        """Where a stream without a checkpoint begins."""
        return self._planner.initial()

    def latestOffset(self) -> StreamOffsets:  # noqa: N802
        """The end of every partition now."""
        return self._planner.latest()

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """The splits of one micro-batch."""
        return _partitions(*self._planner.plan(start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The Arrow batches of one task."""
        return _read(partition, self._schema.fieldNames())

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing: the checkpoint has the offsets."""
