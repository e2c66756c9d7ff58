"""The whole broker in one deterministic loop: simulated time, network, disk, threads and chance.

loop.py       an asyncio loop with virtual time and a seeded order of what is ready
network.py    in-memory transports: latency, torn deliveries, resets, slow readers
disk.py       files that keep written and synced apart; crashes, full and slow disks
machine.py    one broker's seams and its life: start, kill, power failure, restart
workload.py   clients that write and read, and what they were told
checkers.py   what must hold at every step and at the end
run.py        one seed from start to verdict
__main__.py   many seeds over the cores: `make simulate SEEDS=N`
"""
