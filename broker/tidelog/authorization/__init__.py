"""What each API asks the authorizer for, before its handler and in its answer.

A broker without an authorizer does not import this room: its handlers are called directly.

guard.py         puts the guards before the handlers; one request as a guard sees it
table.py         the guard of each API
cluster.py       APIs that need one operation on the cluster, and the form of their refusals
topics.py        APIs whose topics are asked for one by one: records, topics, settings
groups.py        groups: members, offsets, coordinators
descriptions.py  descriptions of groups, and their authorized operations
metadata.py      Metadata and the like, which hide what the caller may not see
transactions.py  transactional and idempotent producers
"""
