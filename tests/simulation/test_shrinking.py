"""The shortest plan that still fails."""

from __future__ import annotations

from tidelog.simulation.shrinking import shrink


def test_only_what_is_needed_is_left() -> None:
    runs = []

    def again(plan: tuple[int, ...]) -> tuple[int, ...] | None:
        runs.append(plan)
        return plan if {3, 11} <= set(plan) else None

    assert shrink(tuple(range(16)), lambda plan: plan, again) == (3, 11)
    assert len(runs) < 60


def test_the_number_of_runs_is_limited() -> None:
    runs = []
    shrink(tuple(range(100)), lambda plan: plan, lambda plan: runs.append(plan), runs_max=7)
    assert len(runs) == 7
