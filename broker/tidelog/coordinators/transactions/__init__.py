"""Transactions (KIP-98, KIP-890): the coordinator of transactional ids.

From bottom to top: `states` and `transaction` (one id), `decisions` (the effect of a request on
it), `records` (its bytes in `__transaction_state`), `coordinator` (the ids of the partitions led
here), `markers` (commit and abort markers to send to the leaders).
"""
