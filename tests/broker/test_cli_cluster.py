"""The console tools on several brokers: what only one of them can tell is asked of that one."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from tidelog.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS_MAX = 120.0
GROUPS = [f"group-{number}" for number in range(6)]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The first of three brokers."""
    settings = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}
    with tidelog.run(settings, brokers=3) as cluster:
        yield cluster.bootstrap_servers.split(",")[0]


@pytest.fixture
def said(server: str, capsys: pytest.CaptureFixture[str]) -> Any:
    """What a command prints."""

    def run(*words: str) -> str:
        assert main([words[0], "-b", server, *words[1:]]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def made(said: Any) -> Any:
    """A topic, once all brokers know it."""

    def make(name: str, partitions: int) -> list[dict[str, Any]]:
        said("topics", "create", name, "--partitions", str(partitions))
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            rows = json.loads(said("topics", "describe", "--json"))
            rows = [row for row in rows if row["topic"] == name]
            if len(rows) == partitions and all(row["next"] == 0 for row in rows):
                return rows
            assert time.monotonic() < deadline, rows
            time.sleep(0.05)

    return make


def test_offsets_come_from_each_partitions_leader(made: Any) -> None:
    rows = made("t", 6)
    assert {row["leader"] for row in rows} == {1, 2, 3}
    assert [row["first"] for row in rows] == [0] * 6


def test_groups_of_all_coordinators_are_listed_with_the_ends_of_all_partitions(
    said: Any, made: Any, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made("read", 3)
    for group in GROUPS:
        said("consume", "read", "--group", group, "--from-beginning", "--until-end")
    deadline = time.monotonic() + SECONDS_MAX
    while main(["groups", "-b", server, "list", "--json"]):  # one may still be loading
        assert time.monotonic() < deadline, capsys.readouterr().err
        time.sleep(0.05)
    assert {row["group"] for row in json.loads(capsys.readouterr().out)} >= set(GROUPS)
    rows = json.loads(said("groups", "describe", *GROUPS, "--json"))
    assert len(rows) >= len(GROUPS)
    assert {(row["end"], row["lag"]) for row in rows} == {(0, 0)}


@pytest.mark.parametrize("broker", ["1", "2", "3"])
def test_settings_of_each_broker_are_described_and_changed(said: Any, broker: str) -> None:
    setting = "remote.fetch.max.wait.ms=2500"
    said("configs", "set", "broker", broker, setting)
    deadline = time.monotonic() + SECONDS_MAX  # for the change to reach that broker
    while "2500" not in said("configs", "describe", "broker", broker):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_broker_that_there_is_not(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["configs", "-b", server, "describe", "broker", "9"]) == 1
    assert capsys.readouterr().err == "tidelog configs: there is no broker 9\n"


@pytest.mark.parametrize(
    "words",
    [["topics", "list"], ["groups", "list"], ["configs", "describe", "broker", "1"]],
    ids=lambda words: words[0],
)
def test_the_address_may_come_before_or_behind_the_subcommand(
    server: str, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    tool, *rest = words
    for given in ([tool, "-b", server, *rest], [tool, *rest, "-b", server]):
        assert main(given) == 0, capsys.readouterr().err
