"""A disk whose syncs take long: time passes on the loop that waits for one, and on no other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from sim.mutants import planted
from tidelog.simulation.loop import simulate
from tidelog.simulation.machine import in_lane
from tidelog.simulation.machines import Machines
from tidelog_protocol.messages.admin import CreateTopicsRequest

if TYPE_CHECKING:
    from tidelog.simulation.loop import SimLoop

SYNC_S = 0.01
AWAY_S_MAX = 0.1
PARTITIONS = 60
TOPIC = "t"


def test_a_lane_that_blocks_stands_still_alone() -> None:
    async def main(loop: SimLoop) -> dict[str, list[float]]:
        ticks: dict[str, list[float]] = {"blocks": [], "goes on": []}

        async def tick(lane: str) -> None:
            while True:
                await asyncio.sleep(1)
                ticks[lane].append(loop.time())
                if lane == "blocks" and len(ticks[lane]) == 2:
                    loop.stall(2.25)
                    loop.stall(0.25)

        for lane in ticks:
            in_lane(lane, tick(lane))
        await asyncio.sleep(3)
        loop.pause_lane("blocks")  # SIGSTOP and its end change nothing
        loop.resume_lane("blocks")
        await asyncio.sleep(3.2)
        return ticks

    ticks, loop = simulate(1, main)
    assert ticks == {"blocks": [1.0, 2.0, 4.5, 5.5], "goes on": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}
    assert loop.stalls == {"blocks": 2.5}


async def create_topic(machines: Machines, assignment: list[int]) -> None:
    """Every partition on the same brokers, the first of which leads."""
    topics = CreateTopicsRequest.CreatableTopic
    topic = topics(
        name=TOPIC,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            topics.CreatableReplicaAssignment(partition_index=index, broker_ids=assignment)
            for index in range(PARTITIONS)
        ],
    )
    machine = machines.by_id[assignment[1]]
    server: Any = machine.server
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    answer = await in_lane(machine.lane, server.membership.forwarding.create_topics(request))
    assert answer.topics[0].error_code == 0, answer


def led(machines: Machines, node_id: int) -> int:
    """How many partitions a broker leads."""
    server: Any = machines.by_id[node_id].server
    of_topic = [p for p in server.replicas.partitions() if p.topic_partition.topic == TOPIC]
    return sum(partition.is_leader for partition in of_topic)


async def fail_over(loop: SimLoop) -> tuple[int, float]:
    """Kill the leader of all partitions, which is not the controller; how many the next one leads,
    and how long a loop was away."""
    machines = Machines(loop, "slow disk", 3, {"auto.leader.rebalance.enable": "false"})
    await asyncio.gather(*(machine.start() for machine in machines))
    controller = machines.controller()
    assert controller is not None
    first, second = (node_id for node_id in machines.by_id if node_id != controller)
    await create_topic(machines, [first, second, controller])
    await asyncio.sleep(5)
    assert led(machines, first) == PARTITIONS
    for machine in machines:
        machine.disk_delay_s = (SYNC_S, SYNC_S)
    loop.stalls.clear()
    machines.by_id[first].die("kill")
    await asyncio.sleep(5)
    result = led(machines, second), max(loop.stalls.values(), default=0.0)
    machines.bury()
    return result


def test_a_failover_does_not_wait_for_a_slow_disk() -> None:
    (leaderships, away_s), _ = simulate("slow disk", fail_over)
    assert leaderships == PARTITIONS
    assert away_s < AWAY_S_MAX


def test_leader_epochs_that_are_synced_on_the_loop_are_found() -> None:
    with planted("epochs-are-synced-on-the-loop"), pytest.raises(AssertionError):
        test_a_failover_does_not_wait_for_a_slow_disk()
