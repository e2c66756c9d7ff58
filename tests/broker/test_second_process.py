"""A broker's directory and a copy of it: one process at a time has the broker's id."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from support.clusters import run
from tidelog.config.broker import BrokerConfig
from tidelog.runtime import system_runtime
from tidelog.server import BrokerServer, StartError

if TYPE_CHECKING:
    from pathlib import Path

# No session ends while the test runs.
SETTINGS = {"broker.session.timeout.ms": "600000"}


def test_a_copied_directory_does_not_start_and_the_killed_one_does(tmp_path: Path) -> None:
    async def test() -> None:
        async with tidelog.Cluster(SETTINGS, brokers=3, data_dir=tmp_path) as cluster:
            broker: Any = await cluster.add_broker()
            epoch = broker.server.membership.broker_epoch
            copy = tmp_path / "copy"
            shutil.copytree(tmp_path / "broker-4", copy)
            second = BrokerServer(
                BrokerConfig.from_properties(
                    {
                        **broker.config.given,
                        "listeners": "PLAINTEXT://127.0.0.1:0",
                        "log.dirs": str(copy),
                        "initial.broker.registration.timeout.ms": "300",
                    }
                ),
                system_runtime(durable=False),
            )
            with pytest.raises(StartError, match="another process runs as broker 4"):
                await second.start()
            assert broker.is_running
            assert broker.server.membership.broker_epoch == epoch
            await broker.kill()
            await broker.start()  # its session goes on: the lock says that its process has ended
            assert broker.server.membership.broker_epoch > epoch

    run(test)
