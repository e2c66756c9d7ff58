"""The entry points for Python code: start, stop and query brokers.

cluster.py           `Cluster`: brokers in this event loop
running.py           `run()`: brokers in another process, for code without asyncio
pipe.py              control calls to that process, and its answers
settings_pipe.py     settings for such a process
security.py          the short forms of security (`security=...`, `--security`)
nodes.py             one node of a cluster: in this loop, or in its own process
cluster_client.py    a blocking client of a cluster, which asks the right broker
simple_client.py     a blocking client for one request at a time
client_security.py   TLS and SASL of these clients
cluster_settings.py  turns the arguments of users into Kafka's properties
tiered.py            the short forms of a remote tier (`tiered=...`, `--tiered`)
ports.py             where brokers listen: given addresses, and free ports
tier_view.py         collects what `tidelog tiers` shows
tier_metadata.py     what a reader of `__remote_log_metadata` knows
tier_check.py        opens the remote store to check
replica_check.py     reads all replicas of a cluster and checks the records

`tidelog.run` and `tidelog.Cluster` are the names to use; the command line and the pytest plugin use
the same modules. This file imports nothing: each module imports what it needs on first use.
"""
