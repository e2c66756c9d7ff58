"""Places in a topic as users give them, and the tools that take them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import tidelog
from support.processes import COMMAND, Start, ended
from tidelog.__main__ import main
from tidelog.cli.common import CommandError
from tidelog.cli.positions import join_past, time_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with tidelog.run({"group.initial.rebalance.delay.ms": "0"}) as cluster:
        cluster.create_topic("timed", partitions=2)
        yield cluster.bootstrap_servers


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """Two records in each partition, an hour apart; the last one has all that a record can have."""
    fields = [
        {"partition": 0, "timestamp": HOUR_MS, "value": "a"},
        {"partition": 1, "timestamp": HOUR_MS, "value": "b"},
        {"partition": 0, "timestamp": 2 * HOUR_MS, "value": None, "key": "k"},
        {
            "partition": 1,
            "timestamp": 2 * HOUR_MS,
            "key": {"base64": "/wA="},
            "value": "d\n",
            "headers": [["h", "1"], ["h", {"base64": "gA=="}], ["n", None]],
        },
    ]
    return [json.dumps(each) for each in fields]


@pytest.fixture
def timed(server: str, start: Start, lines: list[str]) -> str:
    """The topic with these records, once."""
    if not consumed_lines(server):
        words = ["produce", "-b", server, "timed", "--json"]
        code, _, err = ended(start(*COMMAND, *words), "\n".join(lines))
        assert (code, err) == (0, "4 records written to timed\n")
    return server


def consumed_lines(server: str) -> int:
    from tidelog.cli.topics import LATEST, metadata, offsets
    from tidelog.embedded.cluster_client import ClusterClient

    with ClusterClient(server) as client:
        return sum(offsets(client, metadata(client, ["timed"]), LATEST).values())


def consumed(
    server: str, capsys: pytest.CaptureFixture[str], *words: str
) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["consume", "-b", server, "timed", "--until-end", "--json", *words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_records_in_json_are_read_as_they_were_written(
    timed: str, capsys: pytest.CaptureFixture[str], lines: list[str]
) -> None:
    empty = {"key": None, "headers": []}
    expected = [empty | json.loads(line) for line in lines]
    found = consumed(timed, capsys, "--from-beginning")
    assert [each.pop("topic") for each in found] == ["timed"] * 4
    found.sort(key=lambda each: (each.pop("offset"), each["partition"]))
    assert found == expected


@pytest.mark.parametrize(
    ("since", "count"),
    [
        ("1970-01-01T01:00", 4),
        ("1970-01-01T01:00:01Z", 2),
        ("1970-01-01T04:00+02:00", 2),
        ("-1h", 0),
    ],
)
def test_consume_starts_at_a_time(
    timed: str, capsys: pytest.CaptureFixture[str], since: str, count: int
) -> None:
    assert len(consumed(timed, capsys, "--from", since)) == count


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--from", "soon"], "'soon' is not a time such as"),
        (["--from", "-1h", "--from-beginning"], "--from excludes --from-beginning and --offset"),
        (["--from", "-1h", "--group", "g"], "--from and --group exclude each other"),
    ],
)
def test_a_time_that_is_none_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    assert main(["consume", "t", *words]) == 1
    assert capsys.readouterr().err.startswith(f"tidelog consume: {text}")


def test_a_bad_line_names_its_number_and_the_lines_before_are_written(
    server: str, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topics", "-b", server, "create", "bad"]) == 0
    words = [*COMMAND, "produce", "-b", server, "bad", "--json"]
    result = ended(start(*words), '{"value": "1"}\n{"valuee": "2"}\n')
    text = "line 2: there is no field 'valuee'; did you mean value?"
    assert result == (1, "", f"tidelog produce: {text}\n")
    result = ended(start(*words), '{"partition": 1}\n')
    assert result == (1, "", "tidelog produce: line 1: bad has no partition 1\n")
    capsys.readouterr()
    assert main(["consume", "-b", server, "bad", "--from-beginning", "--until-end"]) == 0
    assert capsys.readouterr().out == "1\n"


def test_members_of_a_group_end_at_the_end_even_without_partitions(
    timed: str, start: Start
) -> None:
    """Three members for two partitions: one of them waited for ever."""
    words = [*COMMAND, "consume", "-b", timed, "timed", "--group", "three"]
    members = [start(*words, "--from-beginning", "--until-end") for _ in range(3)]
    results = [ended(member) for member in members]
    assert [code for code, _, _ in results] == [0, 0, 0]
    values = [line for _, out, _ in results for line in out.split("\n") if line]
    assert sorted(set(values)) == ["a", "b", "d", "null"]


def test_times() -> None:
    assert time_ms("1970-01-01T01:00") == HOUR_MS
    assert time_ms("1970-01-01T01:00+01:00") == 0
    assert time_ms("1970-01-02") == 24 * HOUR_MS
    yesterday = time_ms("-1d")
    assert yesterday + 24 * HOUR_MS <= time_ms("-0ms")
    assert time_ms("-99999999d") == 0
    for text in ("", "1h", "-1y", "-h", "2026-13-01"):
        with pytest.raises(CommandError):
            time_ms(text)


def test_a_past_time_is_no_option() -> None:
    assert join_past(["--from", "-1h", "-n", "1"], ["--from"]) == ["--from=-1h", "-n", "1"]
    assert join_past(["--from", "-n", "--to", "-1h"], ["--from"]) == ["--from", "-n", "--to", "-1h"]
