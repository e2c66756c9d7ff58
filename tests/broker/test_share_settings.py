"""The settings of share groups: their own within the broker's limits, and durations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.config.broker import BrokerConfig
from tidelog.replication.reads import HIGH_WATERMARK, TRANSACTION_COMMITTED
from tidelog.shares.partition_state import ShareLimits
from tidelog.shares.settings import SettingsOfGroups, ShareSettings, settings_of
from tidelog.shares.start_offsets import milliseconds_of

CONFIG = BrokerConfig.from_properties({"node.id": "1"})


def test_the_broker_has_the_defaults() -> None:
    assert settings_of(CONFIG, {}) == ShareSettings(
        ShareLimits(30_000, 5, 2000, renews=True), HIGH_WATERMARK, "latest"
    )


def test_a_group_has_its_own_within_limits() -> None:
    own = {
        "share.record.lock.duration.ms": "1000",
        "share.delivery.count.limit": "7",
        "share.partition.max.record.locks": "9000",
        "share.renew.acknowledge.enable": "false",
        "share.isolation.level": "read_committed",
        "share.auto.offset.reset": "earliest",
    }
    assert settings_of(CONFIG, own) == ShareSettings(
        ShareLimits(15_000, 7, 4000, renews=False), TRANSACTION_COMMITTED, "earliest"
    )


def test_they_follow_the_image() -> None:
    image = SimpleNamespace(
        broker_configs={},
        group_configs={},
        broker_config=lambda _node: dict(image.broker_configs),
        group_config=lambda group_id: image.group_configs.get(group_id, {}),
    )
    replicas: Any = SimpleNamespace(image=image)
    settings = SettingsOfGroups(CONFIG, replicas)
    assert settings("g") is settings("g")
    assert settings("g").limits.deliveries_max == 5
    image.group_configs = {"g": {"share.delivery.count.limit": "3"}}
    assert settings("g").limits.deliveries_max == 3
    image.broker_configs = {"group.share.delivery.count.limit": "8"}
    assert settings("h").limits.deliveries_max == 8


@pytest.mark.parametrize(
    ("duration", "milliseconds"),
    [
        ("PT0S", 0),
        ("PT1.5S", 1500),
        ("PT1H30M", 5_400_000),
        ("P1DT1S", 86_401_000),
        ("+p2d", 172_800_000),
        ("PT1H-5M", 3_300_000),
    ],
)
def test_durations(duration: str, milliseconds: int) -> None:
    assert milliseconds_of(duration) == milliseconds
