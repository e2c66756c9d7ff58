"""A topic's whole history, read from the remote tier without the brokers. No Spark is needed.

    options.py    the Kafka source's options, read and checked
    client.py     what is asked of the brokers: offsets, batches
    offsets.py    where each partition's read begins and ends
    planner.py    which remote segments hold an offset range on the live lineage; splits
    views.py      a partition as it is now, as a split
    loss.py       the report of records that are gone
    aborted.py    offsets of aborted transactions
    segments.py   batches of a remote segment, in ranges of bytes
    broker.py     batches of what only the brokers have
    heads.py      where records begin, by numpy
    decoder.py    record batches to Arrow columns, by numpy
    reader.py     one split as Arrow record batches
    history.py    a query's options as splits
    stream.py     a stream's offsets, and the splits of one micro-batch

`planner`, `heads` and `decoder` are pure. The rest blocks: it runs in Spark's driver and its tasks.
"""

from tidelog_pipeline.history.history import columns_of, plan
from tidelog_pipeline.history.loss import DataLossError
from tidelog_pipeline.history.options import HistoryOptions
from tidelog_pipeline.history.reader import read_split

__all__ = ["DataLossError", "HistoryOptions", "columns_of", "plan", "read_split"]
