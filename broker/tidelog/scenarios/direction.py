"""What a play does to a cluster beside asking it: when a log rolls, what is copied to the remote
tier and what leaves the local one, and decisions that no controller would take by itself.

The real code does all of it. The remote tier's tasks are kept still by `remote.log.copy.disable`,
which is lifted for as long as one segment is to be copied or deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.scenarios.stage import PlayError
from tidelog_protocol.messages.metadata_records import PartitionChangeRecord
from tidelog_storage.remote.api import SegmentState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.scenarios.answers import Client
    from tidelog.scenarios.look import Names
    from tidelog.scenarios.stage import Stage
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import RemoteSegment

__all__ = ["TIERED_TOPIC", "Direction", "roll_offsets"]

_COPY_DISABLE = "remote.log.copy.disable"
_LOCAL_BYTES = "local.retention.bytes"
_LIKE_RETENTION = -2
TIERED_TOPIC = {"remote.storage.enable": True, _COPY_DISABLE: True}


def roll_offsets(document: dict[str, Any], name: str) -> set[int]:
    """Where segments of a broker's log begin, so that later steps find those they name."""
    given = document["given"]
    facts = given["brokers"][name]
    found = {base for base, _ in facts.get("segments", [])}
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


class Direction:
    """Of one play."""

    def __init__(
        self, stage: Stage, names: Names, client: Client, rolls: dict[str, set[int]], now_ms: int
    ) -> None:
        """`rolls`: by broker, the offsets at which its segments begin."""
        self._stage = stage
        self._names = names
        self._client = client
        self._rolls = rolls
        self._now_ms = now_ms

    # -- logs --------------------------------------------------------------------------------------

    def roll_if_due(self, broker: str) -> None:
        """Begin a segment where one has to begin."""
        log = self._stage.partition(broker).log
        if log.log_end_offset in self._rolls[broker]:
            log.roll(self._now_ms)

    async def delete_local(self, broker: str, before: int) -> None:
        """Local retention of one broker, with a limit that lets go just what is below `before`."""
        log = self._stage.partition(broker).log
        kept = sum(segment.size for segment in log.segments if segment.base_offset >= before)
        await self._set_config(copy_disable=False, local_bytes=max(kept, 1))
        log.delete_old_segments(self._now_ms)
        await self._set_config(copy_disable=True, local_bytes=_LIKE_RETENTION)

    # -- the remote tier ---------------------------------------------------------------------------

    async def until_ready(self, broker: str) -> None:
        """Wait until a broker knows what is in the remote tier."""
        metadata = self._stage.tier(broker).metadata
        partition = self._stage.remote_partition
        await self._stage.until(
            lambda: metadata.is_ready(partition), f"the remote metadata of {broker} is ready"
        )

    async def until_agreed(self, actors: Iterable[str]) -> None:
        """Wait until all brokers that run know the same of the remote tier."""
        stage = self._stage
        running = [name for name in actors if stage.has_replica(name)]
        for name in running:
            await self.until_ready(name)

        def agree() -> bool:
            partition = stage.remote_partition
            known = [
                {
                    (each.segment_id, each.state)
                    for each in stage.tier(n).metadata.segments(partition)
                }
                for n in running
            ]
            return all(one == known[0] for one in known)

        await stage.until(agree, f"{' and '.join(running)} know the same of the remote tier")

    async def copy(self, broker: str, symbol: str) -> RemoteSegment:
        """Let the leader copy what it can; the one segment that came, which gets this name.

        PlayError if it is not one.
        """
        await self.until_ready(broker)
        copier = self._stage.tiered(broker).copier
        await self._set_config(copy_disable=False, local_bytes=_LIKE_RETENTION)
        await self._stage.until(
            lambda: bool(self._new_segments(broker)) and not copier.copying,
            f"{broker} has copied a segment",
        )
        await self._set_config(copy_disable=True, local_bytes=_LIKE_RETENTION)
        await self._stage.until(lambda: not copier.copying, f"{broker} copies no more")
        segments = self._new_segments(broker)
        if len(segments) != 1:
            raise PlayError(f"{broker} copied {len(segments)} segments, and not one")
        self._names.add_segment(symbol, segments[0])
        return segments[0]

    def _new_segments(self, broker: str) -> list[RemoteSegment]:
        metadata = self._stage.tier(broker).metadata
        return [
            segment
            for segment in metadata.segments(self._stage.remote_partition)
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED
            and segment.segment_id not in self._names.segments
        ]

    async def _set_config(self, *, copy_disable: bool, local_bytes: int) -> None:
        """Until every broker that runs goes by it."""
        stage = self._stage
        await self._client.alter_config({_COPY_DISABLE: copy_disable, _LOCAL_BYTES: local_bytes})

        def is_set(log: Log) -> bool:
            config = log.config
            return (
                config.remote_log_copy_disable is copy_disable
                and config.local_retention_bytes == local_bytes
            )

        running = [name for name in self._rolls if stage.has_replica(name)]
        await stage.until(
            lambda: all(is_set(stage.partition(name).log) for name in running),
            "the brokers know the settings",
        )

    # -- the controller ----------------------------------------------------------------------------

    async def decree(self, leader: str | None, isr: Iterable[str]) -> None:
        """Write a leader, who begins an epoch, and an ISR into the metadata log."""
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
        await stage.until(lambda: stage.decided.partition_epoch > before, "the decree is known")
        if leader is not None:
            await stage.until(lambda: stage.leads(leader), f"{leader} leads")
