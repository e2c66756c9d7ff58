"""The failures that leader epochs cure, on whole brokers: KIP-101's two scenarios, and KIP-279's.

Each play is given twice: by followers of earlier days (`old_followers.py`), who lose or mix
records, and by the real ones, who do not.
"""

from __future__ import annotations

import asyncio
import sys

import pytest

from sim.mutants import planted
from sim.old_followers import followers
from sim.stage import Stage
from tidelog.simulation.loop import simulate


def play(scenario, kind):
    """Give a play; what it returns."""
    with followers(kind):
        return simulate(scenario.__name__, lambda loop: scenario(loop))[0]


# -- KIP-101, scenario 1: an acknowledged record is lost -------------------------------------------


async def acknowledge_before_it_hears(stage, leader, follower):
    """m1 is known everywhere to be committed; m2 is committed, which the followers do not hear."""
    await stage.acknowledged(leader, "m1", acks=-1)
    await stage.whole()
    for name in follower:
        await stage.checkpoint(name)
    for name in follower:
        # Its next fetch, which says that it has m2, still gets out; the answer does not get in.
        stage.when(lambda it=name: stage.log_end(it) == 2, lambda it=name: stage.cut(leader, it))
    await stage.acknowledged(leader, "m2", acks=-1)
    for name in follower:
        assert (stage.log_end(name), stage.high_watermark(name)) == (2, 1)
    assert stage.high_watermark(leader) == 2


async def a_follower_restarts_before_the_leader_dies(loop):
    """The KIP's own steps. B leads, A restarts and B dies before A fetches anything again."""
    async with Stage(loop, "AB") as stage:
        await stage.create_topic("BA", min_insync_replicas=1)
        await acknowledge_before_it_hears(stage, "B", "A")
        stage.kill("A")
        await stage.start("A")
        assert stage.in_sync == "AB"
        await stage.until(lambda: stage.partition("A").leader == stage.ids["B"], "A follows B")
        stage.kill("B")
        await stage.until(lambda: stage.leads("A"), "A is elected")
        stage.heal("B", "A")
        await stage.start("B")
        await stage.whole()
        return stage.values("A"), stage.values("B")


def test_scenario_1_loses_what_was_acknowledged() -> None:
    with planted("trust-who-crashed"):  # as controllers were then: a restart left the ISR as it was
        assert play(a_follower_restarts_before_the_leader_dies, "high-watermark") == (["m1"],) * 2


def test_scenario_1_with_epochs() -> None:
    with planted("trust-who-crashed"):
        assert play(a_follower_restarts_before_the_leader_dies, "real") == (["m1", "m2"],) * 2


async def two_leaders_die_one_after_the_other(loop):
    """The same without a restart, and with today's controller: B follows the second leader for a
    moment, and is the third."""
    async with Stage(loop, "ABC") as stage:
        await stage.create_topic("CAB", min_insync_replicas=2)
        await acknowledge_before_it_hears(stage, "C", "AB")
        stage.cut("A", "B")
        stage.kill("C")
        await stage.until(lambda: stage.leads("A"), "A is elected")
        await stage.until(lambda: stage.partition("B").leader == stage.ids["A"], "B follows A")
        assert stage.in_sync == "AB"
        stage.kill("A")
        await stage.until(lambda: stage.leads("B"), "B is elected")
        for source, target in (("C", "A"), ("C", "B"), ("A", "B")):
            stage.heal(source, target)
        await stage.start("A", "C")
        await stage.whole()
        return [stage.values(name) for name in "ABC"]


def test_fast_elections_lose_what_two_have_acknowledged() -> None:
    assert play(two_leaders_die_one_after_the_other, "high-watermark") == [["m1"]] * 3


def test_fast_elections_with_epochs() -> None:
    assert play(two_leaders_die_one_after_the_other, "real") == [["m1", "m2"]] * 3


# -- KIP-101, scenario 2: logs differ at equal offsets ---------------------------------------------


async def both_lose_power_and_the_shorter_one_leads(loop):
    """m2 had reached A's platter and not B's. B is the one that comes back first."""
    async with Stage(loop, "AB") as stage:
        await stage.create_topic("AB", min_insync_replicas=1, flush_ms=sys.maxsize)
        await stage.acknowledged("A", "m1", acks=-1)
        await stage.whole()
        stage.sync("B")
        await stage.acknowledged("A", "m2", acks=-1)
        await stage.whole()
        await stage.checkpoint("A")
        stage.sync("A")
        stage.power_failure("A")
        await asyncio.sleep(0.5)
        stage.power_failure("B")
        await stage.until(lambda: stage.leader == "" and stage.in_sync == "", "nobody leads")
        assert stage.decided.last_known_eligible_leader_replicas == (stage.ids["B"],)
        assert (stage.values("A"), stage.values("B")) == (["m1", "m2"], ["m1"])
        assert stage.checkpointed("A") == 2
        await stage.start("B")
        await stage.until(lambda: stage.leads("B"), "B is elected")
        await stage.acknowledged("B", "m3")
        await stage.start("A")
        await stage.whole()
        await stage.acknowledged("B", "m4", acks=-1)
        await stage.whole()
        return stage.values("A"), stage.values("B")


def test_scenario_2_mixes_records() -> None:
    assert play(both_lose_power_and_the_shorter_one_leads, "high-watermark") == (
        ["m1", "m2", "m4"],
        ["m1", "m3", "m4"],
    )


def test_scenario_2_with_epochs() -> None:
    assert play(both_lose_power_and_the_shorter_one_leads, "real") == (["m1", "m3", "m4"],) * 2


# -- KIP-279: leaders that follow each other faster than their records -----------------------------


async def three_unclean_elections(loop):
    """A and B lead in turn, never together: each writes in epochs that the other never had."""
    async with Stage(loop, "AB") as stage:
        await stage.create_topic("AB", min_insync_replicas=1, unclean_leader_election_enable=True)
        await stage.acknowledged("A", "m0", acks=-1)
        await stage.whole()
        await stage.checkpoint("A")
        for name, other, values in (
            ("B", "A", "b1"),
            ("A", "B", "a1 a2 a3"),
            ("B", "A", "b2"),
            ("A", "B", "a4 a5"),
        ):
            stage.kill(other)
            if not stage.has_replica(name):
                await stage.start(name)
            await stage.until(lambda it=name: stage.leads(it), f"{name} is elected")
            for value in values.split():
                await stage.acknowledged(name, value)
            await stage.checkpoint(name)
        assert stage.values("A") == ["m0", "a1", "a2", "a3", "a4", "a5"]
        assert stage.values("B") == ["m0", "b1", "b2"]
        await stage.start("B")
        await stage.whole()
        return stage.values("A"), stage.values("B")


@pytest.mark.parametrize("kind", ["high-watermark", "KIP-101"])
def test_three_unclean_elections_mix_records(kind: str) -> None:
    a, b = play(three_unclean_elections, kind)
    assert a == ["m0", "a1", "a2", "a3", "a4", "a5"]
    assert b == ["m0", "b1", "b2", "a3", "a4", "a5"]


def test_three_unclean_elections_with_epochs() -> None:
    assert play(three_unclean_elections, "real") == (["m0", "a1", "a2", "a3", "a4", "a5"],) * 2


async def three_clean_elections(loop):
    """Each leader is in sync, and dies before its last records are where the next one has them.

    A has m0 a1 a2 in its epoch, and so has C. B only has m0; it goes on with b1 b2 b3 in the next.
    C leads in the third. Where B's epoch would begin, C has records of the first.
    """
    async with Stage(loop, "ABC") as stage:
        await stage.create_topic("ABC", min_insync_replicas=1)
        await stage.acknowledged("A", "m0", acks=-1)
        await stage.whole()
        stage.cut("A", "B")
        for value in ("a1", "a2"):
            await stage.acknowledged("A", value)
        await stage.until(lambda: stage.log_end("C") == 3, "C has all")
        stage.kill("A")
        stage.cut("B", "C")
        await stage.until(lambda: stage.leads("B"), "B is elected")
        for value in ("b1", "b2", "b3"):
            await stage.acknowledged("B", value)
        stage.kill("B")
        await stage.until(lambda: stage.leads("C"), "C is elected")
        stage.heal("A", "B")
        stage.heal("B", "C")
        await stage.acknowledged("C", "c1")
        assert stage.values("C") == ["m0", "a1", "a2", "c1"]
        assert stage.values("B") == ["m0", "b1", "b2", "b3"]
        await stage.start("A", "B")
        await stage.whole()
        return [stage.values(name) for name in "ABC"]


def test_three_clean_elections_mix_records() -> None:
    a, b, c = play(three_clean_elections, "KIP-101")
    assert a == c == ["m0", "a1", "a2", "c1"]
    assert b == ["m0", "b1", "b2", "c1"]


def test_three_clean_elections_with_epochs() -> None:
    assert play(three_clean_elections, "real") == [["m0", "a1", "a2", "c1"]] * 3
