"""Somebody deletes `__remote_log_metadata` of a cluster: what is remote stays so, copies go on, and
a broker that knows nothing learns it all."""

from __future__ import annotations

import asyncio
from typing import Any

from sim.remote_store import PREFIX, new_weather
from sim.stage import Stage
from sim.test_remote_tier import SETTINGS, TOPIC_SETTINGS, Play
from tidelog.cluster.metadata.image import REMOTE_LOG_METADATA_TOPIC
from tidelog.simulation.loop import simulate
from tidelog_protocol.messages.admin import DeleteTopicsRequest

FILES = "/_rlmm_"


async def live(loop: Any, seed: str) -> int:
    settings = {**SETTINGS, "rsm.config.dir": f"{PREFIX}{seed}"}
    weather = new_weather(seed)
    async with Stage(loop, "ABC", settings) as stage:
        await stage.create_topic("ABC", **TOPIC_SETTINGS, segment_index_bytes=12)
        play = Play(stage, seed, weather, None)

        def topic_id() -> bytes:
            topic = stage.image.topics.get(REMOTE_LOG_METADATA_TOPIC)
            return b"" if topic is None else bytes(topic.topic_id)

        producing = asyncio.ensure_future(play.produce())
        await asyncio.sleep(2)
        before = topic_id()
        name = DeleteTopicsRequest(topic_names=[REMOTE_LOG_METADATA_TOPIC], timeout_ms=3000)
        answer = await stage.ask("X", name, 5)
        assert answer.responses[0].error_code == 0
        await stage.until(lambda: topic_id() not in (b"", before), "it is created again")
        await asyncio.sleep(2)
        for broker in "ABC":  # one after the other has only what it is told
            await stage.stop(broker)
            disk = stage.machines[broker].disk
            files = [path for path in disk.names if FILES in path]
            assert files
            for path in files:
                del disk.names[path]
            await stage.start(broker)
            await stage.until(lambda: stage.in_sync == "ABC", "it is in sync")
        play.is_over = True
        await producing
        await play.check()
        await play.delete()
        return len(play.acknowledged)


def test_the_metadata_topic_is_deleted() -> None:
    acknowledged, _ = simulate("deleted", lambda loop: live(loop, "deleted"))
    assert acknowledged > 30
