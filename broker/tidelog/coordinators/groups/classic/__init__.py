"""Classic groups: members join and sync, and their leader assigns.

group.py       one group: the steps of its state machine, the moves of a rebalance; pure
states.py      its states, their transitions, and its limits
members.py     its members: the leader, static and pending ones; pure
member.py      one member, results and effects of the machine; pure
records.py     the record of a group, from and to the group
membership.py  requests of members: the group decides, the coordinator performs the effects
"""
