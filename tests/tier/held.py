"""Two brokers over a directory whose calls can be held, and what they know of its segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.clusters import until
from support.remote_places import DirectoryPlace
from tidelog_storage.remote.api import RemoteStorageNotReady
from tier.harness import TieredCluster

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog_storage.remote.api import RemoteSegment


def known(cluster: TieredCluster, broker: int, topic: str) -> list[RemoteSegment]:
    """Remote segments of partition 0 as this broker knows them."""
    tier = cluster.node(broker).server.tier
    try:
        return list(tier.metadata.segments(tier.partitions[topic, 0].partition))
    except RemoteStorageNotReady:
        return []


async def is_held(cluster: TieredCluster, what: str, broker: int) -> None:
    await until(
        lambda: (what, broker + 1) in cluster.history.held, f"{what} of {broker} is under way"
    )


class Held(TieredCluster):
    """Two brokers over a directory; whoever is held when a test ends is let go."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.place = DirectoryPlace(folder / "tier")
        store = {"inner": "directory", **self.place.config}
        super().__init__(store, **{"brokers": 2} | options)

    async def __aexit__(self, *error: object) -> None:
        self.history.release_all()
        await super().__aexit__(*error)

    def objects(self, topic: str) -> list[str]:
        """All files of the topic in the store."""
        return [name for name in self.place.names() if name.startswith(topic + "-")]

    async def lead_by(self, broker: int, topic: str) -> None:
        """Have this one of the two lead."""
        await self.reassign(topic, 0, [broker, 1 - broker])
        await self.expect_leader(topic, 0, broker, elect=True)
