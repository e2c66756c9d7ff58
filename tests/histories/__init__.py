"""Histories: every call of every client, with when it was made and answered, and checks of them.

A history is all that the checks read: no broker's memory, no file. So the same checks judge
simulated clients (`sim/observed.py`) and real ones (`compat/chaos`).

    calls.py         the calls, and the history that holds them
    queues.py        each partition as a queue: lost, doubled, reordered, phantom records
    transactions.py  atomicity, aborted and early reads, cycles of reads between transactions
    members.py       static members of classic groups keep their place, and are fenced
    epochs.py        groups with member epochs (KIP-848): owners, fencing, epochs that go back
    tenures.py       who has what from when to when: no two at a time
    real_time.py     offsets that go back: ends and starts of logs, committed offsets, leaders

Kafka's promises are fewer than linearizability. `real_time.py` says what each check leaves out, and
why. The anomalies' names are those of Jepsen's Kafka workload and of Elle where these have one.
"""
