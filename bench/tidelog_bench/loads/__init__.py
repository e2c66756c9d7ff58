"""The clients that put load on a broker.

load.py        what every load does: fill a topic and read it
librdkafka.py  librdkafka, in its own Python process
franz_go.py    franz-go, our program `go/load`
java_tools.py  Kafka's perf tools, each in a JVM
tier.py        our program `go/tier`: topics with a remote tier
hostile.py     bytes of a hostile client: the widest requests, costly batches
hostile_floods.py  thousands of connections, members, partitions, ACLs
failover.py    librdkafka while a broker dies
"""
