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


def is_frozen(survivor: object) -> bool:
    """Whether collections pass over it; the count of all that are frozen moves by itself."""
    return not any(each is survivor for each in gc.get_objects())


def test_many_survivors_of_a_full_collection_are_frozen() -> None:
    kept = [[index] for index in range(1000)]
    gc.collect(1)
    assert not is_frozen(kept), "only full collections cost much"
    gc.collect()
    assert is_frozen(kept)


def test_few_survivors_are_looked_at_again() -> None:
    kept = [[index] for index in range(100)]
    gc.collect()
    assert not is_frozen(kept)


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
