"""Partitions on this broker: who may read and write them, who waits for what, whom they follow.

One partition:
partition.py          as requests see it: appends, reads, offsets, deletions
replica.py            its state: role, followers' progress, in-sync replicas, high watermark
replica_state.py      what a leader knows of one follower, and the rules all are judged by
in_sync.py            who counts, who lags, who may join, whom a consumer reads from: pure
reads.py              what a Fetch asks of every partition, and what one gives

All partitions:
replica_manager.py    as requests see them: append, read, delete records
hosted_partitions.py  which are here: follows the cluster's image, opens, loses, deletes
roles.py              who is told what becomes of them
topic_configs.py      what configuration their logs have
isr_proposals.py      when other in-sync replicas are asked for: who joins, who lags
alter_partition.py    such changes on their way to the controller
purgatory.py          operations that wait for a partition's progress, or their deadline
delayed_answers.py    Produce and DeleteRecords that wait for a watermark
fetch_sessions.py     incremental Fetch (KIP-227)

Following:
fetcher_manager.py    which leader each partition follows: from the image to fetchers
replica_fetcher.py    a follower's loop; fetcher_session.py its side of an incremental Fetch
fetch_state.py        where one followed partition stands, and which steps there are: pure
truncation.py         where its log is cut, and where it goes on: pure
leader_questions.py   what is asked of the leader beside fetches
starts.py             where it goes on if the leader lacks its offset
aux_state.py          where, and with what, if the leader has that in the remote tier alone

Moving between log directories:
log_dir_moves.py      which replicas move, and their steps
local_leader.py       the leader that a moving one follows: the replica beside it
directory_assignment.py  telling the controller
"""
