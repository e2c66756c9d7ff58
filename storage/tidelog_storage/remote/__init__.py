"""The remote tier of a partition's log (KIP-405): what it is, without loop, threads or clock.

    api.py            segments, their legal states, the two plug-in interfaces, their errors
    lineage.py        which remote segments belong to the log as it is now, and how far it is copied
    metadata_cache.py what is known of one partition's remote segments; look-up by epoch and offset
    metadata_records.py  the events of `__remote_log_metadata`, value for value in Kafka's bytes
    copier.py         which sealed segments to copy, and what goes with each
    expiry.py         which remote segments to delete
    directory_store.py, s3_store.py (s3_settings.py, s3_reads.py)  remote stores
    layout.py         how these two name objects, and the manifest beside them
    index_cache.py    indexes of remote segments on the local disk
    chunks.py         pieces of remote segments: whole batches, fetched and checked
    read_ahead.py     chunks in memory, shared by readers, and which one comes next
    near.py           pieces of segments that this machine has in memory: read on the loop
    reader.py         a read or a look-up by time, as steps that ask for what they need
    sources.py        what the steps are fed from: caches first, then the store

`log.py` never imports this room: a log knows only where its local part begins and how far it is
remote. `tidelog.remote` gives it time, threads and the metadata topic.
"""
