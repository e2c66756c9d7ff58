"""What a play makes a cluster do at a given moment: roll a log, copy a segment to the remote tier,
delete local segments, and decide what no controller would decide.

The real code does all of it. `remote.log.copy.disable` holds the remote tier's tasks back; it is
lifted while one segment is copied or deleted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog_protocol.messages.metadata_records import PartitionChangeRecord
from tidelog_scenarios.inside import from_hex
from tidelog_scenarios.vocabulary import PlayError
from tidelog_storage.remote.api import SegmentState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog_scenarios.client import Client
    from tidelog_scenarios.names import Names
    from tidelog_scenarios.stage import Stage
    from tidelog_storage.remote.api import RemoteSegment

__all__ = ["TIERED_TOPIC", "Interventions", "roll_offsets"]

_COPY_DISABLE = "remote.log.copy.disable"
TIERED_TOPIC = {"remote.storage.enable": True, _COPY_DISABLE: True}


def roll_offsets(document: dict[str, Any], name: str) -> set[int]:
    """Return the offsets at which a broker's segments begin, so that steps find those they name."""
    given = document["given"]
    facts = given["brokers"][name]
    found = {base for base, _ in facts.get("segments", [])} | {facts["local_start"]}
    if facts["role"] == "leader":
        for each in given.get("remote", []):
            found |= {each["start"], each["end"] + 1}
    for step in document["steps"]:
        action = step["do"]
        if action.get("broker") == name and action["action"] in ("copy", "roll", "delete_local"):
            found |= {action[key] for key in ("start", "at", "before") if key in action}
            if "end" in action:
                found.add(action["end"] + 1)
    return found


class Interventions:
    """The interventions of one play."""

    def __init__(
        self, stage: Stage, names: Names, client: Client, document: dict[str, Any], now_ms: int
    ) -> None:
        """Prepare for a vector, `document`."""
        given = document["given"]
        self.rolls = {name: sorted(roll_offsets(document, name)) for name in given["brokers"]}
        """By broker, the offsets at which its segments begin."""
        self._stage = stage
        self._names = names
        self._client = client
        self._now_ms = now_ms

    # -- logs --------------------------------------------------------------------------------------

    async def roll_if_due(self, broker: str) -> int:
        """Begin a segment if one must begin here; return the log end offset."""
        return await self._stage.inside(broker).roll_if_due(self.rolls[broker], self._now_ms)

    async def delete_local(self, broker: str, before: int) -> None:
        """Run one broker's local retention with a limit that deletes what is below `before`."""
        await self._stage.inside(broker).delete_local(before, self._now_ms)

    # -- the remote tier ---------------------------------------------------------------------------

    async def until_ready(self, broker: str) -> None:
        """Wait until a broker has read the remote tier's metadata."""
        inside = self._stage.inside(broker)

        async def is_ready() -> bool:
            return await inside.known() is not None

        await self._stage.until(is_ready, f"the remote metadata of {broker} is ready")

    async def until_agreed(self, actors: Iterable[str]) -> None:
        """Wait until all running brokers have the same remote metadata."""
        stage = self._stage
        running = [name for name in actors if await stage.has_replica(name)]
        for name in running:
            await self.until_ready(name)

        async def agree() -> bool:
            known = [set(await stage.inside(name).known() or ()) for name in running]
            return all(one == known[0] for one in known)

        await stage.until(agree, f"{' and '.join(running)} know the same of the remote tier")

    async def copy(self, broker: str, symbol: str) -> RemoteSegment:
        """Let the leader copy, and return the one new segment, named `symbol`.

        PlayError if there is not exactly one.
        """
        await self.until_ready(broker)
        inside = self._stage.inside(broker)

        async def is_still() -> bool:
            return not (await inside.copying())["is_under_way"]

        async def has_copied() -> bool:
            return bool(await self._new_segments(broker)) and await is_still()

        await self._disable_copies(False)
        await self._stage.until(has_copied, f"{broker} has copied a segment")
        await self._disable_copies(True)
        await self._stage.until(is_still, f"{broker} has stopped copying")
        segments = await self._new_segments(broker)
        if len(segments) != 1:
            raise PlayError(f"{broker} copied {len(segments)} segments instead of one")
        self._names.add_segment(symbol, segments[0])
        return segments[0]

    async def _new_segments(self, broker: str) -> list[RemoteSegment]:
        return [
            segment
            for segment in from_hex(await self._stage.inside(broker).known() or ())
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED
            and segment.segment_id not in self._names.segments
        ]

    async def _disable_copies(self, disable: bool) -> None:
        """Set the topic's setting; return once every running broker applies it."""
        stage = self._stage
        await self._client.alter_config({_COPY_DISABLE: disable})
        running = [name for name in self.rolls if await stage.has_replica(name)]

        async def is_set() -> bool:
            found = [(await stage.inside(name).copying())["is_disabled"] for name in running]
            return all(one is disable for one in found)

        await stage.until(is_set, "the brokers know the settings")

    # -- the controller ----------------------------------------------------------------------------

    async def decree(self, leader: str | None, isr: Iterable[str]) -> None:
        """Write an ISR and, unless None, a leader with a new epoch into the metadata log."""
        stage = self._stage
        record = PartitionChangeRecord(
            partition_id=0,
            topic_id=stage.topic_id,
            isr=[stage.ids[name] for name in isr],
        )
        if leader is not None:
            record.leader = stage.ids[leader]
        before = stage.decided.partition_epoch
        await stage.commit(record)
        await stage.until(lambda: stage.decided.partition_epoch > before, "the change is applied")
        if leader is not None:
            await stage.until(partial(stage.leads, leader), f"{leader} leads")
