"""`tidelog scenario`: every scenario as its vector says, and what it says where it is not."""

from __future__ import annotations

import asyncio
import copy
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidelog_scenarios as scenarios
from support.vectors import load_yaml
from tidelog.__main__ import main
from tidelog_protocol.records import Record, build_batch
from tidelog_scenarios import NAMES, load, player
from tidelog_scenarios.compare import state_differs, unsound
from tidelog_scenarios.disk import checkpointed, cut, records_in
from tidelog_scenarios.host_stage import HostStage
from tidelog_scenarios.names import Names
from tidelog_scenarios.older import OLDER, WITHOUT
from tidelog_scenarios.table import WIDTH, state_lines
from tidelog_scenarios.vocabulary import PlayError
from tidelog_storage.checkpoints import OffsetCheckpoint
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("name", "brokers"),
    [(name, "here") for name in NAMES]
    + [
        pytest.param(
            *(name, "isolated"),
            marks=[] if name in {"kip101-s1", "kip405-s1"} else pytest.mark.nightly,
        )
        for name in NAMES
    ],
)
def test_scenario(name: str, brokers: str, capsys: pytest.CaptureFixture[str]) -> None:
    both = brokers == "here" and name in OLDER
    more = ["--isolated"] if brokers == "isolated" else ["--old"]
    assert main(["scenario", name, "--state", *more]) == 0
    told = capsys.readouterr()
    document = load(name)
    steps = document["steps"]
    lines = told.out.splitlines()
    also = ", those of the older rule too" if both else ""
    assert lines[-1] == f"{name}: all {len(steps)} steps match the vector{also}"
    assert any(line.endswith(WITHOUT.get(name, "?")[-30:]) for line in lines) == (
        brokers == "here" and not both
    )
    assert told.err == ""
    assert max(map(len, lines)) <= WIDTH
    for number, step in enumerate(steps, 1):
        assert any(line.startswith(f"{number}. {step['name'][:20]}") for line in lines)
    tables = sum(line.split()[:2] == ["broker", "role"] for line in lines)
    assert tables == len(steps) + 1
    tiers = sum(line.startswith("    remote tier  ") for line in lines)
    assert tiers == tables * ("remote" in document["given"])
    told_of_deletion = sum(line.startswith("      deletion     ") for line in lines)
    assert told_of_deletion == (len(steps) - 1) * (name == "topic-deletion")


def test_isolated_brokers_are_processes() -> None:
    """Each has its own, and a play notices when one is gone."""

    async def scenario():
        async with HostStage(load("kip101-s1"), isolated=True) as stage:
            pids = {stage._nodes[name].pid for name in "AB"}
            assert len(pids | {os.getpid()}) == 3
            assert await stage.inside("A").has_replica() is False
            inside = stage.inside("B")
            os.kill(stage._nodes["B"].pid, signal.SIGKILL)

            async def look_on():
                while True:
                    await inside.look()

            with pytest.raises(PlayError, match="the process is gone"):
                await look_on()

    asyncio.run(scenario())


def first_step(document, kind):
    return next(
        (f"in step {number}, {step['name']}: ", step[kind])
        for number, step in enumerate(document["steps"], 1)
        if kind in step
    )


def plant_state(document):
    """Another log end of a broker, or of a remote segment, in the first state that is expected."""
    where, facts = first_step(document, "expect")
    if "brokers" in facts:
        next(iter(facts["brokers"].values()))["leo"] = 17
    else:
        facts["rlmm"][0]["end"] = 17
    return where


def plant_reply(document):
    """Something else in the first answer that is expected."""
    where, reply = first_step(document, "reply")
    for key in ("end_offset", "error_code", "segment"):
        if key in reply:
            reply[key] = 17
            return where
    raise AssertionError


def plant_log(document):
    """Another event of the deletion."""
    where, facts = first_step(document, "expect")
    facts["metadata_log"].append("uuid-17 DELETE_SEGMENT_STARTED")
    return where


def plant_given(document):
    """Another beginning than can be made."""
    document["given"]["brokers"]["A"]["epochs"].append([17, 17])
    return "at the beginning: "


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        ("kip405-s1", plant_reply),
        ("kip405-s2", plant_given),
        ("kip405-s4", plant_state),
        ("remote-outage", plant_reply),
        ("topic-deletion", plant_log),
    ],
)
def test_a_difference_is_reported(
    name: str,
    plant: Callable[[dict[str, Any]], object],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document = copy.deepcopy(load(name))
    where = plant(document)
    monkeypatch.setattr(scenarios, "load", lambda _: document)
    monkeypatch.setattr(player, "SETTLES_S_MAX", 1.0)
    assert main(["scenario", name]) == 1
    told = capsys.readouterr()
    assert "DIFFERS" in told.out
    assert "steps match the vector" not in told.out
    assert told.err.startswith(f"tidelog scenario: {name} differs from its vector {where}")
    assert "17" in told.err


def test_the_vectors_are_those_of_the_specification() -> None:
    named = {}
    for path in (
        *TESTS.glob("broker/vectors/kip101*.yaml"),
        *TESTS.glob("storage/vectors/kip405*"),
        TESTS / "storage/vectors/remote-outage.yaml",
        TESTS / "storage/vectors/topic-deletion.yaml",
    ):
        document = load_yaml(path)
        named[document["id"]] = document
    packaged = {load(name)["id"]: load(name) for name in NAMES}
    assert packaged == named
    assert all(load(name)["id"].startswith(name) for name in NAMES)


def test_without_a_name_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(NAMES)
    assert all(load(line.split()[0])["title"] in line for line in lines)


def test_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "kip405-s6"]) == 1
    assert "unknown scenario 'kip405-s6'" in capsys.readouterr().err


def test_what_is_compared() -> None:
    found = {
        "brokers": {"A": {"leo": 3, "hw": 2}},
        "isr": ["A", "B"],
        "rlmm": [{"id": "uuid-1", "start": 0}, {"id": "uuid-2", "start": 3}],
    }
    assert state_differs(found, {"brokers": {"A": {"leo": 3}}, "isr": ["B", "A"]}) == []
    assert state_differs(found, {"rlmm": [{"id": "uuid-1"}, {"id": "uuid-2", "start": 3}]}) == []
    assert state_differs(found, {"brokers": {"A": {"hw": 1, "role": "leader"}}}) == [
        "broker A: high watermark 2, expected 1",
        "broker A: no role, expected leader",
    ]
    assert state_differs(found, {"isr": ["A"]}) == ["the partition: isr A B, expected A"]
    assert state_differs(found, {"rlmm": [{"id": "uuid-1"}, {"id": "uuid-3"}]}) == [
        "remote metadata: there is no uuid-3",
        "remote metadata: uuid-2 should not exist",
    ]
    assert state_differs(found, {"partition_state": "online"}) == [
        "partition_state is not compared"
    ]


SOUND = {
    "role": "leader",
    "log_start": 0,
    "local_start": 2,
    "lso": 3,
    "hw": 3,
    "leo": 4,
    "records": [[2, "c", 0], [3, "d", 1]],
    "epochs": [[0, 0], [1, 3]],
    "copied_to": 1,
}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, None),
        ({"hw": 5}, "offsets out of order: log start 0, local log start 2, lso 3, high watermark"),
        ({"log_start": 3}, "offsets out of order"),
        ({"records": [[3, "d", 1]]}, "the records are not those from 2 to 4"),
        ({"epochs": [[0, 0], [1, 5]]}, "leader epochs out of order"),
        ({"copied_to": 0}, "no tier has the records between 0 and 2"),
    ],
)
def test_what_no_state_may_be(change: dict[str, Any], told: str | None) -> None:
    finished = {"id": "uuid-1", "start": 0, "end": 1, "state": "COPY_SEGMENT_FINISHED"}
    state = {
        "brokers": {"A": SOUND | change, "B": {"role": "stopped", "leo": 1, "records": []}},
        "remote": [{"id": "uuid-1", "start": 0, "end": 1}],
        "rlmm": [finished],
    }
    if told is None:
        assert unsound(state) == []
        assert unsound({**state, "remote": []}) == [
            "remote tier: uuid-1 is finished, but not in the store"
        ]
    else:
        (found,) = unsound(state)
        assert found.startswith(f"broker A: {told}")


def test_epochs_have_the_names_of_the_vector() -> None:
    names = Names()
    names.add_epoch(0, 0)
    names.add_epoch(1, 2)
    assert names.epochs([(0, 0), (1, 3), (2, 5)]) == [[0, 0], ["(1)", 3], [1, 5]]
    assert [names.cluster_epoch(epoch) for epoch in (-1, 0, 1, 2)] == [-1, 0, 2, 3]


def test_what_a_power_failure_leaves(tmp_path: Path) -> None:
    files = OsFileSystem(syncs=False)
    folder = tmp_path / "play-0"
    folder.mkdir()
    batches = [
        build_batch([Record(n, 1, None, b"v%d" % n)], base_offset=n, leader_epoch=n // 2)
        for n in range(4)
    ]
    (folder / f"{0:020d}.log").write_bytes(b"".join(batches[:3]))
    (folder / f"{3:020d}.log").write_bytes(batches[3])
    for base in (0, 3):
        (folder / f"{base:020d}.index").write_bytes(b"")
        (folder / f"{base:020d}.snapshot").write_bytes(b"")
    partition = TopicPartition("play", 0)
    points = OffsetCheckpoint(files, f"{tmp_path}/recovery-point-offset-checkpoint")
    points.write({partition: 3})
    OffsetCheckpoint(files, f"{tmp_path}/replication-offset-checkpoint").write({partition: 4})
    assert records_in(files, str(folder)) == [[n, f"v{n}", n // 2] for n in range(4)]
    cut(files, str(tmp_path), "play", 1)
    assert records_in(files, str(folder)) == [[0, "v0", 0]]
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{0:020d}.log",
        f"{0:020d}.snapshot",
    ]
    assert points.read() == {partition: 1}
    assert checkpointed(files, str(tmp_path), "play") == 4


def test_files_that_belong_to_no_segment_are_shown() -> None:
    state = {
        "brokers": {"A": {"role": "stopped", "leo": 1, "records": [[0, "m", 0]]}},
        "isr": ["A"],
        "rlmm": [],
        "remote": [{"id": "stray.log", "start": -1, "end": -1}],
    }
    lines = list(state_lines(state, None))
    assert any("stray.log" in line and "no metadata" in line for line in lines)
    changed = {**state, "remote": []}
    assert "    remote tier  (empty)" in list(state_lines(changed, state))
