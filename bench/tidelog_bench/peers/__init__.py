"""The brokers that are measured, each behind the same small door (`peers.peer.Peer`)."""
