"""A broker's metrics, by Apache Kafka's names, and the endpoint that serves them.

meters.py         counts, gauges and timers; the other rooms write them
broker_gauges.py  gauges of every broker: logs and parked operations; those of partitions and groups
                  are in `replication/gauges.py` and `coordinators/groups/gauges.py`
prometheus.py     the same as an HTTP endpoint, where `metrics.prometheus.listener` asks for one
"""
