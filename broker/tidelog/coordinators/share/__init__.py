"""The state of share groups in `__share_group_state` (KIP-932).

values.py     a share partition, what is asked about it, what is answered; pure
persister.py  the interface by which the rest of a broker reads and writes the state
batches.py    merging state batches; pure
shard.py      the states of one partition of the topic; pure
records.py    their bytes in the topic
"""
