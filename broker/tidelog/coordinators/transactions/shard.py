"""One partition of `__transaction_state` in memory: its transactional ids.

Owned by `coordinator.py`. Pure: no log, wire or timers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.transactions.transaction import Transaction

if TYPE_CHECKING:
    from tidelog.coordinators.transactions.records import TransactionChange

__all__ = ["TransactionShard"]


class TransactionShard:
    """Transactional ids of one partition. `leader_epoch` is their coordinator's epoch."""

    def __init__(self, index: int, leader_epoch: int) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.is_loading = True
        self.transactions: dict[str, Transaction] = {}
        self.end_offset = 0  # after the last record read or written

    def replay(self, change: TransactionChange, end_offset: int) -> None:
        """Apply one record while loading."""
        self.end_offset = end_offset
        if change.value is None:
            self.transactions.pop(change.transactional_id, None)
        else:
            self.transactions[change.transactional_id] = Transaction(
                change.transactional_id, change.value
            )
