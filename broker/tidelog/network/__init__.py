"""Sockets to frames, frames to handlers, and requests to other brokers.

connections.py  all connections of a broker: their limits, one receive buffer, the idle timer
buffers.py      memory to receive into
connection.py   one client connection: frames in, answers out in order
authentication.py  SASL: what an unauthenticated connection may send
dispatch.py     a request frame to its handler; the answer to bytes
late_handlers.py   handlers that the first request builds
request_limits.py  how many elements a request may have
wide_requests.py   those of thousands of elements in parts
observer.py     the log and the meters of requests
peers.py        a request channel to another broker
peer_security.py   its TLS and SASL
peer_securities.py  which listeners of other nodes have some
"""
