"""What the cluster knows of itself.

image.py         an immutable picture of the cluster: brokers, topics, leaders, settings
replay.py        metadata records -> the next image
log.py           the durable log of those records, `__cluster_metadata-0`, of a quorum of one
replicated.py    the same log as one of several copies; `tidelog.quorum` says what happens to it
quorum_state.py  the epoch and vote a voter must not forget
durable.py       how far the log was on disk: below that, damage is an error
snapshots.py     an image as a file, so that the log need not be kept
describe.py      the settings of brokers and topics as clients see them
"""
