"""Requests of careless administrators: UnregisterBroker of a broker that runs, and of the only one;
a name that is too long for an answer.

A process whose broker was unregistered ends, and its next life registers and catches up. The only
broker stays. Each request has an answer.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.admin import creatable_topic
from sim.history import Violation, require
from sim.stage import Stage
from sim.wire import Lost, WireConnection
from tidelog.simulation.loop import simulate
from tidelog.simulation.machine import Machine, in_lane
from tidelog.simulation.network import SimNetwork
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_protocol.messages.cluster_admin import UnregisterBrokerRequest

if TYPE_CHECKING:
    from tidelog.simulation.loop import SimLoop
    from tidelog_protocol.schema import Message

NOTICED_S_MAX = 5.0
LONG_NAME = "x" * 32_767


def run_careless(seed: int) -> None:
    """Violation if a promise is broken."""
    play = _one_broker if seed % 2 else _one_of_several
    simulate(f"careless-{seed}", lambda loop: play(loop, seed))


async def _one_of_several(loop: SimLoop, seed: int) -> None:
    rng = random.Random(f"{seed}:careless")
    async with Stage(loop, "AB") as stage:
        await stage.create_topic("AB")
        await stage.acknowledged("A", "before", acks=-1)
        name = rng.choice("AB")
        machine = stage.machines[name]
        life, ending = machine.server, in_lane("test", machine.ended())
        request = UnregisterBrokerRequest(broker_id=stage.ids[name])
        response = await stage.ask(rng.choice("XY"), request, 0)
        code = ErrorCode(response.error_code)
        require(code is ErrorCode.NONE, f"UnregisterBroker: {code.name}")
        await asyncio.wait([ending], timeout=NOTICED_S_MAX)
        require(ending.done(), f"{name} was unregistered and runs")
        assert life is not None
        require("unregistered" in str(life.failure), f"{name} ends: {life.failure}")
        other = "AB".replace(name, "")
        await stage.until(lambda: stage.leads(other), "the other one leads")
        await stage.acknowledged(other, "meanwhile")
        await stage.start(name)
        await stage.whole()
        require(stage.values(name) == ["before", "meanwhile"], f"{name} has {stage.values(name)}")


async def _one_broker(loop: SimLoop, seed: int) -> None:
    machine = Machine(loop, SimNetwork(loop, seed), seed)
    assert await machine.start()
    try:
        node_id = machine.config.node_id
        gone = await _ask(machine, UnregisterBrokerRequest(broker_id=node_id), 0)
        metadata = await _ask(machine, MetadataRequest(topics=None), 12)
        known = [broker.node_id for broker in metadata.brokers]
        require(known == [node_id], f"UnregisterBroker: {gone}; brokers now: {known}")
        topic = creatable_topic("long", 1, 1, {LONG_NAME: "1"})
        created = await _ask(machine, CreateTopicsRequest(topics=[topic], timeout_ms=3000), 7)
        code = ErrorCode(created.topics[0].error_code)
        require(code is ErrorCode.INVALID_CONFIG, f"a config name of 32 KB: {code.name}")
    finally:
        machine.die("end of the play")
        machine.bury()


async def _ask(machine: Machine, message: Message, version: int) -> Any:
    try:
        connection = await WireConnection.open(machine, "client")
        return await connection.ask(message, version)
    except Lost as error:
        raise Violation(f"{type(message).__name__}: {error}") from error
