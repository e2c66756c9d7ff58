"""The cluster: its metadata, the quorum that decides it, and this broker's place in it.

controller/    decisions of the active controller: requests and an image to records
quorum/        the election of the active controller, and what is committed
metadata/      the metadata log and the images built from it
lifecycle.py   registration, heartbeats, controlled shutdown
controller_registration.py  addresses and features of this node's controller
forwarding.py  requests to the active controller, also those of clients
envelopes.py   such requests with the identity of their client
gauges.py      their metrics
auto_topics.py topics that are created when they are first used
formatting.py  marks directories as those of one node of one cluster
"""
