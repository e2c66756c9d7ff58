"""The remote tier of this broker (KIP-405): gives `tidelog_storage.remote` time, threads and the
metadata topic. Imported only if `remote.log.storage.system.enable` is true.

    tier.py            builds the parts; follows roles and images; start and stop
    cluster_access.py  how the tier reaches the controllers and other brokers
    plugins.py         the store and the metadata manager that the configuration names
    segments.py        publishes states of remote segments, and deletes segments
    pools.py           bounded pools of threads, with Kafka's names
    quotas.py          quotas in bytes per second (KIP-956)
    gauges.py          gauges, with Kafka's names
    tasks/             copy, expire, delete; the state of followers
    reads/             remote reads for consumers: fetch and list offsets
    metadata/          RemoteLogMetadata kept in `__remote_log_metadata`

A remote fetch, from the socket to the store:

    network/dispatch -> api/fetch   reads the local log: the offset is in the remote tier
      | fetch()        api/fetch_remote    joins the partitions; deadline, cancellation
      v                reads/remote_reads  one task per miss; retries
    reader.read()      segment of (epoch, offset): metadata/, once
      | chunk()        in memory: answered at once, without a task
      v                not in memory: reads/loading, one flight per chunk, shared by all reads
    pools: reader      a thread fetches the range and checks every batch
      v
    storage/remote     sources: chunk cache, index cache, page cache; then the store

Copies go the other way: `tasks/copying` selects a sealed segment, publishes COPY_SEGMENT_STARTED,
copies on a thread of the copier pool, and publishes COPY_SEGMENT_FINISHED.
"""
