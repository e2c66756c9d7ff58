"""Groups of consumers, classic, of KIP-848, share and streams groups, and their offsets.

group.py        one classic group: the steps of its state machine, the moves of a rebalance; pure
kinds.py        what a group may be
states.py       its states, their transitions, and its limits
limits.py       the settings that count for a group of any type
members.py      its members: the leader, static and pending ones; pure
member.py       one member, results and effects of the machine; pure
offsets.py      committed offsets, their store, when they expire; pure
pending.py      offsets of open transactions, which wait for their marker; pure
records.py      records of `__consumer_offsets` in Kafka's bytes
shard.py        one partition of `__consumer_offsets` in memory
coordinator.py  follows elections, performs effects, sets timers, writes records
gauges.py       metrics of groups: number, offsets, lag
admin.py        commit and fetch offsets; list, describe, delete and expire groups
modern/         what consumer, share and streams groups share
consumer/       groups of KIP-848
share/          share groups of KIP-932
streams/        streams groups of KIP-1071
"""
