"""What the cluster knows of itself.

image.py    an immutable picture of the cluster: brokers, topics, leaders, settings
replay.py   metadata records -> the next image
log.py      the durable log of those records, `__cluster_metadata-0`
"""
