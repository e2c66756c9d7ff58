"""Transactions (KIP-98, KIP-890): the coordinator of transactional ids.

One transactional id:
states.py         its states and the legal transitions
transaction.py    the id in memory, with at most one pending change
decisions.py      the effect of a request on it: pure
records.py        its bytes in `__transaction_state`
shard.py          the ids of one partition of `__transaction_state`

This broker:
transactions.py   the interface of this room
coordinator.py    the ids of the partitions led here
log_writer.py     writes `__transaction_state`
markers.py        sends commit and abort markers to the leaders
marker_writer.py  writes markers that come for partitions led here
verification.py   verifies that a producer may begin a transaction in a partition
colleagues.py     requests to other coordinators and leaders
producer_ids.py   producer ids
"""
