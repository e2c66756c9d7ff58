"""Helpers for tests of users.

records.py     write, read and compare records, without a client library
waits.py       wait for the lag of a group, or for the remote tier
retries.py     how long these try again
containers.py  TidelogContainer: brokers in a container, by testcontainers-python
"""
