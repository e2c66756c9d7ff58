"""Seeds until one fails, and the report."""

from __future__ import annotations

import functools
import os
import pickle
import re
import time

import pytest

from simulation.sample_app import commits_too_early, sends
from tidelog import TidelogError
from tidelog.simulation import Simulation, SimulationBrokenError, SimulationFailedError, run
from tidelog.simulation import search as module
from tidelog.simulation.application import Plan, play
from tidelog.simulation.search import in_fork, options_of, plan_of, search

BUG = {"brokers": 1, "faults": {"kill-process": 30}, "fault_s": 3}


def test_a_planted_bug_is_found_and_shrunk() -> None:
    options = options_of(seeds=20, **BUG)
    with pytest.raises(SimulationFailedError) as found:
        search(commits_too_early, options, lambda seed, faults: f"REPLAY {seed} {faults}")
    error = found.value
    lines = str(error).splitlines()
    assert lines[0].startswith(f"the simulation fails at seed {error.seed} (")
    assert lines[0].endswith("AssertionError: lost: 1")
    assert len(error.faults) == 1
    assert lines[1].startswith("faults that show it: 1 of ")
    assert "kill shipping for" in lines[2]
    assert re.fullmatch("trace [0-9a-f]{32}", lines[-2]), "a second run is the same"
    assert lines[-1] == f"replay: REPLAY {error.seed} {error.faults}"
    again = plan_of(error.seed, options._replace(only_faults=error.faults))
    assert play(commits_too_early, again).failure == "AssertionError: lost: 1"
    assert pickle.loads(pickle.dumps(error)).faults == error.faults


def test_a_run_that_differs_from_the_first_is_reported_as_such() -> None:
    real_pid = os.getpid  # each run is a fork

    async def app(simulation: Simulation) -> None:
        simulation.tell(f"process {real_pid()}")
        raise AssertionError("no")

    with pytest.raises(SimulationFailedError, match="a second run of the same seed differed"):
        search(app, options_of(seeds=2, brokers=1, faults=False), lambda *_: "")


def test_a_seed_is_the_same_run_alone_and_after_others() -> None:
    several = run(sends, seeds=[1, 2, 3], brokers=1, faults=False)
    alone = run(sends, seeds=[3], brokers=1, faults=False)
    assert several.traces[2] == alone.traces[0]
    assert len(set(several.traces)) == 3
    assert str(several).startswith("3 seeds hold, 0.")


def test_what_a_new_process_cannot_import_is_refused() -> None:
    with pytest.raises(TidelogError, match=r"put it into a module on sys\.path"):
        run(lambda simulation: sends(simulation))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seeds": 0}, "seeds=0"),
        ({"seeds": []}, "give a number above 0"),
        ({"brokers": 10}, "1 to 9 brokers"),
        ({"timeout_s": 0}, "timeout_s=0"),
        ({"faults": ["flood"]}, "'flood' is none of"),
        ({"faults": ["kill", "slow-store"]}, "'slow-store' needs tiered=True"),
        ({"settings": {"no.such.key": 1}}, "no.such.key"),
    ],
)
def test_arguments_are_checked(options: dict[str, object], words: str) -> None:
    with pytest.raises((ValueError, TidelogError), match=words):
        options_of(**options)


def test_faults_of_the_tier_are_found_shrunk_and_replayed() -> None:
    faults = {"store-outage": 30, "clock-skew": 30}
    options = options_of(seeds=3, brokers=1, tiered=True, faults=faults, fault_s=3)

    async def app(simulation: Simulation) -> None:
        def no_outage() -> None:
            outages = 0 if simulation._world.store is None else simulation._world.store.outages
            assert outages == 0, "the store is down"

        simulation.invariant(no_outage)
        await sends(simulation)
        await simulation.calm()

    with pytest.raises(SimulationFailedError, match="faults that show it: 1 of ") as found:
        search(app, options, lambda *_: "")
    assert "store-outage for" in str(found.value)
    assert "a second run of the same seed differed" not in str(found.value)


def test_settings_are_written_as_kafka_has_them() -> None:
    options = options_of(settings={"auto.create.topics.enable": False, "num.partitions": 5})
    assert options.settings == (("auto.create.topics.enable", "false"), ("num.partitions", "5"))


def test_only_faults_are_places_in_the_plan_of_a_seed() -> None:
    whole = plan_of(1, options_of()).faults
    assert plan_of(1, options_of(only_faults=[2, 0])).faults == (whole[0], whole[2])
    assert plan_of(1, options_of(only_faults=[])).faults == ()


# -- forks -----------------------------------------------------------------------------------------

PLAN = Plan(1, brokers=1)


def test_a_fork_leaves_this_process_as_it_was() -> None:
    seen: list[int] = []

    async def app(simulation: Simulation) -> None:
        seen.append(simulation.seed)

    verdict = in_fork(functools.partial(play, app, PLAN), PLAN)
    assert verdict.failure is None
    assert verdict.steps > 0
    assert seen == []


def test_a_step_that_never_ends_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEED_S_MAX", 0.3)
    verdict = in_fork(lambda: time.sleep(600), PLAN)
    assert verdict.failure is not None
    assert verdict.failure.startswith("a step did not end")


@pytest.mark.parametrize("work", [lambda: os._exit(3), lambda: 1 // 0])
def test_a_fork_that_breaks_off_says_so(work: object) -> None:
    with pytest.raises(SimulationBrokenError, match=r"without a verdict|ZeroDivisionError"):
        in_fork(work, PLAN)
