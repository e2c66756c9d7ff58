"""The cluster's metadata: its durable log and the images built from it.

image.py         an immutable state of the cluster: brokers, topics, leaders, settings
delta.py         the difference between two images
replay.py        metadata records -> the next image
log.py           the durable log of those records, `__cluster_metadata-0`, of a quorum of one
replicated.py    the same log, replicated: each voter has a copy; `tidelog.cluster.quorum` drives it
quorum_state.py  the epoch and vote a voter must not forget
durable.py       the durable end of the log: damage below it is an error
snapshots.py     an image as a file, so that the log can be trimmed
describe.py      the settings of brokers and topics as clients see them
"""
