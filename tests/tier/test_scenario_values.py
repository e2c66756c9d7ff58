"""A play as values and as text: marks, changes, the older rule's vector, two rules side by side."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from tidelog.__main__ import main
from tidelog_scenarios import NAMES, load
from tidelog_scenarios.changes import changes
from tidelog_scenarios.cli import _Enter
from tidelog_scenarios.marks import Marks
from tidelog_scenarios.older import OLDER, WITHOUT, document
from tidelog_scenarios.player import Played
from tidelog_scenarios.plays import Pair
from tidelog_scenarios.report import Report
from tidelog_scenarios.table import WIDTH
from tidelog_scenarios.values import Sides, Step


def broker(role, rows, *, high_watermark=0, **more):
    end = rows[-1][0] + 1 if rows else 0
    facts = {"role": role, "log_start": 0, "local_start": 0, "hw": high_watermark, "leo": end}
    return facts | {"records": rows, "epochs": [[0, 0]], "leader_epoch": 0} | more


M1, M2, M3 = [0, "m1", 0], [1, "m2", 0], [1, "m3", 1]
FIRST = {
    "brokers": {
        "A": broker("leader", [M1, M2], high_watermark=2),
        "B": broker("follower", [M1, M2], high_watermark=1),
    },
    "isr": ["A", "B"],
}
THEN = {
    "brokers": {
        "A": {"role": "stopped", "leo": 2, "records": [M1, M2]},
        "B": broker("leader", [M1, M3], high_watermark=2, epochs=[[0, 0], [1, 1]]),
    },
    "isr": ["B"],
}


def test_a_record_that_the_new_leader_lacks_is_lost() -> None:
    marks = Marks()
    marks.see(FIRST)
    assert marks.lost == []
    marks.see({"brokers": {"A": {"role": "stopped", "leo": 1, "records": [M1]}}})
    assert marks.lost == []  # without a leader nothing is known
    marks.see({"brokers": {"B": broker("leader", [M1], high_watermark=1)}})
    assert marks.lost == [(1, "m2", 0)]
    assert marks.mark(M2) == "lost"
    marks.see(THEN)
    assert (marks.mark(M1), marks.mark(M2), marks.mark(M3)) == (None, "diverged", None)


def test_records_of_the_remote_tier_are_the_leaders_in_its_lineage_only() -> None:
    leader = broker(
        "leader", [[2, "c", 1]], high_watermark=3, local_start=2, epochs=[[0, 0], [1, 1]]
    )
    remote = [{"id": "uuid-1", "records": [[0, "a", 0], [1, "x", 0]]}]
    marks = Marks()
    marks.see({"brokers": {"A": leader}, "remote": remote})
    assert (marks.mark([0, "a", 0]), marks.mark([0, "y", 0])) == (None, "diverged")
    assert marks.mark([1, "x", 0]) is None  # the leader has no record there to differ from
    live = {"id": "uuid-2", "records": [[1, "b", 1]]}
    marks.see({"brokers": {"A": leader}, "remote": [*remote, live]})
    assert (marks.mark([1, "x", 0]), marks.mark([1, "b", 1])) == ("diverged", None)
    leader["log_start"] = 2
    marks.see({"brokers": {"A": leader}, "remote": []})
    assert marks.lost == []  # deleted on request


def test_only_what_changed() -> None:
    assert changes(None, FIRST) == changes(FIRST, FIRST) == changes(FIRST, {}) == []
    assert changes(FIRST, THEN) == [
        ("A", "role leader -> stopped"),
        (
            "B",
            "role follower -> leader; high watermark 1 -> 2; epochs 0@0 -> 0@0 1@1;"
            " records - [0] 1 m2; records + [1] 1 m3",
        ),
        ("isr", "A B -> B"),
    ]
    segment = {"id": "uuid-1", "start": 0, "end": 1, "epochs": [[0, 0]], "state": "COPY_STARTED"}
    tiered = FIRST | {"rlmm": [segment], "remote": []}
    stored = tiered | {"remote": [{"id": "uuid-1", "start": 0, "end": 1, "records": [M1, M2]}]}
    shown = "start 0, end 1, epochs 0@0, state COPY_STARTED"
    assert changes(FIRST, tiered) == [("uuid-1", f"in the remote tier: {shown}, not in the store")]
    assert changes(tiered, stored) == [("uuid-1", f"now {shown}")]
    assert changes(stored, FIRST) == [("uuid-1", "gone from the remote tier")]


def played(number, state, before, **more):
    return Played(
        number=number,
        title="B leads",
        note="",
        said=[("asked", "power failure of: brokers A")],
        reply=more.get("reply", {}),
        state=state,
        before=before,
        differences=more.get("differences", []),
    )


def test_a_step_as_a_value() -> None:
    sides = Sides()
    sides.of(played(0, FIRST, None))
    read = {"from": "remote", "records": [M1, M2]}
    side = sides.of(played(1, THEN, FIRST, reply=read, differences=["x"]))
    assert [each["name"] for each in side.brokers] == ["A", "B"]
    assert side.brokers[0]["records"][1] == {
        "offset": 1,
        "value": "m2",
        "epoch": 0,
        "mark": "diverged",
    }
    assert side.brokers[1]["high_watermark"] == side.brokers[1]["log_end"] == 2
    assert side.lost == side.misread == [{"offset": 1, "value": "m2", "epoch": 0}]
    assert (side.remote, side.in_sync, side.differences) == (None, ["B"], ["x"])
    failed = sides.of(played(2, {}, THEN))
    assert (failed.brokers, failed.changes, failed.lost) == ([], [], side.lost)


def test_two_rules_side_by_side() -> None:
    lines: list[str] = []
    report = Report("kip101-s1", load("kip101-s1"), lines.append, whole=False)
    report.begin(with_old=True)
    assert any(line.startswith("   rule      high watermark. Before KIP-101") for line in lines)
    both = [Sides(), Sides()]
    first, then = played(0, FIRST, None), played(1, THEN, FIRST)
    still = played(1, FIRST, FIRST)
    for new, old in ((first, first), (still, then)):
        values = [side.of(each) for side, each in zip(both, (new, old), strict=True)]
        report.step(Pair(new, old, Step(new.number, new.title, "", *values)))
    assert max(map(len, lines)) <= WIDTH
    columns = [line.split(" | ") for line in lines if " | " in line]
    assert [cell.strip() for cell in columns[0]] == ["leader epochs", "high watermark"]
    left, right = (" ".join(" ".join(cells).split()) for cells in zip(*columns[1:], strict=False))
    assert left.endswith("nothing changed")
    assert "B role follower -> leader" in right
    assert "! LOST [0] 1 m2: it was acknowledged, and the leader does not have it" in right
    assert "! DIVERGED A has [0] 1 m2" in right


def test_every_scenario_has_an_older_rule_or_says_why_not() -> None:
    assert sorted([*OLDER, *WITHOUT]) == sorted(NAMES)
    for name, older in OLDER.items():
        vector = load(name)
        of_old = document(vector, older)
        assert len(of_old["steps"]) == len(vector["steps"])
        changed = [
            number
            for number, (step, other) in enumerate(
                zip(vector["steps"], of_old["steps"], strict=True), 1
            )
            if step != other
        ]
        assert changed == list(older.steps)
        assert load(name) == vector, "the scenario itself is as it was"


def test_the_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "--json"]) == 0
    shown = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert list(shown) == list(NAMES)
    assert shown["kip101-s1"]["rules"]["old"]["title"] == "high watermark"
    assert shown["kip405-s1"]["rules"]["old"] is None
    assert shown["kip405-s1"]["no_old_rule"].startswith("No older rule: before KIP-405")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["kip101-s1", "--json", "--pause"], "--json excludes --pause and --state"),
        (["kip101-s1", "--old", "--isolated"], "--isolated excludes --old and --json"),
        (["kip101s1"], "unknown scenario 'kip101s1'; did you mean kip101-s1?"),
    ],
)
def test_what_does_not_go_together(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scenario", *words]) == 1
    assert capsys.readouterr().err.startswith(f"tidelog scenario: {reason}")


def test_a_pause_ends_with_a_line_and_all_end_with_the_input() -> None:
    async def wait() -> None:
        reading, writing = os.pipe()
        enter = _Enter(reading)
        try:
            os.write(writing, b"\n\n")
            await enter.wait()
            await enter.wait()
            waiting = asyncio.ensure_future(enter.wait())
            await asyncio.sleep(0)
            assert not waiting.done()
            os.close(writing)
            await waiting
            await enter.wait()
        finally:
            os.close(reading)

    asyncio.run(asyncio.wait_for(wait(), 30))
