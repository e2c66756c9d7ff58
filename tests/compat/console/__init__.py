"""Transcripts of Kafka's console tools: what they print of Apache Kafka 4.3.1, and of tidelog.

sessions*.py  commands as a user types them, each session on brokers of its own; transcripts.py  all
console.py    runs the commands, in one JVM, and waits for what brokers learn a little later
normalise.py  what differs from run to run: ids, times, ports, widths of columns
recorded/     one text a session, recorded from a live Apache Kafka
__main__.py   `python -m compat.console --record [NAME...]`, with tests/ on the path
"""
