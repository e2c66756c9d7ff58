"""Decisions about the cluster: image + request -> records + answers, pure but for `controller.py`.

controller.py  decides one operation after the other and commits them
topics.py      create topics and partitions      deletion.py   delete topics
configs.py     change settings                   placement.py  replicas on brokers
brokers.py     register, heartbeat, fence        sessions.py   which brokers sent a heartbeat
partitions.py  leaders and in-sync replicas      changes.py    one partition's next state
elections.py   elections on request, in rounds   reassignment.py  replicas that move
directories.py log directories of replicas        tiered_topics.py  new topics of the remote tier
client_quotas.py  set and remove client quotas   user_credentials.py  of SCRAM users
acls.py        create and delete ACLs         delegation_tokens.py  create, renew, expire tokens
names.py       legal topic names                 decisions.py   the result of a decision
features.py    levels of features            registrations.py  controllers register
"""
