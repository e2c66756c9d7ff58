"""What each scenario is under an older rule: the rule, and what its steps then show.

`document` returns the vector of that play. It differs from the scenario's in the steps named here,
so an older play is checked as strictly as today's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_scenarios.rules import HIGH_WATERMARK, OFFSETS_ALONE

if TYPE_CHECKING:
    from tidelog_scenarios.rules import Rule

__all__ = ["OLDER", "WITHOUT", "Older", "document"]

Parts = dict[str, Any]


class Older(NamedTuple):
    """The older rule of a scenario, and the parts of its steps that differ, by number."""

    rule: Rule
    steps: dict[int, Parts]


_M1, _M2, _M3 = [0, "m1", 0], [1, "m2", 0], [1, "m3", 1]
_NOT_ASKED: Parts = {
    "name": "The follower asks no leader where an epoch ends",
    "do": {"action": "nothing", "why": "this rule asks for no epochs"},
    "expect": {},
    "reply": {},
    "note": "",
}


def _fetch(follower: str, leader: str, offset: int) -> Parts:
    return {
        "action": "follower_fetch",
        "follower": follower,
        "leader": leader,
        "offset": offset,
        "last_fetched_epoch": -1,
    }


def _brokers(**facts: Parts) -> Parts:
    return {"brokers": facts}


def _reads(name: str, row: list[Any]) -> Parts:
    return {"error": "NONE", "from": "remote", "segments": [name], "first_record": row}


OLDER: dict[str, Older] = {
    "kip101-s1": Older(
        HIGH_WATERMARK,
        {
            2: {
                "name": "A is back; it cuts to its HW",
                "expect": _brokers(A={"hw": 1, "leo": 1, "records": [_M1]}),
                "note": "m2 was acknowledged, and now B alone has it",
            },
            3: _NOT_ASKED,
            5: {
                "expect": _brokers(
                    A={
                        "role": "leader",
                        "leader_epoch": 1,
                        "hw": 1,
                        "leo": 1,
                        "records": [_M1],
                        "epochs": [[0, 0], [1, 1]],
                    }
                ),
                "note": "m2 is lost: the leader does not have it",
            },
            6: {"expect": _brokers(B={"hw": 2, "leo": 2, "records": [_M1, _M2]})},
            7: {
                "name": "B's first fetch is beyond the leader's end",
                "do": _fetch("B", "A", 2),
                "reply": {"error": "OFFSET_OUT_OF_RANGE", "records": []},
                "expect": _brokers(B={"leo": 1, "records": [_M1], "epochs": [[0, 0]]}),
                "note": "B truncates to the leader's end: no replica has m2 any more",
            },
        },
    ),
    "kip101-s2": Older(
        HIGH_WATERMARK,
        {
            5: {"note": "A's HW is its log end, so it cuts nothing"},
            6: _NOT_ASKED,
            7: {
                "name": "A's first fetch finds nothing wrong",
                "do": _fetch("A", "B", 2),
                "reply": {"error": "NONE", "records": []},
                "expect": _brokers(A={"leo": 2, "records": [_M1, _M2], "epochs": [[0, 0]]}),
                "note": "the ends are equal, and only epochs would show that the records are not",
            },
            8: {
                "name": "A fetches again",
                "do": _fetch("A", "B", 2),
                "reply": {"error": "NONE", "records": []},
                "expect": {
                    "isr": ["A", "B"],
                    **_brokers(A={"leo": 2, "records": [_M1, _M2]}, B={"records": [_M1, _M3]}),
                },
                "note": "both are in sync, with different records at offset 1",
            },
        },
    ),
    "kip405-s3": Older(
        OFFSETS_ALONE,
        {
            15: {
                "reply": {
                    "error": "NONE",
                    "from": "remote",
                    "segments": ["uuid-1"],
                    "records": [[0, "msg 0", 0], [1, "msg 1", 0]],
                },
                "note": "msg 1 was lost with A and B; the consumer reads it, and never sees msg 3",
            },
        },
    ),
    "kip405-s5": Older(
        OFFSETS_ALONE,
        {
            23: {
                "reply": _reads("uuid-2", [2, "msg 4", 1]),
                "note": "uuid-2 is the newest segment with offset 2, of a branch that is dead",
            },
            24: {
                "reply": _reads("uuid-2", [2, "msg 4", 1]),
                "note": "msg 4 and msg 5 are one batch",
            },
        },
    ),
}
_NO_FOLLOWER_RULE = (
    "No older rule: before KIP-405 no follower found its next offset in a remote tier."
)
_SAME = "No older rule that shows: reads by offsets alone find the same segments here."
WITHOUT = {
    "kip405-s1": _NO_FOLLOWER_RULE,
    "kip405-s2": _NO_FOLLOWER_RULE,
    "kip405-s4": _SAME,
    "kip405-follower-to-leader": "No older rule: before KIP-405 no leader copied segments.",
    "remote-outage": "No older rule: before KIP-405 there was no remote tier to be away.",
    "topic-deletion": "No older rule: before KIP-405 there was no remote tier to delete from.",
}
"""Why the other scenarios have one rule only."""


def document(vector: dict[str, Any], older: Older) -> dict[str, Any]:
    """Return the vector as it is under the older rule."""
    steps = [step | older.steps.get(number, {}) for number, step in enumerate(vector["steps"], 1)]
    return {**vector, "steps": steps}
