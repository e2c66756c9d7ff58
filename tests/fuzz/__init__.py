"""Fuzzing: whatever the bytes, only the declared errors, within budgets of memory and of time.

`campaign.py` lists what is fuzzed: each target of `wire_targets.py`, `record_targets.py` and
`file_targets.py` takes bytes, from a client or from a file.
`mutation.py` changes bytes, `grammar.py` writes requests from the message tables with lies in them.
`oracles.py` runs one input and says what is wrong. `sequences.py` sends sequences of requests to a
broker, which then restarts. `campaign.py` looks for new inputs by chance, `guided.py` with atheris
by coverage. `corpus/` has inputs that found a bug, or that reach far.

`test_fuzz.py` plays the corpus again, and new input of a constant seed: new input of each commit
would break whatever commit it finds an old bug at. `python -m fuzz --minutes N` takes another seed
each time.
"""
