"""Work on a topic's whole history by Spark: `tidelog spark export` and its like.

topic.py     the topic that is read: offsets from places as users give them
folders.py   a folder of any file system that Spark knows
manifest.py  which offsets an export's destination has, in which files
export.py    records to Parquet
replay.py    Parquet or another topic to a topic
lanes.py     one partition of a replay, in its order
writer.py    a transactional producer whose progress is in its transactions
progress.py  a progress bar
errors.py    the error of an operation: one line
"""

from tidelog_pipeline.operations.errors import OperationError
from tidelog_pipeline.operations.export import Exported, Wanted, export
from tidelog_pipeline.operations.replay import Replay, Replayed, replay
from tidelog_pipeline.operations.topic import Source

__all__ = [
    "Exported",
    "OperationError",
    "Replay",
    "Replayed",
    "Source",
    "Wanted",
    "export",
    "replay",
]
