"""Share partitions of the topics that this broker leads (KIP-932): records for share consumers.

records.py          the states of a record in flight, and spans of records in one state; pure
in_flight.py        the spans of a share partition in order; pure
partition_state.py  acknowledgements, releases, the end of locks, the start offset; pure
acquiring.py        giving records that were read to a member; pure
aborted.py          batches of aborted transactions, and the cut of an answer's records; pure
settings.py         the settings of a group that count here
start_offsets.py    where a group begins to read
led_partition.py    one share partition: its stored state, its writes, its locks' timer
sessions.py         share sessions of members; pure
counts.py           what is counted for metrics; pure
share_partitions.py all share partitions and sessions of a broker
fetch_work.py       reading and acquiring for one request
fetches.py          the request that waits for records
remote_fetches.py   the one that waits for the remote tier
gauges.py           metrics of share groups
"""
