"""Share groups (KIP-932): several members read a partition, and acknowledge each record.

share_groups.py  the parts below that a broker has
member.py      one member: what it says about itself, its epoch, what it has; pure
assignor.py    `simple`, the assignor; pure
partitions.py  the share partitions of which there is state; pure
group.py       one group: answers heartbeats with records; pure
draft.py       the records of one heartbeat: subscription, target assignment, partitions; pure
requests.py    a heartbeat: its fields and the checks of them; pure
views.py       what these see: settings, the group
records.py     records of a group from and to its members
membership.py  heartbeats: appends and applies their records
state_changes.py  has the share coordinator begin and delete the state of partitions
offsets.py     describe, alter and delete the offsets of share partitions
end_offsets.py  the ends of partitions, for the lag
driven.py      calls of other brokers in tasks, for driven work

The share coordinator (`coordinators/share`) has
the state of the share partitions.
"""
