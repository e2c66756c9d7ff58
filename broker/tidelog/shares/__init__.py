"""Share partitions of the topics that this broker leads (KIP-932): records for share consumers.

records.py          the states of a record in flight, and spans of records in one state; pure
in_flight.py        the spans of a share partition in order; pure
partition_state.py  acknowledgements, releases, the end of locks, the start offset; pure
acquiring.py        giving records that were read to a member; pure
aborted.py          batches of aborted transactions, and the cut of an answer's records; pure
"""
