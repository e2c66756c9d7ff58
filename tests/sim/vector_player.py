"""Plays every `kind: cluster` vector of the specification in the simulation: the player of `tidelog
scenario`, which here knows the actions of all vectors, on whole simulated brokers (`VectorStage`).

Time is virtual: what the vectors say of waiting and of task intervals is played as they say it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from sim.vector_stage import VectorStage
from tidelog.simulation.loop import simulate
from tidelog_scenarios.actions import Actions
from tidelog_scenarios.observer import Observer
from tidelog_scenarios.plan import broker_settings, metadata_on
from tidelog_scenarios.player import Player

if TYPE_CHECKING:
    from tidelog.simulation.loop import SimLoop

RECOVERING = 1


def play(document: dict[str, Any], seed: str = "") -> str:
    """The first step that differs from the vector, and the differences; "" if none does."""
    return simulate(seed or document["id"], lambda loop: _play(loop, document))[0]


async def _play(loop: SimLoop, document: dict[str, Any]) -> str:
    given = document["given"]
    given = {**given, "config": {"flush.ms": sys.maxsize, **given.get("config", {})}}
    stage = VectorStage(
        loop,
        "".join(given["brokers"]),
        broker_settings(document, at_rest=False),
        tiered="remote" in given,
        metadata_on=metadata_on(document),
    )
    async with stage:
        player = SimPlayer(stage, {**document, "given": given})
        difference = await player.play()
        if not difference:
            for produced in player.actions.waiting:
                assert produced.done(), "a producer was never answered"
                assert produced.result()["error"] == "NONE"
        return difference


class SimObserver(Observer):
    """Sees the partition's state, too."""

    async def state(self) -> dict[str, Any]:
        stage: Any = self._stage
        return {**await super().state(), "partition_state": stage.partition_states()}


class SimPlayer(Player):
    """All actions and states."""

    actions: SimActions

    def __init__(self, stage: VectorStage, document: dict[str, Any]) -> None:
        super().__init__(stage, document, SimActions)
        self.observer = SimObserver(stage, self.actions.names)

    def differs(self, state: dict[str, Any], expected: dict[str, Any]) -> list[str]:
        rest = {**expected}
        wanted = rest.pop("partition_state", None)
        differences = [] if wanted is None or wanted in state["partition_state"] else [wanted]
        return [*differences, *super().differs(state, rest)]


class SimActions(Actions):
    """All actions."""

    stage: VectorStage
    PATIENCE = 4  # a read that was slow is finished first: the next one shares it

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.waiting: list[asyncio.Future[Any]] = []  # producers that have no answer yet

    def arguments(self, step: dict[str, Any]) -> dict[str, Any]:
        arguments = super().arguments(step)
        if step["do"]["action"] == "produce":
            arguments["waits"] = "reply" in step or arguments["acks"] == 1
        return arguments

    # -- clients -----------------------------------------------------------------------------------

    async def do_produce(
        self, broker: str, values: list[str], acks: int, *, waits: bool = True
    ) -> dict[str, Any]:
        produced = asyncio.ensure_future(super().do_produce(broker, values, acks))
        if waits:
            return await produced
        self.waiting.append(produced)
        return {}

    def waited_ms(self, found_ms: float, expected_ms: int) -> int:
        """But for what the network takes."""
        return int(found_ms / 100) * 100

    # -- the controller ----------------------------------------------------------------------------

    async def do_isr(self, isr: list[str], why: str = "") -> None:
        stage = self.stage
        await stage.until(lambda: stage.in_sync == sorted(isr), f"{isr} are in sync")
        if "RECOVERED" in why:
            await stage.until(lambda: stage.decided.leader_recovery_state != RECOVERING, why)

    async def do_config(self, **options: dict[str, Any]) -> None:
        await self.client.alter_config(options["set"])

    # -- the remote tier ---------------------------------------------------------------------------

    async def do_rsm(
        self, mode: str, operation: str = "all", error: str = "", delay_ms: int = 0
    ) -> None:
        """Threads take no time here: it is the machine's door to them that is slow."""
        await super().do_rsm(mode, operation, error)
        for name in self.given["brokers"]:
            self.stage.slow(name, delay_ms / 1000)

    async def do_advance_time(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)
