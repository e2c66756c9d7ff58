"""Decisions about the cluster: image + request -> records + answers, pure but for one door.

controller.py  the door: decides one operation after the other and commits them
topics.py      create topics and partitions      deletion.py   delete topics
configs.py     change settings                   placement.py  replicas on brokers
brokers.py     register, heartbeat, fence        sessions.py   who was heard lately
partitions.py  who leads, who is in sync         changes.py    one partition's next state
elections.py   elections on request, in rounds   reassignment.py  replicas that move
names.py       legal topic names                 decisions.py  what a decision is
"""
