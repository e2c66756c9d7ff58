"""The brokers that are measured, each behind the same small interface.

peer.py          a process, a bootstrap address, data in one folder
cluster.py       several brokers of one cluster behind it
tidelog.py       tidelog as its users start it
apache_kafka.py  Apache Kafka from its jars (kafka_jars.py)
tiered.py        both with a remote tier
secured.py       both with a listener of TLS
attacked.py      tidelog with all kinds of listeners, and what held its loop
kfake.py         franz-go's fake cluster
versitygw.py     an S3 server on a folder
go_programs.py   builds our Go programs once
process.py       a child process and its cost
address.py       ports, and whether a broker serves
"""
