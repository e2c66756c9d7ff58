"""Short garbage collections for a process that only serves brokers.

A full collection looks at each object that may be part of a cycle, and the loop waits for it: 0.1 s
with 5,000 partitions. So what has lived long is frozen: no later collection looks at it. A frozen
object still goes with its last reference. Only a cycle of frozen objects stays, until `thaw`.
"""

from __future__ import annotations

import gc

__all__ = ["FROZEN_AT", "freeze", "thaw"]

FROZEN_AT = 50_000
"""After a full collection with so many survivors, these are frozen: 20 ms were spent on them."""

_FULL = 2  # its generation


def freeze() -> None:
    """Freeze what is there now, and what has lived long whenever that has become much."""
    gc.freeze()
    if _freeze_survivors not in gc.callbacks:
        gc.callbacks.append(_freeze_survivors)


def thaw() -> None:
    """Let the next full collection look at everything: a broker has ended, which is all cycles."""
    gc.unfreeze()


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == _FULL and len(gc.get_objects(_FULL)) >= FROZEN_AT:
        gc.freeze()
