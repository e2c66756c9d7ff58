"""The assignor of streams groups, beside what that of Apache Kafka 4.3.1 decided.

`vectors/kafka-4.3.1-streams-assignor.jsonl` has random groups whose members, topologies and numbers
of standby tasks change, and the assignment by Kafka's own class, which ours must equal.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinators.groups.streams.assignor import Assignee, TaskCount, sticky_assignor
from tidelog.coordinators.groups.streams.tasks import TaskSets
from tidelog.java_order import LeastFirst, hash_order

VECTORS = Path(__file__).parent / "vectors" / "kafka-4.3.1-streams-assignor.jsonl"
CASES = [json.loads(line) for line in VECTORS.read_text().splitlines()]


def tasks(given: dict[str, list[int]]) -> dict[str, frozenset[int]]:
    return {key: frozenset(each) for key, each in given.items()}


@pytest.mark.parametrize("part", range(8))
def test_assignments_are_those_of_kafkas_class(part: int) -> None:
    """In eight parts, so that a failure names few cases."""
    wrong: list[tuple[int, Any]] = []
    for number, case in enumerate(CASES):
        if number % 8 != part:
            continue
        members = {
            member_id: Assignee(process, TaskSets(tasks(active), tasks(standby)))
            for member_id, process, active, standby in case["members"]
        }
        counts = {key: TaskCount(*each) for key, each in case["subtopologies"].items()}
        found = sticky_assignor(members, counts, case["standby"])
        expected = {
            member_id: TaskSets(tasks(active), tasks(standby))
            for member_id, (active, standby) in case["assignment"].items()
        }
        if found != expected:
            wrong.append((number, found))
    assert wrong == []


def test_the_cases_have_members_that_stay_standby_tasks_and_shared_processes() -> None:
    assert len(CASES) > 200
    assert sum(any(active for _, _, active, _ in case["members"]) for case in CASES) > 100
    assert sum(any(standby for _, standby in case["assignment"].values()) for case in CASES) > 50
    processes = [Counter(each[1] for each in case["members"]) for case in CASES]
    assert sum(max(each.values()) > 2 for each in processes) > 20


def test_a_group_without_members_has_no_assignment() -> None:
    assert sticky_assignor({}, {"0": TaskCount(3, is_stateful=True)}, 1) == {}


GROUPS = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.sampled_from(["p", "q", "r"]), min_size=1, max_size=6
)
TOPOLOGIES = st.dictionaries(
    st.sampled_from(["0", "1", "2"]),
    st.builds(TaskCount, st.integers(0, 7), st.booleans()),
    max_size=3,
)


@given(GROUPS, TOPOLOGIES, st.integers(0, 2))
def test_each_task_is_active_once_and_never_twice_in_a_process(
    processes: dict[str, str], topology: dict[str, TaskCount], standby: int
) -> None:
    members = {member_id: Assignee(process) for member_id, process in processes.items()}
    for _ in range(2):
        assigned = sticky_assignor(members, topology, standby)
        owners = Counter(
            (key, n) for each in assigned.values() for key in each.active for n in each.active[key]
        )
        wanted = {(key, n) for key, each in topology.items() for n in range(each.tasks)}
        assert owners == Counter(wanted)
        in_processes = Counter(
            (processes[member_id], key, n)
            for member_id, each in assigned.items()
            for kind in (each.active, each.standby)
            for key in kind
            for n in kind[key]
        )
        assert set(in_processes.values()) <= {1}
        again = {name: Assignee(processes[name], assigned[name]) for name in members}
        if standby == 0:
            assert sticky_assignor(again, topology, standby) == assigned
        members = again


def test_hash_order_is_javas() -> None:
    """By the definitions of `String.hashCode` and `HashMap`; "Aa" and "BB" have the same hash."""
    assert hash_order(["BB", "Aa"]) == ["BB", "Aa"]
    assert hash_order(["Aa", "BB", "Aa"]) == ["Aa", "BB"]
    assert hash_order(["2", "10", ""]) == ["", "2", "10"]
    assert hash_order(["9", "\N{GRINNING FACE}", "7"]) == ["7", "\N{GRINNING FACE}", "9"]
    assert hash_order(map(str, range(12))) == ["0", "11", *map(str, range(1, 10)), "10"]
    assert hash_order(["10", "9", "2"], 2) == ["9", "2", "10"]


@given(st.lists(st.integers(0, 5)))
def test_the_queue_gives_the_least_first(loads: list[int]) -> None:
    queue = LeastFirst(float, loads)
    assert len(queue) == len(loads)
    assert [queue.poll() for _ in loads] == sorted(loads)
