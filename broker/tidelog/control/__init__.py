"""Control of running brokers by tests: faults, time, actions and state.

errors.py   the error of a refused call, with the field at fault
calls.py    what a call is
values.py   arguments and results: frozen dataclasses, and their JSON form
cluster.py  what the calls on a cluster act on
broker.py   what the calls on one broker act on
brokers.py  calls: describe, stop, kill, start and add brokers
topics.py   calls: create and delete topics
actions.py  calls: do periodic work of logs and of the remote tier now
making.py   calls: make gaps, control batches, aborted transactions, tombstones
losing.py   calls: truncate a follower; let one lead that lacks the newest records
partitions.py  calls: delete records, elect a leader, move replicas
coordinators.py  calls: move the controller and coordinators, expire members and producer ids
logs.py     calls: levels of what brokers log
last_requests.py  calls: the last requests of clients
security.py  calls: how clients authenticate
credentials/  certificates and users of a secured cluster, and configurations for its clients
reset.py    calls: give the cluster back as new
reading.py  calls: read the state
state.py    the values of the state
starting.py sets up a broker that starts as the others are
waiting.py  the limit of `wait_for`, and the last state in words
broker_state.py  reads the state of one broker
clock.py    calls: move, freeze and skew the time of all brokers
cluster_time.py, broker_clock.py  the time that brokers share; moves that of one broker
requests.py performs a request of Kafka's protocol by a broker's handlers
faults/     calls: faults of requests
table.py    all calls; performs one
wire.py     calls between processes, as lines of JSON
cluster_calls.py, handles.py  the calls as Python methods, for asyncio: `cluster.topics.create`
blocking_cluster_calls.py, blocking.py  the same, blocking; written by docs/generate.py from those
running_broker.py  blocking handles on the brokers
http.py     the calls over HTTP; imported by `serve --control` alone
live.py     the state as a stream of changes
page/       what a browser shows of it, and its buttons: HTML, CSS and JavaScript as they are served
scenarios.py scenarios for pages, played by another process
http_client.py  the calls of Python to such a door
openapi.py  the OpenAPI document of that

A call has one implementation and three ways in: `Cluster` in the same loop, `RunningCluster`
through the pipe of its process, and HTTP. A broker imports only `wire.py` before its first call.
"""
