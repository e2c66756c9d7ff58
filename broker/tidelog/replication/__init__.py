"""Partitions on this broker: reads and writes, parked requests, and following leaders.

One partition:
partition.py          its role, in-sync replicas and log: appends, reads, offsets, deletions
replica_state.py      a leader's state of one follower, and the rules for all
in_sync.py            decisions about the in-sync replicas and read replicas: pure
reads.py              parameters and result of reading one partition in a Fetch

All partitions:
replica_manager.py    which are here, by the cluster's image; append, read, delete records
assigned_logs.py      their logs: opens, deletes, sets aside
backlog.py            those that are opened or deleted in later turns of the loop
roles.py              listeners to changes of their roles
topic_configs.py      the configuration of their logs
alter_partition.py    proposes changes of the in-sync replicas to the controller
gauges.py             their metrics
purgatory.py          operations that wait for a partition's progress, or their deadline
delayed_answers.py    Produce and DeleteRecords that wait for a watermark
fetch_sessions.py     incremental Fetch (KIP-227)

Following:
fetcher_manager.py    which leader each partition follows: from the image to fetchers
replica_fetcher.py    a follower's loop; fetcher_session.py its side of an incremental Fetch
fetch_state.py        states of one followed partition and their transitions: pure
truncation.py         where its log is truncated, and where it continues: pure
leader_end_point.py   requests to the leader
starts.py             where it continues if the leader lacks its offset
aux_state.py          how it starts if the leader has its offset only remotely

Log directories:
lost_logs.py          replicas whose logs are missing when this broker starts
directory_assignment.py  reports directories of replicas to the controller

internal_topics.py    records of Kafka's own topics: writes, commits and loads them

Moving between log directories:
log_dir_moves.py      which replicas move, and their steps
local_leader.py       the leader of a moving replica: the current replica
"""
