"""Work that a part of the seeds has beside what every run of a cluster does.

`seeds.py` says which seed has which kind, `workload.py` runs them in a world. One file for each
kind, with its clients and what is checked of it.
"""
