"""What consumer, share and streams groups share: the coordinator computes their assignments.

group.py          a group: its epochs, members and targets; replays records; pure
member.py         what a member says about itself, what an assignor sees of it; pure
states.py         the states of groups and of members, one table each; pure
reconciliation.py what members wait for, by their states; pure
requests.py       a refusal and an answer; pure
records.py        records of all three kinds, from and to Kafka's bytes
deadlines.py      when members must be heard of again; pure
views.py          what these see: settings, the group; pure
draft.py          when a target assignment is due, and its records; pure
membership.py     finds a group, appends the records of a heartbeat, awaits their commit
topics.py         the cluster's topics, as a group sees them; pure
subscriptions.py  what the members subscribe to, counted; pure
metadata_hash.py  the hash by which a group sees that its topics changed; pure
xxh3.py           the hash function; pure

A heartbeat changes nothing by itself. It returns records, which `ModernGroup.replay` applies once
they are appended, the same as at loading. The name is that of Kafka's package.
"""
