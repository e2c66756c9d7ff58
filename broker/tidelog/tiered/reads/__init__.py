"""Reads of the remote tier for consumers: records, and offsets by time.

The way of a cold read:

    api/fetch_remote   DelayedRemoteFetch joins the partitions; deadline, cancellation
      | fetch()
    remote_reads.py    PendingRead: one partition's read, tried again while it may heal
      | await read()
    reader.py          segment of (epoch, offset), once; chunks, cut where the epoch ends
      | await chunk()  what is in memory is answered here, without a task
    loading.py         one flight per chunk or index, shared by all reads that wait; reading ahead
      | load()         on a thread of the reader pool (`pools.py`)
    storage/remote     `sources`: index cache, chunk cache, page cache, then the store

The three modules:

    remote_reads.py  the door: which reads are under way, retries, the age of what is cached
    reader.py        one read: segment, chunks, where it is cut, aborted transactions
    loading.py       what it waits for: indexes and chunks on their way, and reading ahead
"""
