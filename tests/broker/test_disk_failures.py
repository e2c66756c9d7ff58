"""A broker whose disk fails: what it says, to whom, and when it gives up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import tidelog
from support.clusters import run
from support.failing_files import FailingFiles
from tidelog.config.broker import BrokerConfig
from tidelog.doors.cluster_settings import node_properties
from tidelog.runtime import system_runtime
from tidelog.server import BrokerServer, StartError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_broker_whose_disk_fails_while_it_joins_gives_up_at_once(tmp_path: Path) -> None:
    """It would wait for `initial.broker.registration.timeout.ms`, a minute."""

    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            first = cluster.brokers[0].config
            voters = {v.node_id: f"{v.host}:{v.port}" for v in first.quorum_voters()}
            await cluster.brokers[2].stop()
            files = FailingFiles()
            files.fails = lambda path: path.endswith("quorum-state")
            server = BrokerServer(
                BrokerConfig.from_properties(
                    node_properties(
                        {},
                        node_id=3,
                        voters=voters,
                        host="127.0.0.1",
                        port=0,
                        data_dir=str(tmp_path),
                    )
                ),
                system_runtime(files),
                cluster_id=cluster.brokers[0].server.metadata.image.cluster_id,
            )
            server.on_failure = lambda: pytest.fail("start() tells it")
            begun = time.monotonic()
            with pytest.raises(StartError, match="No space left on device"):
                await server.start()
            assert time.monotonic() - begun < 30

    run(test)
