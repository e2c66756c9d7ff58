"""Finds damage on this broker's disks and in its remote tier, and repairs it from copies.

    schedule.py        when logs are read
    healer.py          reads logs and repairs the damage it finds
    peer_copies.py     asks other in-sync replicas for records
    remote_copies.py   asks the remote tier for records; checks and repairs remote segments
    transaction_proofs.py   compares large transaction indexes before reads use them

Kafka has none of this. `tidelog_storage.scrub` checks a segment and `tidelog_storage.scrub_repair`
writes a repaired one.
"""
