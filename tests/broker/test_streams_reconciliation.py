"""The steps of members of streams groups, beside those of Apache Kafka 4.3.1.

`vectors/kafka-4.3.1-streams-members.jsonl` has random members in every state, their targets, what
they say that they own, the processes that have tasks, and what Kafka's CurrentAssignmentBuilder
made of them. The member's own process is "me".
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.streams.holders import TaskHolders
from tidelog.coordinators.groups.streams.member import Description, StreamsMember
from tidelog.coordinators.groups.streams.reconciliation import Target, next_step
from tidelog.coordinators.groups.streams.records import RECORDS
from tidelog.coordinators.groups.streams.tasks import HeldTasks, TaskSets
from tidelog_protocol.errors import ErrorCode

VECTORS = Path(__file__).parent / "vectors" / "kafka-4.3.1-streams-members.jsonl"
CASES = [json.loads(line) for line in VECTORS.read_text().splitlines()]


def sets(given: dict[str, list[int]]) -> dict[str, frozenset[int]]:
    return {key: frozenset(each) for key, each in given.items()}


def held(given: list[Any]) -> HeldTasks:
    active, standby, warmup = given
    epochs = {key: {int(n): epoch for n, epoch in each.items()} for key, each in active.items()}
    return HeldTasks(epochs, sets(standby), sets(warmup))


def member_of(given: dict[str, Any]) -> StreamsMember:
    return StreamsMember(
        "m",
        Description(process_id="me"),
        given["epoch"],
        given["previous"],
        RECORDS.state_of(given["state"]),
        held(given["assigned"]),
        held(given["revoking"]),
    )


def holders_of(given: list[dict[str, list[str]]]) -> TaskHolders:
    """The first holder of an active task counts, as in Kafka's map of them."""
    holders = TaskHolders()
    for role, found in enumerate(given):
        for task, processes in found.items():
            key, partition = task.split("-")
            for process in processes[:1] if role == 0 else processes:
                tasks: list[Any] = [{}, {}, {}]
                tasks[role] = {key: {partition: 1} if role == 0 else [int(partition)]}
                holders.add(held(tasks), process)
    return holders


@pytest.mark.parametrize("part", range(6))
def test_steps_are_those_of_kafkas_class(part: int) -> None:
    """In six parts, so that a failure names few cases."""
    wrong: list[tuple[int, Any]] = []
    for number, case in enumerate(CASES):
        if number % 6 != part:
            continue
        owned = case["owned"] and TaskSets(*map(sets, case["owned"]))
        target = Target(case["target"][0], TaskSets(*map(sets, case["target"][1])))
        found: Any
        try:
            found = next_step(member_of(case["member"]), target, owned, holders_of(case["holders"]))
        except RefusedError as error:
            found = {"error": error.message, "code": error.code}
        expected = case["result"]
        if "error" in expected:
            expected["code"] = ErrorCode.FENCED_MEMBER_EPOCH
        if found != (expected if "error" in expected else member_of(expected)):
            wrong.append((number, found))
    assert wrong == []


def test_the_cases_lead_from_every_state_to_every_state() -> None:
    moves = Counter(
        (case["member"]["state"], case["result"].get("state"))
        for case in CASES
        if case["result"] != case["member"]
    )
    known, unknown = {1, 2, 3}, 127
    assert {after for before, after in moves if before in known} == known
    assert {before for before, _ in moves} == {*known, unknown}
    assert moves[unknown, None] > 0


def test_holders_forget_what_is_released() -> None:
    one = HeldTasks({"0": {0: 1}}, {"0": frozenset([1])}, {"0": frozenset([2])})
    holders = TaskHolders()
    holders.add(one, "p")
    assert holders.blocks_active(("0", 0), "q")
    assert not holders.blocks_active(("0", 1), "q")
    assert [holders.blocks_copy(("0", n), "p") for n in range(4)] == [True, True, True, False]
    assert not any(holders.blocks_copy(("0", n), "q") for n in range(4))
    holders.remove(HeldTasks({"0": {0: 1}}), "q")  # another process has it
    assert holders.blocks_active(("0", 0), "q")
    holders.remove(one, "p")
    assert not any(holders.blocks_active(("0", n), "p") for n in range(4))
