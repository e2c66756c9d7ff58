"""Random walks of requests beside Apache Kafka: `python -m compat.conformance.walks`.

A walk is a random sequence of requests, some right, some wrong in one field. Ids and epochs come
from the broker's own answers, so that both brokers are asked the same as long as they answer alike.
What follows the first difference says nothing. Each module says what its walks leave out, and why.
"""
