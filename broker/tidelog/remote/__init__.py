"""The remote tier of this broker (KIP-405): time, threads and the metadata topic for
`tidelog_storage.remote`. Imported only when `remote.log.storage.system.enable` is true.

    tier.py            the door: who leads and follows what, what they share, start and stop
    plugins.py         the stores and metadata managers that the configuration names
    pools.py           bounded pools of threads by Kafka's names
    quotas.py          quotas of bytes a second (KIP-956)
    gauges.py          how much waits, how much is there
    tasks.py           the tasks of a partition: when they run, and what ends them
    copying.py         the copy task: which segments, the steps of each copy
    expiration.py      the expiration task: what retention, log start and lineage let go
    deletion.py        remote parts of deleted and disabled topics; the partition remover
    shared.py          what all tasks share, and how a segment is deleted
    metadata_topic.py  RemoteLogMetadata kept in `__remote_log_metadata`: who knows what, and when
    metadata_creation.py  the topic is there when a broker starts
    metadata_consumer.py  positions in that topic, and where each partition is read
    metadata_client.py reads and writes it wherever its partitions are led
    metadata_files.py  snapshots and committed offsets, for restarts
    metadata_settings.py  Kafka's settings of the topic
    client_settings.py    Kafka's settings of who reads and writes it
    reads.py           remote reads for consumers: fetch and list offsets, tried until given up;
                       a diagram of the way of a cold read
    reader.py          one read: segment, chunks, where it is cut, aborted transactions
    loading.py         what it waits for: indexes and chunks on their way, and reading ahead
    aux_state.py       what a follower needs of the remote tier to begin at the local log start
"""
