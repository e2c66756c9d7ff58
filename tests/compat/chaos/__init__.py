"""Brokers that are killed, paused and restarted under load of real clients, and what is left then.

| File | Has |
|---|---|
| `load.py` | a client's program: numbers records, notes acknowledgements, reads all back |
| `librdkafka_load.py`, `../java/ChaosLoad.java` | those programs |
| `rounds.py` | the cluster and the faults, chosen by a seed |
| `check.py` | what was acknowledged beside what is there |
| `__main__.py` | `python -m compat.chaos` (tests/ on the path): a run by hand, and its figures |
"""
