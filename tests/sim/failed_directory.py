"""One of two log directories of a broker fails a sync. The broker ends, as the controller does not
know which replicas were there, and starts again: everything is led, acknowledged and in sync.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.history import require
from sim.raw_logs import DATA, MORE
from sim.stage import TOPIC, Stage
from sim.wire import Lost
from tidelog.simulation.loop import simulate
from tidelog.simulation.machine import in_lane
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.simulation.loop import SimLoop
    from tidelog.simulation.machine import Machine

PARTITIONS = 4
AGAIN_S_MAX = 20.0


def run_failed_directory(seed: int) -> None:
    """Violation if a promise is broken."""
    simulate(f"failed-directory-{seed}", lambda loop: _play(loop, seed))


async def _play(loop: SimLoop, seed: int) -> None:
    rng = random.Random(f"{seed}:failed directory")
    async with Stage(loop, "AB", {"log.dirs": f"{DATA},{MORE}"}) as stage:
        await stage.create_topic("AB", partitions=PARTITIONS, flush_messages=1)
        name = rng.choice("AB")
        machine = stage.machines[name]
        server: Any = machine.server
        logs = [one.log.folder for one in server.replicas.partitions()]
        assert any(folder.startswith(MORE) for folder in logs), logs
        keeping = in_lane("test", _keep(machine))
        trouble = machine.disk.trouble
        trouble.sync_fails = lambda path: path.startswith(f"{MORE}/")
        end_s = loop.time() + AGAIN_S_MAX
        for index in range(PARTITIONS):
            while (why := await _refusal(stage, index)) is not None:
                require(loop.time() < end_s, f"{index} not after {AGAIN_S_MAX:g} s: {why}")
                await asyncio.sleep(0.1)
        require(trouble.sync_fails is None, "no sync has failed")
        keeping.cancel()


async def _keep(machine: Machine) -> None:
    """Start the broker again when it ends."""
    while True:
        await machine.ended()
        await machine.start()


async def _refusal(stage: Stage, index: int) -> str | None:
    """Why a partition is not whole; None if it takes a record, and all replicas are in sync."""
    image = stage.image
    if image is None:
        return "no controller"
    state = image.partition(TOPIC, index)
    leader = stage.letters.get(state.leader)
    if leader is None:
        return f"no leader: {state}"
    try:
        response = await stage.ask(leader, stage.produce_request("x", acks=-1, index=index), 12)
    except Lost:
        return f"no answer of {leader}"
    code = ErrorCode(response.responses[0].partition_responses[0].error_code)
    if code is not ErrorCode.NONE:
        return f"{leader}: {code.name}"
    return None if len(state.isr) == len(state.replicas) else f"in sync: {state.isr}"
