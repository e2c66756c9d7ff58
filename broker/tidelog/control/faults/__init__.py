"""Faults on request: what goes wrong, where, and how often.

rules.py     request faults as values: what matches, when, what happens; refuses impossible ones
naming.py    what messages name: topics, partitions, groups, transactional ids
answers.py   answers with errors, stale leaders, damaged records
requests.py  applies request faults on one broker
handles.py   the calls as Python methods, for asyncio: `cluster.faults`
blocking.py  the same methods, blocking; written by docs/generate.py from handles.py
group.py     the calls: add, list, remove, clear, wait
"""
