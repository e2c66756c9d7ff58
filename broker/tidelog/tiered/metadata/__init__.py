"""The metadata of remote segments, kept in the topic `__remote_log_metadata` (KIP-405).

topic.py            `RemoteLogMetadata` in that topic: what is known, and when that is enough
tracked.py          one user partition: its known events, and the callers that wait for more
consumer.py         positions in the topic, and where each of its partitions is read
client.py           reads and writes it wherever its partitions are led
access.py           the listener of its clients, with TLS and SASL
files.py            snapshots and committed offsets, for restarts
settings.py         Kafka's settings of the topic and its clients
"""
