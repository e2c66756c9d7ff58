"""A machine's lives: what each end of one leaves behind."""

from __future__ import annotations

import asyncio

import pytest

from sim.history import PartitionHistory, TopicHistory, Violation
from sim.wire import Client, Lost, WireConnection
from tidelog.simulation.loop import simulate
from tidelog.simulation.machine import Machine
from tidelog.simulation.network import SimNetwork
from tidelog_protocol.messages.cluster import MetadataRequest

MARKER = "data/.kafka_cleanshutdown"


def on_machine(seed, scenario):
    async def main(loop):
        machine = Machine(loop, SimNetwork(loop, seed), seed)
        result = await scenario(machine)
        return result, machine

    (result, machine), loop = simulate(seed, main)
    machine.bury()
    return result, loop


async def ask(machine):
    connection = await WireConnection.open(machine, "client")
    return await connection.ask(MetadataRequest(topics=None), 12)


def test_a_broker_serves_over_the_simulated_network() -> None:
    async def scenario(machine):
        assert await machine.start()
        response = await ask(machine)
        assert await machine.stop()
        return response

    response, loop = on_machine(1, scenario)
    assert [(broker.host, broker.port) for broker in response.brokers] == [("broker", 9092)]
    assert loop.failures == []


@pytest.mark.parametrize(("how", "has_marker"), [("stop", True), ("kill", False), ("power", False)])
def test_only_an_orderly_end_leaves_the_mark(how: str, has_marker: bool) -> None:
    async def scenario(machine):
        assert await machine.start()
        before = (await ask(machine)).cluster_id
        if how == "stop":
            assert await machine.stop()
        else:
            machine.die(how)
        marked = MARKER in machine.disk.names
        with pytest.raises(Lost):
            await ask(machine)
        assert await machine.start()
        return before, marked, (await ask(machine)).cluster_id

    (before, marked, after), _ = on_machine(2, scenario)
    assert marked is has_marker
    assert after == before


@pytest.mark.parametrize("operation", range(1, 30, 4))
def test_a_process_can_die_inside_any_file_operation_of_its_start(operation: int) -> None:
    async def scenario(machine):
        machine.disk.die_at = operation
        started = await machine.start()
        deaths = list(machine.deaths)
        assert await machine.start() if not started else True
        return started, deaths

    (started, deaths), _ = on_machine(3, scenario)
    assert started or deaths == [(1, "kill")]


def test_a_start_that_is_dropped_with_its_loop_awaits_nothing() -> None:
    """It would make another loop: `asyncio.gather` of nothing does, outside of one."""
    starts = 0
    for operation in range(1, 30):

        async def main(loop, operation=operation):
            machine = Machine(loop, SimNetwork(loop, 3), 3)
            machine.disk.die_at = operation
            assert not await machine.start()
            return machine

        machine, loop = simulate(3, main)
        for task in asyncio.all_tasks(loop):
            coroutine = task.get_coro()
            starts += coroutine.__qualname__ == "BrokerServer.start"
            coroutine.close()  # RuntimeError if it awaits again
        machine.bury()
    assert starts > 5


def test_a_server_that_refuses_to_start_is_not_kept() -> None:
    """A machine may try it hundreds of times."""

    async def scenario(machine):
        assert await machine.start()
        machine.die("kill")
        assert not machine.has_refused
        machine.disk.names["data/meta.properties"].data[:] = b"cluster.id=another"
        assert not await machine.start()
        return machine.has_refused, [server is None for server, _ in machine._graves]

    assert on_machine(4, scenario)[0] == (True, [False, True])


def test_a_client_waits_while_the_broker_is_down() -> None:
    async def scenario(machine):
        client = Client(machine, "client")
        asking = asyncio.get_running_loop().create_task(
            client.ask(MetadataRequest(topics=None), 12)
        )
        await asyncio.sleep(5)
        assert not asking.done()
        assert await machine.start()
        return await asking

    assert on_machine(4, scenario)[0].brokers


def history(durable=False):
    config = {"flush.messages": "1"} if durable else {}
    return PartitionHistory(TopicHistory("t", bytes(16), 1, config), 0)


def test_an_offset_means_one_record_to_every_reader() -> None:
    partition = history()
    partition.learn(3, b"a", 1, acked=True)
    partition.learn(3, b"a", 1, acked=False)
    with pytest.raises(Violation, match="offset 3"):
        partition.learn(3, b"b", 1, acked=False)


def test_a_power_failure_voids_what_was_not_durable() -> None:
    partition = history()
    partition.learn(3, b"a", 1, acked=True)
    partition.cut(1, 2)
    partition.learn(3, b"late, and lost as well", 1, acked=True)
    partition.learn(3, b"b", 2, acked=True)
    assert partition.facts == {3: b"b"}


def test_an_acknowledgement_after_fsync_is_for_ever() -> None:
    partition = history(durable=True)
    partition.learn(3, b"a", 1, acked=True)
    assert partition.floor(0) == 4
    partition.cut(1, 2)
    with pytest.raises(Violation, match="after its fsync"):
        partition.learn(3, b"a", 1, acked=True)
