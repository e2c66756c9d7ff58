"""Controllers whose listeners ask for SASL: sessions end often, and connections are replaced."""

from __future__ import annotations

import pytest

from sim.stage import VOTERS, Stage
from support.secured import plain_jaas
from tidelog.simulation.loop import simulate

SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": plain_jaas(broker="inner-secret"),
    "listener.name.controller.connections.max.reauth.ms": "1000",
}


async def played(loop):
    """A cluster in which the sessions of all connections to controllers end ten times."""
    async with Stage(loop, "ABC", SETTINGS) as stage:
        await stage.create_topic("ABC")
        doors = [stage.machines[name].server.membership.connections for name in VOTERS]
        first = {one for door in doors for one in door.live}
        end = loop.time() + 10
        await stage.until(lambda: loop.time() > end, "sessions have ended")
        assert (await stage.produce("A", "m", acks=-1)).error_code == 0
        assert not any(stage.is_fenced(name) for name in "ABC"), "all heartbeats came through"
        live = {one for door in doors for one in door.live}
        assert {str(one.principal) for one in live} <= {"User:broker", "User:ANONYMOUS"}
        assert first - live, "some are replaced"
        assert len(live) <= len(first) + len(stage.ids), "and closed"
        stage.kill("A")
        await stage.until(lambda: stage.is_fenced("A"), "fenced")
        await stage.start("A")
        return loop.time()


@pytest.mark.parametrize("seed", range(2))
def test_sessions_end_and_nothing_else_does(seed: int) -> None:
    assert simulate(f"secured:{seed}", played)[0] == simulate(f"secured:{seed}", played)[0]
