"""Whole runs of several brokers: seeds hold and replay."""

from __future__ import annotations

import asyncio

import pytest

from sim.cluster.faults import FAULTS, brokers_of, draw_cluster_plan
from sim.cluster.file_rot import FILE_ROT
from sim.run import run_seed
from support.processes import under_another_hash_seed
from tidelog.simulation.disk import NAMES_APART
from tidelog.simulation.loop import simulate
from tidelog.simulation.machine import in_lane
from tidelog.simulation.machines import Machines
from tidelog.simulation.network import SimNetwork

SEEDS = [  # brokers and seed; by most `test_planted_bugs.py` finds some
    *((3, 0), (5, 1)),
    *(
        pytest.param(3, seed, marks=pytest.mark.nightly)  # as `test_many_seeds.py` has them
        for seed in (1, 2, 3, 9, 12, 19, 27, 75, 171)
    ),
]


@pytest.mark.parametrize(("brokers", "seed"), SEEDS)
def test_all_promises_hold(brokers: int, seed: int) -> None:
    verdict = run_seed(seed, brokers=brokers)
    replay = f"cd tests && python -m sim --brokers {brokers} --seed {seed}"
    assert verdict.failure is None, replay
    assert verdict.counts["records acknowledged"] > 0
    assert verdict.counts["batches consumed"] > 0


def test_plans_hold_every_fault() -> None:
    drawn = {fault.kind for seed in range(60) for fault in draw_cluster_plan(seed, 3)}
    habits = {FILE_ROT, NAMES_APART}  # of a run, and in no plan
    assert drawn == {*FAULTS} - habits


def test_seeds_choose_how_many_brokers_there_are() -> None:
    assert {brokers_of(seed) for seed in range(100)} == set(range(1, 8))


def test_a_seed_gives_the_same_run_twice() -> None:
    first, second = run_seed(2, brokers=3), run_seed(2, brokers=3)
    assert first == second


@pytest.mark.parametrize(
    ("seed", "brokers"), [(4, 3), pytest.param(1, 5, marks=pytest.mark.nightly)]
)
def test_a_seed_gives_the_same_run_under_every_hash_seed(seed: int, brokers: int) -> None:
    program = f"from sim.run import run_seed\nprint(run_seed({seed}, brokers={brokers}).trace)"
    assert under_another_hash_seed(program).strip() == run_seed(seed, brokers=brokers).trace


def test_three_brokers_become_one_cluster() -> None:
    async def main(loop):
        machines = Machines(loop, 1, 3)
        await asyncio.gather(*(machine.start() for machine in machines))
        return machines, machines.controller(), machines.image()

    (machines, controller, image), _ = simulate(1, main)
    machines.bury()
    assert controller in (1, 2, 3)
    assert sorted(image.brokers) == [1, 2, 3]


class Echo(asyncio.Protocol):
    """Sends back what comes; keeps what it got."""

    def __init__(self):
        self.got = b""
        self.error = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.got += data
        if data.startswith(b"?"):
            self.transport.write(b"!" + data)

    def connection_lost(self, exc):
        self.error = exc


@pytest.mark.parametrize(
    ("links", "arrives", "answered"),
    [
        ([("here", "there")], False, False),
        ([("there", "here")], True, False),
        ([("here", "elsewhere")], True, True),
    ],
)
def test_a_cut_link_holds_what_is_sent_until_it_heals(
    links: list[tuple[str, str]], arrives: bool, answered: bool
) -> None:
    async def main(loop):
        network = SimNetwork(loop, 1)
        served = []

        def serve():
            served.append(Echo())
            return served[-1]

        await network.door("there").listen("there", 1, serve)
        transport, client = await network.door("here").connect("there", 1, Echo)
        await asyncio.sleep(0.1)
        network.cut(links)
        transport.write(b"?")
        await asyncio.sleep(5)
        during = (served[0].got, client.got)
        network.heal(links)
        await asyncio.sleep(0.1)
        return during, (served[0].got, client.got)

    (during, after), _ = simulate(1, main)
    assert during == (b"?" if arrives else b"", b"!?" if answered else b"")
    assert after == (b"?", b"!?")


@pytest.mark.parametrize(("port", "arrives"), [(1, b""), (2, b"?")])
def test_a_cut_may_be_of_one_port(port: int, arrives: bytes) -> None:
    async def main(loop):
        network = SimNetwork(loop, 1)
        served = Echo()
        await network.door("there").listen("there", 1, lambda: served)
        transport, _ = await network.door("here").connect("there", 1, Echo)
        await asyncio.sleep(0.1)
        network.cut([("here", "there", port)])
        transport.write(b"?")
        await asyncio.sleep(5)
        return served.got

    assert simulate(1, main)[0] == arrives


def test_a_connection_over_a_cut_waits() -> None:
    async def main(loop):
        network = SimNetwork(loop, 1)
        await network.door("there").listen("there", 1, Echo)
        network.cut([("here", "there")])
        connecting = loop.create_task(network.door("here").connect("there", 1, Echo))
        await asyncio.sleep(5)
        waited = not connecting.done()
        network.heal([("here", "there")])
        await connecting
        return waited

    assert simulate(1, main)[0]


def test_a_machine_that_dies_behind_a_cut_is_missed_when_it_heals() -> None:
    async def main(loop):
        network = SimNetwork(loop, 1)
        await network.door("there").listen("there", 1, Echo)
        _, client = await network.door("here").connect("there", 1, Echo)
        network.cut([("there", "here")])
        network.drop_host("there")
        await asyncio.sleep(5)
        during = client.error
        network.heal([("there", "here")])
        await asyncio.sleep(0.1)
        return during, client.error

    (during, after), _ = simulate(1, main)
    assert during is None
    assert isinstance(after, ConnectionResetError)


def test_a_paused_lane_stands_still_and_goes_on() -> None:
    async def main(loop):
        ticks = []

        async def tick():
            while True:
                await asyncio.sleep(1)
                ticks.append(loop.time())

        in_lane("slow", tick())
        await asyncio.sleep(2.5)
        loop.pause_lane("slow")
        await asyncio.sleep(5)
        loop.resume_lane("slow")
        await asyncio.sleep(1.5)
        return ticks

    assert simulate(1, main)[0] == [1.0, 2.0, 7.5, 8.5]
