"""A consumer that takes a log as it finds it; what it finds is judged by the clients' histories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.cluster.consumers import EARLIEST, LATER, LATEST, ClusterConsumer, Place
from sim.history import require
from sim.wire import Lost
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from sim.history import PartitionHistory


class LooseReader(ClusterConsumer):
    """Reads from leaders to the end, with offsets that are not there, and goes back where a new
    leader's log leaves what it has read."""

    def __init__(self, world: Any, name: str, targets: list[PartitionHistory]) -> None:
        super().__init__(world, name)
        self.rack = ""
        self.places = {(each.topic.topic_id, each.index): Place(each) for each in targets}

    def _look_around(self, *, only_old: bool = False) -> None:
        """It stays with its topic."""

    async def _take(self, place: Place, answer: Any, node_id: int) -> None:
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            first, end = await self._offset(place, EARLIEST), await self._offset(place, LATEST)
            place.position, place.epoch = min(max(place.position, first), end), -1
            return
        if error is not ErrorCode.NONE:
            require(
                error in LATER or self.world.rot.refuses(error, node_id, place.history),
                f"{self.name}: {place.history} was answered {error.name}",
            )
            raise Lost(error.name)
        diverging = answer.diverging_epoch
        if diverging is not None and diverging.end_offset >= 0:
            self.world.history.count("diverging consumers")
            place.position, place.epoch = min(place.position, diverging.end_offset), -1
            return
        for _, header in self._whole(place, bytes(answer.records or b""), node_id):
            place.position, place.epoch = header.last_offset + 1, header.leader_epoch

    async def read_again(self) -> None:
        """All of it, from the beginning, when all producers have ended."""
        for place in self.places.values():
            end = await self._offset(place, LATEST)
            place.position, place.epoch = 0, -1
            while place.position < end:
                try:
                    await self._fetch(place)
                except Lost:
                    await self.cluster.refresh()
        self.cluster.close()
