"""Helpers for tests of users that need another library.

containers.py  TidelogContainer: brokers in a container, by testcontainers-python
"""
