"""Groups of consumers, classic, of KIP-848, share and streams groups, and their offsets.

kinds.py        what a group may be
limits.py       the settings that count for a group of any type
now.py          the time of a step
offsets.py      committed offsets, their store, when they expire; pure
pending.py      offsets of open transactions, which wait for their marker; pure
records.py      records of `__consumer_offsets` in Kafka's bytes
shard.py        one partition of `__consumer_offsets` in memory
coordinator.py  follows elections, sets timers, writes records, performs effects
gauges.py       metrics of groups: number, offsets, lag
admin.py        commit and fetch offsets; list, describe, delete and expire groups
classic/        groups whose leader assigns
modern/         what consumer, share and streams groups share
consumer/       groups of KIP-848
share/          share groups of KIP-932
streams/        streams groups of KIP-1071
"""
