"""The remote tier of a partition's log (KIP-405): what it is, without loop, threads or clock.

    api.py            segments, their legal states, the two plug-in interfaces, their errors
    lineage.py        which remote segments belong to the log as it is now, and how far it is copied
    metadata_cache.py what is known of one partition's remote segments; look-up by epoch and offset
    metadata_records.py  the events of `__remote_log_metadata`, value for value in Kafka's bytes
    copier.py         which sealed segments to copy, and what goes with each
    expiry.py         which remote segments to delete
    directory_store.py, s3_store.py (s3_settings.py, s3_reads.py)  remote stores
    rebuilding.py     makes the files of a remote segment again from its records
    checks.py         reads a remote segment back and checks it
    proof.py          proves a copy before local data is deleted
    layout.py         how these two name objects, and the manifest beside them
    index_cache.py    indexes of remote segments on the local disk
    chunks.py         parts of remote segments: whole batches, fetched and checked
    chunk_cache.py    chunks in memory, shared by readers, and how much to have ready for each
    near.py           pieces of segments that are in the page cache: read on the loop
    sources.py        where reads find their data: in the caches, or by a load from the store

`log.py` never imports this room: a log knows only where its local part begins and how far it is
remote. `tidelog.tiered` gives it time, threads and the metadata topic.
"""
