"""Partitions on this broker: who may read and write them, and who waits for what.

partition.py        one partition as requests see it: appends, reads, offsets, deletions
replica.py          its state: role, followers' progress, in-sync replicas, high watermark
replica_state.py    what a leader knows of one follower, and the rules all are judged by
in_sync.py          who counts, who lags, who may join, whom a consumer reads from: pure
isr_proposals.py    when other in-sync replicas are asked for: who joins, who lags
alter_partition.py  such changes on their way to the controller
replica_manager.py  all partitions; follows the cluster image
delayed_answers.py  Produce and DeleteRecords that wait for a watermark
purgatory.py        operations that wait for a partition's progress, or their deadline
fetch_sessions.py   incremental Fetch (KIP-227)
reads.py            what a Fetch asks of every partition, and what one gives
"""
