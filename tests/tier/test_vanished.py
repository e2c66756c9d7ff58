"""A topic is deleted while all its replicas are away: nothing of it stays in the remote tier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.clusters import FAST, image_of, run, until
from support.tiered_cluster import segmented, tiered_cluster

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("comes_back", [False, True])
def test_of_a_topic_whose_only_broker_died_nothing_stays(
    tmp_path: Path, *, comes_back: bool
) -> None:
    """Who leads its metadata partition marks it; the broker itself knows it by its file."""
    remover_ms = "3600000" if comes_back else "300"
    settings = {**FAST, "remote.partition.remover.task.interval.ms": remover_ms}

    async def test() -> None:
        async with tiered_cluster(tmp_path, 3, **settings) as it:
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", ["v0", "v1", "v2"])
            await it.offloaded("a", {0: ["v0"], 1: ["v1"]}, local_start=2)
            only = it.leader("a")
            await it.node(only).kill()
            other = it.running()[0]
            await until(lambda: not image_of(other).is_alive(only), "it is known to be away")
            await it.delete("a")
            assert it.remote_files("a")
            if comes_back:
                await it.node(only).start()
            await until(lambda: not it.remote_files("a"), "nothing is left of the topic")

    run(test)
