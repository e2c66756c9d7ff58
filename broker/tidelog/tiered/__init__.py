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
    metadata/          RemoteLogMetadata kept in `__remote_log_metadata`
    reads/             remote reads for consumers: fetch and list offsets
    aux_state.py       what a follower needs of the remote tier to begin at the local log start
"""
