"""What runs in a container, tested without one: the scripts of the image, a container's command."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tidelog.testing.containers import serve_command

RUN = Path(__file__).resolve().parent.parent.parent / "container" / "run"
CLUSTER = "1@one:9093,2@two:9093,3@three:9093"


def ran(folder: Path, *words: str, **environment: str) -> list[str]:
    """The command that the image starts, word by word, and the variables it gets."""
    shown = 'printf "%s\\n" "$@" "at=${KAFKA_ADVERTISED_LISTENERS-}" "id=${CLUSTER_ID-}"'
    (folder / "tidelog").write_text(f"#!/bin/bash\n{shown}\n")
    (folder / "tidelog").chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    ended = subprocess.run(
        [RUN, *words], env={"PATH": path, **environment}, capture_output=True, text=True, check=True
    )
    return ended.stdout.splitlines()


def test_without_variables_the_broker_is_at_the_same_port_of_this_machine(tmp_path: Path) -> None:
    assert ran(tmp_path) == [
        *("serve", "--kafka-env", "--log-level", "info", "--control", "127.0.0.1:9990"),
        *("at=PLAINTEXT://localhost:9092", "id="),
    ]


@pytest.mark.parametrize("as_words", [False, True])
def test_listeners_are_those_of_the_variables(as_words: bool, tmp_path: Path) -> None:
    given = {"KAFKA_LISTENERS": "PLAINTEXT://:5", "TIDELOG_LOG_LEVEL": "debug"}
    words = [f"{name}={value}" for name, value in given.items()] if as_words else []
    said = ran(tmp_path, *words, **({} if as_words else given))
    assert said[2:] == ["--log-level", "debug", "--control", "127.0.0.1:9990", "at=", "id="]


def test_a_token_opens_the_control_door_to_others(tmp_path: Path) -> None:
    assert "0.0.0.0:9990" in ran(tmp_path, TIDELOG_CONTROL_TOKEN="secret")


@pytest.mark.parametrize(
    ("given", "expected"), [({}, "7Eh7bB30QAC2VCfNU--53w"), ({"CLUSTER_ID": "x"}, "x")]
)
def test_one_of_several_containers_is_a_node_of_their_cluster(
    given: dict[str, str], expected: str, tmp_path: Path
) -> None:
    said = ran(tmp_path, KAFKA_CONTROLLER_QUORUM_VOTERS=CLUSTER, KAFKA_LISTENERS="P://:1", **given)
    assert said == ["broker", "--kafka-env", "--log-level", "info", "at=", f"id={expected}"]


def test_the_command_of_a_container() -> None:
    options = ["--tiered", "--tiered-topics=a*,b", "--set=log.segment.ms=5"]
    assert serve_command(2, "h:32768,h:32770", options) == (
        "tidelog serve --host=0.0.0.0 --port=9092 --brokers=2"
        " --set=advertised.listeners=PLAINTEXT://h:32768,PLAINTEXT://h:32770"
        " --control=0.0.0.0:9990 --tiered '--tiered-topics=a*,b' --set=log.segment.ms=5"
    )
