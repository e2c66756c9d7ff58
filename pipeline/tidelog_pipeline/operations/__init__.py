"""Work on a topic's whole history by Spark: `tidelog spark export` and its like.

topic.py     the topic that is read: offsets from places as users give them
folders.py   a folder of any file system that Spark knows
manifest.py  which offsets an export's destination has, in which files
export.py    records to Parquet files or a table
tables.py    tables of Delta and Iceberg, and what their commits say
replay.py    a folder or another topic to a topic
lanes.py     one partition of a replay, in its order
writer.py    a transactional producer whose progress is in its transactions
audit.py     is every offset where it should be, and what it was?
audit_tasks.py   the work of an audit's tasks: one place each
audit_report.py  JSON and a picture of the tier
lineage.py   where each offset of a partition is
scan.py      what an audit keeps of batches: gaps, sequences
stats.py     size, rate and key skew over time
journal.py   what an audit or stats has done, for a run after one that was killed
pages.py     HTML and SVG
progress.py  a progress bar
errors.py    the error of an operation: one line
"""

from tidelog_pipeline.operations.audit import AuditReport, audit
from tidelog_pipeline.operations.audit_report import write_audit
from tidelog_pipeline.operations.errors import OperationError
from tidelog_pipeline.operations.export import Exported, Wanted, export
from tidelog_pipeline.operations.replay import Replay, Replayed, replay
from tidelog_pipeline.operations.stats import TopicStats, stats, write_stats
from tidelog_pipeline.operations.topic import Source

__all__ = [
    "AuditReport",
    "Exported",
    "OperationError",
    "Replay",
    "Replayed",
    "Source",
    "TopicStats",
    "Wanted",
    "audit",
    "export",
    "replay",
    "stats",
    "write_audit",
    "write_stats",
]
