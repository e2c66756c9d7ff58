"""The state of share groups in `__share_group_state` (KIP-932).

share_states.py       the interface of this room: finds the coordinator of each share partition
persister.py          what the rest of a broker uses of it
values.py             a share partition, what is asked about it, what is answered; pure
wire.py               the same as Kafka's messages
coordinator.py        states of the partitions led here: appends, commits, snapshots, pruning
coordinator_peers.py  requests to the coordinators of other brokers
shard.py              the states of one partition of the topic; pure
records.py            their bytes in the topic
batches.py            merging state batches; pure
"""
