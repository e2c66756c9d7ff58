"""The remote tier of this broker (KIP-405): time, threads and the metadata topic for
`tidelog_storage.remote`. Imported only when `remote.log.storage.system.enable` is true.

    tier.py            the door: who leads and follows what, pools, start and stop
    plugins.py         the stores and metadata managers that the configuration names
    pools.py           bounded pools of threads by Kafka's names
    quotas.py          quotas of bytes a second (KIP-956)
    tasks.py           copy, expiration and follower task of each partition, when and where they run
    metadata_topic.py  RemoteLogMetadata kept in `__remote_log_metadata`
    metadata_client.py reads and writes that topic wherever its partitions are led
    deletion.py        remote parts of deleted topics; the partition remover
    reads.py           remote reads for consumers: fetch and list offsets, tried until given up
    loading.py         what they wait for: indexes and chunks on their way, and reading ahead
    aux_state.py       what a follower needs of the remote tier to begin at the local log start
"""
