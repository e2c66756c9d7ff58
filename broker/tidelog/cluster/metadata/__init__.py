"""The cluster's metadata: its durable log and the images built from it.

image.py         an immutable state of the cluster: brokers, topics, leaders, settings
delta.py         the difference between two images
replay.py        metadata records -> the next image
log.py           this node's copy of the log of those records; `tidelog.cluster.quorum` drives it
log_replay.py    batches of that log -> images, some records at a time
loading.py       from files to that log
features.py      the features of a cluster and their levels
levels_on_disk.py  the levels in a directory, before it is opened
records.py       its first records, and the versions in which records are written
settings.py      its name, and what it is built with
quorum_state.py  the epoch and vote a voter must not forget
voters.py        the voters that the log names (KIP-853)
durable.py       the durable end of the log: damage below it is an error
snapshotter.py   when snapshots are taken, and those on disk
snapshots.py     an image as a file, so that the log can be trimmed
describe.py      the settings of brokers and topics as clients see them
"""
