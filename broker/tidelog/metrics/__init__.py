"""What a broker counts, by Apache Kafka's metric names, and the endpoint that tells it.

meters.py      counts and gauges; written to by the rooms that do the work
prometheus.py  the same as an HTTP endpoint, where `metrics.prometheus.listener` asks for one
"""
