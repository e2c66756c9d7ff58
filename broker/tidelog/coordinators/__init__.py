"""Coordinators of consumer groups and transactions.

led_partitions.py  the partitions of their internal topics that this broker leads
groups/            consumer groups and their offsets
share/             the state of share groups
transactions/      transactional ids

What waits for a write is a coroutine that `awaiting.drive` runs without a task; handlers answer
with `RequestContext.answer_with`.
"""
