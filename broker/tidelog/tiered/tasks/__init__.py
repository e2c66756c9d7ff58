"""The tasks of tiered partitions (KIP-405): copy, expire, delete.

partition.py   one partition: its tasks, when they run, its damaged segments
repeated.py    repeats a task; pauses after failures
copying.py     the copy task: selects segments and copies each
expiration.py  the expiration task: retention, log start and lineage
deletion.py    remote parts of deleted topics, and of topics that leave the tier
removal.py     finishes deletions that their leaders left
aux_state.py   the state with which a follower begins at the local log start
"""
