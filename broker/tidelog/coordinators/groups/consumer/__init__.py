"""Consumer groups of KIP-848: the broker assigns partitions, and members follow it one by one.

member.py         one member: what it says about itself, its epoch, what it has; pure
reconciliation.py the next step of a member towards its target assignment; pure
assignors.py      `uniform` and `range`; pure
deadlines.py      when classic members must join and sync; pure
group.py          one group: answers heartbeats with records; pure
draft.py          the records of one heartbeat: subscription and target assignment; pure
views.py          what these see: settings, the group
requests.py       a heartbeat: its fields and the checks of them; pure
commits.py        may a member commit or fetch offsets, by its epoch; pure
embedded.py       subscriptions and assignments in the bytes of classic members; pure
classic_members.py what classic members ask of a consumer group; pure
migration.py      a classic group as a consumer group, and back; pure
mixed.py          appends and applies what classic members and migration change
membership.py     heartbeats and ended sessions: appends and applies their records
records.py        records of a group from and to Kafka's bytes
"""
