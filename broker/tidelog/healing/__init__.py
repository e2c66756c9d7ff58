"""Damage on this broker's disks and in its remote tier: found by reading, repaired from copies.

    schedule.py        when logs are read
    healer.py          reads them, and decides what becomes of what was found
    peer_copies.py     asks other in-sync replicas for records
    remote_copies.py   asks the remote tier for records, and checks and repairs its objects
    transaction_proofs.py   compares large transaction indexes before reads go by them

Kafka has none of this. What is read and how a segment is written anew is the storage room's:
`tidelog_storage.scrub`, `tidelog_storage.scrub_repair`.
"""
