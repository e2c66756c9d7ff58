"""What a broker of several has beside a broker of one: its part in the cluster.

membership.py  the parts put together: the controller listener, and who talks to other nodes
lifecycle.py   registration, heartbeats, controlled shutdown
forwarding.py  asking the active controller, and carrying clients' requests to it

Imported by the server, and only if `controller.quorum.voters` names several nodes.
"""
