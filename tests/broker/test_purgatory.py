"""Parked operations: woken by keys, by their deadline, once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.replication.purgatory import DelayedOperation, Purgatory


class Handle:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualTimers:
    """A loop's clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pending: list[tuple[float, Any, Handle]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Any, *args: Any) -> Handle:
        handle = Handle()
        self.pending.append((when, lambda: callback(*args), handle))
        return handle

    def live(self) -> list[float]:
        return sorted(when for when, _, handle in self.pending if not handle.cancelled)

    def advance_ms(self, milliseconds: float) -> None:
        end = self.now + milliseconds / 1000
        while True:
            due = [entry for entry in self.pending if entry[0] <= end and not entry[2].cancelled]
            if not due:
                break
            entry = min(due, key=lambda entry: entry[0])
            self.pending.remove(entry)
            self.now = max(self.now, entry[0])
            entry[1]()
        self.now = end


class Wait(DelayedOperation[str]):
    """Completes when all of `needs` were touched."""

    def __init__(self, *needs: str, log: list[str] | None = None, name: str = "") -> None:
        super().__init__()
        self.needs = set(needs)
        self.touches: list[str] = []
        self.completions: list[bool] = []
        self.log = log
        self.name = name

    def touch(self, key: str) -> bool:
        assert not self.closed
        self.touches.append(key)
        self.needs.discard(key)
        return not self.needs

    def complete(self, *, expired: bool) -> None:
        self.completions.append(expired)
        if self.log is not None:
            self.log.append(self.name)


def test_an_event_completes_what_waits_for_its_key_once() -> None:
    purgatory: Purgatory[str] = Purgatory(ManualTimers())
    one, other = Wait("a"), Wait("b")
    purgatory.park(one, ["a"], 500)
    purgatory.park(other, ["b"], 500)
    assert len(purgatory) == 2
    purgatory.check("a")
    purgatory.check("a")
    assert one.completions == [False]
    assert other.completions == []
    assert other.touches == []  # never scanned
    assert (len(purgatory), purgatory.watched("a"), purgatory.watched("b")) == (1, 0, 1)


def test_an_operation_waits_until_all_it_needs_has_come() -> None:
    purgatory: Purgatory[str] = Purgatory(ManualTimers())
    wait = Wait("a", "b")
    purgatory.park(wait, ["a", "b", "c"], 500)
    purgatory.check("c")
    purgatory.check("a")
    assert wait.completions == []
    purgatory.check("b")
    assert wait.completions == [False]
    assert purgatory.watched("c") == 0


def test_all_keys_of_one_event_are_touched_before_anything_completes() -> None:
    purgatory: Purgatory[str] = Purgatory(ManualTimers())
    first = Wait()  # ready at the first touch
    purgatory.park(first, ["a", "b"], 500)
    purgatory.check_all(["a", "x", "b"])
    assert first.touches == ["a", "b"]
    assert first.completions == [False]


def test_the_deadline_completes_with_expired_and_one_timer_serves_all() -> None:
    timers = ManualTimers()
    purgatory: Purgatory[str] = Purgatory(timers)
    late, soon, middle = Wait("a"), Wait("a"), Wait("a")
    purgatory.park(late, ["a"], 500)
    purgatory.park(soon, ["a"], 100)
    purgatory.park(middle, ["a"], 300)
    assert timers.live() == [100.1]
    timers.advance_ms(99)
    assert soon.completions == []
    timers.advance_ms(1)
    assert (soon.completions, late.completions) == ([True], [])
    assert timers.live() == [100.3]
    timers.advance_ms(1000)
    assert (middle.completions, late.completions) == ([True], [True])
    assert timers.live() == []
    assert len(purgatory) == 0


def test_a_completed_operation_does_not_expire() -> None:
    timers = ManualTimers()
    purgatory: Purgatory[str] = Purgatory(timers)
    wait = Wait("a")
    purgatory.park(wait, ["a"], 100)
    purgatory.check("a")
    timers.advance_ms(1000)
    assert wait.completions == [False]


def test_force_and_cancel() -> None:
    timers = ManualTimers()
    purgatory: Purgatory[str] = Purgatory(timers)
    forced, cancelled = Wait("a"), Wait("a")
    purgatory.park(forced, ["a"], 100)
    purgatory.park(cancelled, ["a"], 100)
    assert purgatory.finish(forced)
    assert not purgatory.finish(forced)
    purgatory.cancel(cancelled)
    purgatory.cancel(forced)
    purgatory.check("a")
    timers.advance_ms(1000)
    assert (forced.completions, cancelled.completions) == ([False], [])


def test_an_operation_parked_while_another_expires_keeps_its_own_timer() -> None:
    timers = ManualTimers()
    purgatory: Purgatory[str] = Purgatory(timers)
    second = Wait("a")

    class Renewing(Wait):
        def complete(self, *, expired: bool) -> None:
            super().complete(expired=expired)
            purgatory.park(second, ["a"], 50)

    first = Renewing("a")
    purgatory.park(first, ["a"], 100)
    purgatory.park(Wait("a"), ["a"], 400)
    timers.advance_ms(149)
    assert (first.completions, second.completions) == ([True], [])
    timers.advance_ms(1)
    assert second.completions == [True]


def test_completing_one_may_complete_another() -> None:
    purgatory: Purgatory[str] = Purgatory(ManualTimers())
    second = Wait("a")

    class Chain(Wait):
        def complete(self, *, expired: bool) -> None:
            super().complete(expired=expired)
            purgatory.check("a")

    first = Chain("a")
    purgatory.park(first, ["a"], 500)
    purgatory.park(second, ["a"], 500)
    purgatory.check("a")
    assert (first.completions, second.completions) == ([False], [False])


def test_dead_deadlines_are_purged() -> None:
    timers = ManualTimers()
    purgatory: Purgatory[str] = Purgatory(timers, purge_min=10)
    for _ in range(100):
        wait = Wait("a")
        purgatory.park(wait, ["a"], 60_000)
        purgatory.check("a")
    assert len(purgatory) == 0
    assert len(purgatory._deadlines) <= 12


def test_close_completes_all_in_order_of_their_deadlines() -> None:
    timers = ManualTimers()
    purgatory: Purgatory[str] = Purgatory(timers)
    log: list[str] = []
    purgatory.park(Wait("a", log=log, name="late"), ["a"], 500)
    purgatory.park(Wait("b", log=log, name="soon"), ["b"], 100)
    purgatory.close()
    assert log == ["soon", "late"]
    assert timers.live() == []


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.just("park"), st.sets(st.sampled_from("abc"), min_size=1), st.integers(1, 50)
            ),
            st.tuples(st.just("check"), st.sampled_from("abc"), st.just(0)),
            st.tuples(st.just("advance"), st.just(""), st.integers(0, 30)),
        ),
        max_size=40,
    )
)
def test_against_a_model_that_scans(actions: list[tuple[str, Any, int]]) -> None:
    timers = ManualTimers()
    purgatory: Purgatory[str] = Purgatory(timers, purge_min=3)
    model: list[tuple[Wait, set[str], float]] = []
    now = 0
    for action, argument, number in actions:
        if action == "park":
            wait = Wait(*argument)
            purgatory.park(wait, sorted(argument), number)
            model.append((wait, set(argument), now + number))
        elif action == "check":
            purgatory.check(argument)
            for _, needs, _ in model:
                needs.discard(argument)
        else:
            timers.advance_ms(number)
            now += number
        open_model = []
        for wait, needs, deadline in model:
            if not needs:
                assert wait.completions == [False]
            elif deadline <= now:
                assert wait.completions == [True]
            else:
                assert wait.completions == []
                open_model.append((wait, needs, deadline))
        model = open_model
        assert len(purgatory) == len(model)
    assert sum(purgatory.watched(key) for key in "abc") == sum(
        len(w.watched_keys) for w, _, _ in model
    )


class Broken(Wait):
    """Raises in the method that `where` names."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.failures = 0

    def touch(self, key: str) -> bool:
        if self.where == "touch":
            raise RuntimeError("touch")
        return super().touch(key)

    def complete(self, *, expired: bool) -> None:
        raise RuntimeError("complete")

    def fail(self) -> None:
        self.failures += 1
        if self.where == "fail":
            raise RuntimeError("fail")


@pytest.mark.parametrize("where", ["touch", "complete", "fail"])
@pytest.mark.parametrize("event", ["check", "check_all", "deadline", "close"])
def test_an_operation_that_raises_fails_alone(
    where: str, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    timers = ManualTimers()
    purgatory: Purgatory[str] = Purgatory(timers)
    before, broken, behind = Wait("a"), Broken(where), Wait("a")
    for operation in (before, broken, behind):
        purgatory.park(operation, ["a"], 100)
    late = Wait("b")
    purgatory.park(late, ["b"], 300)
    if event == "check":
        purgatory.check("a")
    elif event == "check_all":
        purgatory.check_all(["a"])
    elif event == "deadline":
        timers.advance_ms(100)
    else:
        purgatory.close()
    is_expired = event == "deadline"
    assert (before.completions, behind.completions) == ([is_expired], [is_expired])
    assert (broken.failures, broken.closed) == (1, True)
    assert "Broken failed" in caplog.text
    timers.advance_ms(1000)
    assert late.completions == [event != "close"], "the timer goes on"
    assert len(purgatory) == 0


def test_time_that_passes_at_once_expires_what_is_due_in_it() -> None:
    timers = ManualTimers()
    purgatory: Purgatory[str] = Purgatory(timers)
    purgatory.pass_by(1)
    short, long = Wait("a"), Wait("a")
    purgatory.park(short, ["a"], 500)
    purgatory.park(long, ["a"], 5000)
    purgatory.pass_by(1)
    timers.advance_ms(0)
    assert (short.completions, long.completions) == ([True], [])
    timers.advance_ms(3999)
    assert long.completions == []
    timers.advance_ms(1)
    assert long.completions == [True]
