"""What a broker counts, by Apache Kafka's metric names, and the endpoint that tells it.

meters.py         counts, gauges and timers; written to by the rooms that do the work
broker_gauges.py  of what every broker has: logs, and operations that wait
prometheus.py     the same as an HTTP endpoint, where `metrics.prometheus.listener` asks for one
"""
