"""Quotas: how much clients and replicas may use, and what they have used.

client_quotas.py     follows the quotas of the image, and throttles the requests of clients
connection_rates.py  max.connection.creation.rate
limits.py            which quota holds for a client, and its use of it
mutations.py         the quota of partitions created and deleted (KIP-599)
replication.py       limits of replication for chosen replicas (KIP-73)
windows.py           rates over windows of time, buckets of tokens
"""
