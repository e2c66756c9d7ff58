"""A broker's metrics, by Apache Kafka's names, and the endpoint that serves them.

meters.py         counts, gauges and timers; the other rooms write them
broker_gauges.py  gauges of every broker: logs and parked operations; those of partitions and groups
                  are in `replication/gauges.py` and `coordinators/groups/gauges.py`
client_instances.py  clients that push metrics (KIP-714), and what is wanted of each
otlp.py           reads what they push
client_series.py  keeps it for the endpoint, within limits
prometheus.py     the same as an HTTP endpoint, where `metrics.prometheus.listener` asks for one
"""
