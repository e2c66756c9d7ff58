"""Faults on request: what goes wrong, where, and how often.

rules.py     request faults as values: what matches, when, what happens; refuses impossible ones
answers.py   answers with errors of topics, stale leaders, damaged records
requests.py  applies request faults on one broker
gates.py     holds and delays what passes the connections of a broker
link_values.py  link faults as values
links.py     the calls on links: cut, slow, list, wait, heal
link_faults.py  the faults of one broker's links
devices.py   the calls on disks and remote stores
device_faults.py  the faults of one broker's disk and store
shared_counts.py  counts of rules across brokers in processes of their own
handles.py   the calls as Python methods, for asyncio: `cluster.faults`, `.network`
blocking.py  the same methods, blocking; written by docs/generate.py from handles.py
hits.py      waits for the hits of a fault
group.py     the calls: add, list, disable, enable, remove, clear, wait
"""
