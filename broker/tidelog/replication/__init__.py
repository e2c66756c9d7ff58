"""Partitions on this broker: who may read and write them, and who waits for what.

partition.py        one partition: role, epoch fence, in-sync replicas, high watermark
replica_manager.py  all of them; follows the cluster image
purgatory.py        operations that wait for a partition's progress, or their deadline
fetch_sessions.py   incremental Fetch (KIP-227)
"""
