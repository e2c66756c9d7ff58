"""Completion in shells, and errors that name the nearest word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import END_S_MAX
from tidelog.__main__ import COMMANDS, main

PRESS_TAB = """
source <(tidelog completion bash)
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
_python_argcomplete tidelog
printf '%s\\n' "${COMPREPLY[@]}"
"""


def tab(line: str) -> list[str]:
    """What bash offers for a line."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", PRESS_TAB, "bash", line],
        capture_output=True,
        text=True,
        timeout=END_S_MAX,
        check=False,
        env={**os.environ, "PATH": path},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return sorted(word.strip() for word in ended.stdout.splitlines() if word)


def test_bash_completes_commands_options_and_values() -> None:
    assert tab("tidelog to") == ["topics"]
    assert tab("tidelog topics cre") == ["create"]
    assert tab("tidelog consume t --value-format ba") == ["base64"]


class AskedError(Exception):
    """The parser was reached with a request to complete."""


@pytest.mark.parametrize("name", [*(name for name in COMMANDS if name != "demo"), "tiers verify"])
def test_every_command_is_asked_before_it_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(_parser: object) -> None:
        raise AskedError(os.environ["_ARGCOMPLETE"])

    monkeypatch.setattr("argcomplete.autocomplete", asked)
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    monkeypatch.setenv("COMP_LINE", f"tidelog {name} -")
    with pytest.raises(AskedError, match=str(len(name.split()) + 1)):
        main([])


def test_without_argcomplete_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    ends_at_once("serve", monkeypatch)


def test_the_demo_is_not_run_to_complete_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ends_at_once("demo", monkeypatch)


def ends_at_once(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    monkeypatch.setenv("COMP_LINE", f"tidelog {command} ")
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 1


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_code_of_their_own(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    code = capsys.readouterr().out
    assert "complete --command tidelog" in code if shell == "fish" else "#compdef tidelog" in code


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["topics", "crate"], "; did you mean create?"),
        (["consume", "t", "--form-beginning"], "; did you mean --from-beginning?"),
        (["topics", "create", "t", "--partition-s", "1"], "; did you mean --partitions?"),
        (["consume", "t", "--value-format", "base46"], "; did you mean base64?"),
        (["serve", "--barkers", "3"], "; did you mean --brokers?"),
        (["topics", "xyzzy"], ")"),
    ],
)
def test_a_misspelled_word_is_answered_with_the_nearest(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.rstrip().endswith(hint)
