"""The users' doors: how Python code starts, stops and asks brokers.

cluster.py           `run()` and `Cluster`
running.py           handles on brokers in another process, for code without asyncio
nodes.py             one node of a cluster: in this loop, or in a process of its own
cluster_client.py    a blocking client of a cluster, which asks the broker that can tell
simple_client.py     a blocking client for one request at a time
cluster_settings.py  from what users say to Kafka's properties

`tidelog.run` and `tidelog.Cluster` are the names to use; the command line and the pytest plugin
stand on the same doors. Imports nothing: each door brings what it needs when somebody knocks.
"""
