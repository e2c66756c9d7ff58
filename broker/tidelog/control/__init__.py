"""Control of running brokers by tests: faults, time, actions and state.

errors.py   the error of a refused call, with the field at fault
calls.py    what a call is
values.py   arguments and results: frozen dataclasses, and their JSON form
cluster.py  what the calls on a cluster act on
broker.py   what the calls on one broker act on
brokers.py  calls: describe, stop, kill, start and add brokers
table.py    all calls; performs one
wire.py     calls between processes, as lines of JSON

A call has one implementation and three ways in: `Cluster` in the same loop, `RunningCluster`
through the pipe of its process, and HTTP. A broker imports only `wire.py` before its first call.
"""
