"""The whole broker in one deterministic loop: the loop, network, disks and machines of
`tidelog.simulation`, under clients, faults and checkers.

faults.py     what goes wrong when: a plan drawn from the seed
wire.py       a raw client; producers.py consumers.py groups.py admin.py: who uses it, and how
consumer_groups.py  groups of KIP-848 and little else: a play with a chance of its own
share_groups.py  a share group (KIP-932) alone; cluster/work/share_groups.py  beside other work.
                 share_members.py share_clients.py share_writers.py are its clients, share_world.py
                 what these need of a run, share_history.py what they are promised;
                 share_states.py  its stored state alone
streams_groups.py  a group of Kafka Streams (KIP-1071): the same for its instances, or exactly once
history.py    what clients were told, and what that obliges the broker to
raw_logs.py   logs as the bytes on the disk say
checkers.py   what must hold at every step, death and start, and at the end
cluster/       several brokers; transactions*.py: transactional producers and copiers among them
world.py      one run: machine, clients, faults; run.py: from seed to verdict, shortest failing plan
mutants/      planted bugs that must be found
__main__.py   many seeds over the cores: `make simulate SEEDS=N`; one again: --seed N --faults 0,2
"""
