"""`spark.read.format("tidelog")`: a topic's history straight from the remote tier.

Schema, options and errors are those of Spark's Kafka source, so that the format's name alone
changes. A reader plans in Spark's driver and reads one split in a task; both are processes of
Python that import this module. A stream's checkpoint holds the Kafka source's offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from pyspark.sql.datasource import DataSource
except ImportError as error:
    raise ImportError(
        "format('tidelog') needs PySpark 4.0 or newer: Spark 3 has no data sources in Python that "
        "stream"
    ) from error
from pyspark.sql.types import StructField, StructType

from tidelog_pipeline.source_types import TYPES

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader

__all__ = ["TidelogDataSource"]


class TidelogDataSource(DataSource):
    """Register it by `spark.dataSource.register(TidelogDataSource)`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tidelog"

    def schema(self) -> StructType:
        """All columns of the Kafka source. Fewer, which cost less, by `.schema(...)`."""
        headers = self.options.get("includeheaders", "false").lower() == "true"
        names = [name for name in TYPES if headers or name != "headers"]
        return StructType([StructField(name, TYPES[name]) for name in names])

    # Spark starts a process of Python for the schema alone, and another one for the plan: imported
    # here, what plans and reads costs the first one nothing.

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query. ValueError for a wrong option."""
        from tidelog_pipeline.source_readers import BatchReader  # noqa: PLC0415

        return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's
        """The reader of a stream."""
        from tidelog_pipeline.source_readers import StreamReader  # noqa: PLC0415

        return StreamReader(self.options, schema)
