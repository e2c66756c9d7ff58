"""The order in which the parts of a broker get a new image."""

from __future__ import annotations

from typing import Any

from support.metadata import cluster
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.publisher import MetadataPublisher

ORDER = [
    "lifecycle",
    "replicas",
    "fetchers",
    "directories",
    "share_states",
    "groups",
    "transactions",
    "tier",
]
ABSENT = ["fetchers", "directories", "tier"]


class Part:
    """Notes when it is called, and with what."""

    def __init__(self, name: str, calls: list[Any]) -> None:
        self.on_image = self.apply = lambda *given: calls.append((name, *given))


def test_parts_are_called_in_order_with_one_delta() -> None:
    calls: list[Any] = []
    parts: dict[str, Any] = {name: Part(name, calls) for name in reversed(ORDER)}
    image = cluster()
    delta = MetadataDelta(None, image)
    MetadataPublisher(**parts).publish(delta, image)
    assert calls == [(name, delta, image) for name in ORDER]


def test_a_broker_may_lack_parts() -> None:
    calls: list[Any] = []
    own: dict[str, Any] = {n: Part(n, calls) for n in ORDER if n not in ABSENT}
    publisher = MetadataPublisher(**own, **dict.fromkeys(ABSENT))
    publisher.publish(MetadataDelta(None, cluster()), cluster())
    assert [name for name, *_ in calls] == list(own)
