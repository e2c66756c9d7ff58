"""Helpers for tests of users.

records.py     write, read and compare records, without a client library
waits.py       wait for the lag of a group, or for the remote tier
topics.py      create and delete topics of any Kafka, behind the fixtures
retries.py     how long these try again
kit.py         the clusters of a test run, behind the fixtures of `pytest_plugin.py`
shared.py      one cluster for all processes of a test run
containers.py  TidelogContainer: brokers in a container, by testcontainers-python
"""
