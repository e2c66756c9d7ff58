"""Decisions about the cluster: image + request -> records + answers, pure but for one door.

controller.py  the door: decides one operation after the other and commits them
topics.py      create topics and partitions      deletion.py   delete topics
configs.py     change settings                   placement.py  replicas on brokers
names.py       legal topic names                 decisions.py  what a decision is
"""
