"""Scenarios of KIP-101 and KIP-405, played on a live cluster: teaching material and tests.

A vector (`vectors/*.json`) describes a scenario: the state at its beginning, and for each step an
action, the expected reply and the expected state. `tidelog scenario` plays it on real brokers. Only
the timing is the scenario's: a follower fetches, a segment is copied, a task runs and the store
fails when a step says so.

Playing:
    cli.py            the command `tidelog scenario`
    plays.py          plays a scenario, with its older rule beside it
    player.py         plays a vector step by step
    initial_state.py  brings a new cluster into the state at the beginning
    actions.py        the actions of steps
    interventions.py  rolls, copies, local retention, elections that no controller would make
    client.py         requests of clients
    answers.py        answers in the vectors' format
    observer.py       reads the state of the brokers and the remote tier
    disk.py           reads and cuts a replica's files
    compare.py        differences from a vector; states that must not exist
    values.py         steps as values, for JSON and pages
    marks.py          records that are lost, or differ from the leader's
    changes.py        what a step changed
    report.py         a play as text
    table.py          states and replies as text
    names.py          leader epochs and segments of the cluster, as the vector names them
    plan.py           the settings that a vector needs
    older.py          the older rule of each scenario, and what its steps then show
    vocabulary.py     the topic, the voters, PlayError

Brokers:
    stage.py          the cluster of a play
    host_stage.py     the same on this machine: brokers in this event loop or in processes
    actor.py          a broker in this event loop
    process.py        a broker in its own process
    inside.py         what a play does to one broker and reads from it
    fetch_gate.py     holds followers' fetches until their step
    rules.py          how brokers follow and read: today's rule and older ones
    store.py          a remote store that records reads and fails on order
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

__all__ = ["NAMES", "load"]

NAMES = (
    "kip101-s1",
    "kip101-s2",
    "kip405-s1",
    "kip405-s2",
    "kip405-s3",
    "kip405-s4",
    "kip405-s5",
    "kip405-follower-to-leader",
    "remote-outage",
    "topic-deletion",
)


def load(name: str) -> dict[str, Any]:
    """Return the vector of a scenario: `title`, `given`, `steps`, …"""
    assert name in NAMES
    text = (resources.files(__name__) / "vectors" / f"{name}.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document
