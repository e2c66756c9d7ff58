"""Brokers in one deterministic loop: simulated time, network, disks, threads and chance.

loop.py          an asyncio loop with virtual time and a seeded order of what is ready
network.py       in-memory transports: latency, torn deliveries, resets, slow readers, cuts
disk.py          files that keep written and synced apart; deaths inside an operation
disk_files.py    its open files and locks
disk_trouble.py  failing disks: EIO, and pages that are gone afterwards
descriptors.py   the file descriptors of a process
machine.py       one broker's seams and its lives: start, stop, kill, power failure
machines.py      the machines of a cluster, and views of the brokers on them
timeline.py      the events of a run as lines
"""
