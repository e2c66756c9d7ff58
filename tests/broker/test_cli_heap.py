"""Full garbage collections stay short, however much lives long."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from tidelog.cli import heap

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def few_are_frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(heap, "FROZEN_AT", 1000)
    before = list(gc.callbacks)
    gc.collect()
    gc.disable()
    heap.freeze()
    yield
    gc.enable()
    gc.callbacks[:] = before
    gc.freeze()  # as it was


def test_many_survivors_of_a_full_collection_are_frozen() -> None:
    frozen = gc.get_freeze_count()
    kept = [[index] for index in range(1000)]
    gc.collect(1)
    assert gc.get_freeze_count() == frozen, "only full collections cost much"
    gc.collect()
    assert gc.get_freeze_count() >= frozen + len(kept)


def test_few_survivors_are_looked_at_again() -> None:
    gc.collect()
    frozen = gc.get_freeze_count()
    kept = [[index] for index in range(100)]
    gc.collect()
    assert gc.get_freeze_count() == frozen
    assert len(kept) == 100


def test_a_frozen_cycle_goes_after_a_thaw() -> None:
    class Ended:
        pass

    broker = Ended()
    broker.itself = broker  # type: ignore[attr-defined]
    gone = weakref.ref(broker)
    gc.freeze()
    del broker
    gc.collect()
    assert gone() is not None
    heap.thaw()
    gc.collect()
    assert gone() is None


def test_it_is_set_up_once() -> None:
    callbacks = list(gc.callbacks)
    heap.freeze()
    assert gc.callbacks == callbacks
