"""Brokers that are killed, paused and restarted under load of real clients, and what is left then.

| File | Has |
|---|---|
| `load.py` | what a load program is asked and answers, and how each is started |
| `librdkafka_load.py`, `aiokafka_load.py` | those programs, in Python |
| `../java/ChaosLoad.java`, `../go/chaos` | and in Java and Go |
| `observed.py` | what the programs noted, as a history for `histories` to judge |
| `replicas.py` | the check that the replicas' files end up the same |
| `bad_disk.py` | a disk that fails on command |
| `rounds.py` | the cluster and the faults, chosen by a seed |
| `__main__.py` | `python -m compat.chaos` (tests/ on the path): a run by hand, and its figures |
"""
