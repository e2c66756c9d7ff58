"""Few and short garbage collections for a process that only serves brokers.

A start makes objects that stay: collections then find nothing, and took a tenth of its CPU time.

A full collection visits each object that may be part of a cycle, and blocks the loop: 0.1 s with
5,000 partitions. So long-lived objects are frozen, and later collections skip them. A frozen object
is still freed with its last reference. Only a cycle of frozen objects stays, until `thaw`.
"""

from __future__ import annotations

import gc

__all__ = ["FROZEN_AT", "freeze", "start", "thaw"]

FROZEN_AT = 50_000
"""A full collection with this many survivors freezes them: it took 20 ms."""

STARTING_AT = 50_000
"""New objects between collections of a start; a start of one broker makes about as many."""

_usual = gc.get_threshold()
_FULL = 2  # the generation of a full collection


def start() -> None:
    """Collect seldom until `freeze`."""
    gc.set_threshold(STARTING_AT, *_usual[1:])


def freeze() -> None:
    """Freeze all objects now, and later the survivors of full collections when they become many."""
    gc.set_threshold(*_usual)
    gc.freeze()
    if _freeze_survivors not in gc.callbacks:
        gc.callbacks.append(_freeze_survivors)


def thaw() -> None:
    """Let the next full collection visit everything: an ended broker consists of cycles."""
    gc.unfreeze()


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == _FULL and len(gc.get_objects(_FULL)) >= FROZEN_AT:
        gc.freeze()
