"""States of a transactional id and the transitions between them, in one table (Kafka's
TransactionState)."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["COMPLETE", "PREPARED", "PREVIOUS", "TransactionState"]


class TransactionState(IntEnum):
    """Numbers as in `__transaction_state`; `wire_name` as admin clients see them."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def wire_name(self) -> str:
        """`PREPARE_COMMIT` is `PrepareCommit` on the wire."""
        return self.name.title().replace("_", "")


_S = TransactionState

COMPLETE = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
PREPARED = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})

PREVIOUS: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: COMPLETE | {_S.EMPTY},
    _S.ONGOING: COMPLETE | {_S.ONGOING, _S.EMPTY},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # Transactions of version 2 may be aborted before they hold anything (KIP-890).
    _S.PREPARE_ABORT: COMPLETE | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE, _S.EMPTY},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: COMPLETE | {_S.EMPTY},
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""The states from which each state may be entered."""
