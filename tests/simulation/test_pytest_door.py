"""The marker, in test runs of their own."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
ARGUMENTS = ("-p", "no:randomly", "-p", "no:cacheprovider")
TESTS = """
    import pytest
    from sample_app import commits_too_early, sends

    BUG = {"seeds": 20, "brokers": 1, "faults": {"kill-process": 30}, "fault_s": 3}

    @pytest.mark.tidelog_simulation(**BUG)
    async def test_bug(tidelog_simulation):
        await commits_too_early(tidelog_simulation)

    class TestGood:
        @pytest.mark.parametrize("number", [7])
        @pytest.mark.tidelog_simulation(seeds=2, brokers=1)
        async def test_good(self, number, tidelog_simulation, tmp_path):
            assert (number, tmp_path.is_dir()) == (7, True)
            await sends(tidelog_simulation)

    @pytest.mark.tidelog_simulation(seeds=1)
    async def test_argument(): ...

    @pytest.mark.tidelog_simulation(broker=50)
    async def test_word(tidelog_simulation): ...

    @pytest.mark.tidelog_simulation(settings={"num.partition": 4})
    async def test_setting(tidelog_simulation): ...

    @pytest.mark.tidelog_simulation(seeds=1)
    def test_plain(tidelog_simulation): ...

    def test_mark(tidelog_simulation): ...
"""


@pytest.fixture
def tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    sample = Path(__file__).with_name("sample_app.py").read_text()
    pytester.makepyfile(sample_app=sample, test_it=TESTS)
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    monkeypatch.syspath_prepend(pytester.path)
    return pytester


def trace_of(result: pytest.RunResult) -> str:
    (trace,) = {line.strip() for line in result.outlines if re.match(" *trace [0-9a-f]{32}$", line)}
    return trace


@pytest.mark.slow
def test_a_failure_is_reported_and_replayed(
    tests: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tests.runpytest_subprocess(*ARGUMENTS, "-k", "test_bug")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(
        [
            "the simulation fails at seed * seeds): AssertionError: lost: *",
            "faults that show it: 1 of *",
            "  [[]*[]] * s  kill shipping for *",
            "timeline:*",
            "* FAILED *",
            "AssertionError: lost: *",
            "replay: pytest test_it.py::test_bug --tidelog-seed=*",
        ]
    )
    line = next(line for line in found.outlines if line.startswith("replay: pytest "))
    monkeypatch.setenv("PYTHONHASHSEED", "2")
    again = tests.runpytest_subprocess(*ARGUMENTS, *shlex.split(line)[2:])
    again.assert_outcomes(failed=1)
    assert trace_of(again) == trace_of(found)


def test_good_tests_pass_and_wrong_uses_are_named(tests: pytest.Pytester) -> None:
    result = tests.runpytest_subprocess(*ARGUMENTS, "-k", "not bug", "-rP", "--tidelog-seeds=3")
    result.assert_outcomes(passed=1, failed=4, errors=1)
    result.stdout.fnmatch_lines_random(
        [
            "*3 seeds hold, * virtual seconds in * s*",
            "*test_argument: a simulated test takes the argument tidelog_simulation*",
            "*test_word: @pytest.mark.tidelog_simulation: *'broker'*",
            "test_setting: @pytest.mark.tidelog_simulation: *'num.partition'; did you mean *",
            "test_plain: a simulated test is an async def",
            "*mark the test with @pytest.mark.tidelog_simulation(seeds=50, brokers=3)*",
        ]
    )
