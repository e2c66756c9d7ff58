"""Tiered logs come to rest, whoever stood still or was cut off whenever: all that may be copied is,
every replica knows it, what local retention lets go is gone, and all can be read.

Brokers die in `test_remote_tier.py`; here they live on and do not know that they lead no more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from sim.cluster.faults import ClusterFault
from sim.cluster.tier_rest import may_shrink
from sim.cluster.world import ClusterWorld
from sim.remote_store import PREFIX, new_weather
from sim.run import run_seed
from sim.stage import VOTERS, Stage
from sim.test_remote_tier import SETTINGS, TOPIC_SETTINGS, Play
from tidelog.simulation.loop import simulate

if TYPE_CHECKING:
    from collections.abc import Iterable

BROKERS = "ABC"
ALL = (*BROKERS, *VOTERS)
REST_S_MAX = 10.0  # virtual, behind the last fault; it takes less than two


class Disturbed(Play):
    """Nobody dies: some stand still, or do not hear the controller, or nobody."""

    async def disturb(self, count: int) -> None:
        """So many faults, some at the same time."""
        rng = self.rng
        under_way: list[asyncio.Task[None]] = []
        for _ in range(count):
            await asyncio.sleep(rng.uniform(0.1, 1.5))
            self.weather.bad = rng.choice((0.0, 0.0, 0.0, 0.1, 0.5))
            kind = rng.choice(("pause", "pause", "stall", "fence", "fence", "isolate", "one way"))
            under_way.append(asyncio.ensure_future(self._strike(kind, rng.uniform(0.5, 5))))
            if rng.random() < 0.6:
                await asyncio.gather(*under_way)
        await asyncio.gather(*under_way)
        self.weather.bad = 0.0

    async def _strike(self, kind: str, for_s: float) -> None:
        stage, rng = self.stage, self.rng
        name = rng.choice(BROKERS)
        if rng.random() < 0.5 and stage.has_controller:
            name = stage.leader or name
        self.deaths.append(f"{stage.loop.time():.2f} s {kind} of {name} for {for_s:.2f} s")
        match kind:
            case "pause":
                await self._stand_still((name,), for_s)
            case "stall":  # as a busy machine that all of them are on
                names = ALL if rng.random() < 0.5 else rng.sample(ALL, rng.randint(2, 4))
                await self._stand_still(names, for_s)
            case "fence":
                await self._cut(name, VOTERS, for_s)
            case "isolate":
                await self._cut(name, set(ALL) - {name}, for_s)
            case _:
                others = sorted(set(ALL) - {name})
                await self._cut(name, rng.sample(others, rng.randint(1, 4)), for_s, one_way=True)

    async def _stand_still(self, names: Iterable[str], for_s: float) -> None:
        loop = self.stage.loop
        lanes = [self.stage.machines[name].lane for name in names]
        for lane in lanes:
            loop.pause_lane(lane)
        await asyncio.sleep(for_s)
        for lane in lanes:
            loop.resume_lane(lane)

    async def _cut(
        self, name: str, others: Iterable[str], for_s: float, *, one_way: bool = False
    ) -> None:
        out, back = [(name, other) for other in others], [(other, name) for other in others]
        links = self.rng.choice((out, back)) if one_way else out + back
        self.stage.network.cut(links)
        await asyncio.sleep(for_s)
        self.stage.network.heal(links)

    def has_copied(self) -> bool:
        """As `is_quiet`, but that followers may know of more copies than the leader: one that was
        under way when the leader before it lost its place was finished later."""
        stage = self.stage
        if not stage.has_controller or not stage.is_whole() or not stage.leader:
            return False
        copier = self.tier(stage.leader).partitions["play", 0].copier
        if copier.copied_offset is None or copier.lag() != (0, 0):
            return False
        logs = [stage.partition(name).log for name in BROKERS]
        return not any(
            held.highest_remote_offset < copier.copied_offset or may_shrink(held) for held in logs
        )


async def live(loop: Any, seed: str, batches: int) -> Disturbed:
    weather = new_weather(seed)
    settings = {**SETTINGS, "rsm.config.dir": f"{PREFIX}{seed}", "request.timeout.ms": "30000"}
    async with Stage(loop, BROKERS, settings) as stage:
        config = {**TOPIC_SETTINGS, "segment_index_bytes": 12 * batches}
        await stage.create_topic(BROKERS, **config)
        play = Disturbed(stage, seed, weather, None)
        producing = asyncio.ensure_future(play.produce())
        await play.disturb(8)
        play.is_over = True
        await producing
        end_s = loop.time() + REST_S_MAX
        while not play.has_copied():
            assert loop.time() < end_s, play.state()
            await asyncio.sleep(0.02)
        contents = [play.content(name, 0) for name in BROKERS]
        assert contents[0] == contents[1] == contents[2]
        known = set(play.acknowledged)
        assert [value for value in contents[0] if value in known] == play.acknowledged
        return play


@pytest.mark.parametrize("number", range(2))
def test_a_tiered_log_comes_to_rest(number: int) -> None:
    seed = f"rest-{number}"
    play, _ = simulate(seed, lambda loop: live(loop, seed, 1 + number))
    assert len(play.acknowledged) > 10
    assert play.weather.calls["copy"] > 5


# Whole runs, with a remote tier whatever their seeds say.
FOUND = {
    # Back from a pause, a leader that had not heard that its topic was deleted, and its remote part
    # with it, began another copy: the deletion of that was left out, as there was one already.
    101: [(4.895, "pause", 1, 0.875, 4.389), (8.763, "isolate", 1, 0.323, 4.913)],
    # A leader that was one no more counted in what it alone had, and expired a segment too much.
    # Who led by then went on to say that the log begins there: for ever, consumers were sent from
    # the leader to a follower, which had nothing there, and back.
    115: [
        (1.852, "cut one link", 1, 0.011, 4.159),
        (1.917, "cut from brokers", 1, 0.293, 3.55),
        (4.422, "cut one link", 2, 0.773, 1.949),
        (6.26, "store errors", 1, 0.555, 2.49),
        (6.522, "isolate", 3, 0.976, 2.48),
        (8.605, "isolate", 1, 0.0, 1.029),
        (8.996, "cut from brokers", 3, 0.0, 1.138),
        (11.3, "cut one way", 1, 0.088, 1.054),
    ],
    # Switched off as a tiered topic, and on again while its leader stood still: a follower's log
    # start rose, and as nothing else came, its leader was not told. Consumers were sent from the
    # leader to that follower and back.
    327: [
        (4.682762, "isolate", 3, 0.667915, 3.987845),
        (7.451415, "store errors", 1, 0.646, 3.966789),
        (8.143094, "cut one link", 2, 0.564863, 4.334837),
        (8.779883, "store errors", 1, 0.594, 3.621108),
        (11.119013, "pause", 1, 0.736185, 3.167537),
    ],
}


@pytest.mark.parametrize("seed", FOUND)
def test_leaders_that_are_none_any_more_leave_nothing_behind(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClusterWorld, "has_tier", True)
    verdict = run_seed(seed, [ClusterFault(*fault) for fault in FOUND[seed]], 3)
    assert verdict.failure is None
