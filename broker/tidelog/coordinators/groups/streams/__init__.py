"""Streams groups (KIP-1071): the coordinator assigns the tasks of a Kafka Streams application.

topology.py    a topology beside the cluster's topics: its tasks, why it is not ready; values
internal_topics.py  how many partitions each internal topic has, which are missing; pure
tasks.py       sets of active, standby and warm-up tasks; values
member.py      one member: what it says about itself, its epoch, its tasks; pure
assignor.py    `sticky`, the assignor; pure
holders.py     the processes that have each task; pure
reconciliation.py  the next step of a member towards its target assignment; pure
group.py       one group: answers heartbeats with records; pure
draft.py       the records of one heartbeat: member, topology, target assignment; pure
endpoints.py   which member answers interactive queries for which partitions; pure
requests.py    a heartbeat: its fields, the checks of them, its answer; pure
views.py       what these see: settings, the group
commits.py     may a member commit or fetch offsets; pure
wire.py        from and to the messages of KIP-1071; pure
records.py     records of a group from and to its members and topology
topic_creation.py  creates missing internal topics, keeps why that failed
membership.py  handles heartbeats: the group decides, the coordinator appends the records
"""
