"""Make this broker a member of a cluster: find the controller, register, send heartbeats.

membership.py  builds the parts: the controller listener and the channels to other nodes
lifecycle.py   registration, heartbeats, controlled shutdown
forwarding.py  requests to the active controller, also those of clients

Imported by the server, and only if `controller.quorum.voters` names several nodes.
"""
