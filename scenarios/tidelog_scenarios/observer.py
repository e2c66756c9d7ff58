"""The state of a stage in the vectors' format: of every broker and of the remote tier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog_scenarios.disk import records_in, rows_of
from tidelog_scenarios.inside import from_hex
from tidelog_scenarios.vocabulary import VOTERS
from tidelog_storage.checkpoints import parse_epochs
from tidelog_storage.remote.api import IndexKind, PartitionDelete, SegmentState
from tidelog_storage.remote.layout import (
    INDEX_ENDINGS,
    LOG_ENDING,
    MANIFEST_ENDING,
    folder_name,
    object_name,
)
from tidelog_storage.remote.metadata_cache import PartitionMetadata
from tidelog_storage.remote.metadata_records import decode

if TYPE_CHECKING:
    from tidelog_scenarios.names import Names
    from tidelog_scenarios.stage import Stage
    from tidelog_storage.remote.api import RemoteSegment

__all__ = ["Observer"]

State = dict[str, Any]

_DELETED = (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED)


class Observer:
    """Reads the state of a stage."""

    def __init__(self, stage: Stage, names: Names) -> None:
        self._stage = stage
        self._names = names
        self._actors = [name for name in stage.ids if name not in VOTERS]
        self._metadata: list[RemoteSegment] = []

    async def state(self) -> State:
        """Return `brokers` and `isr`; of a tiered play also `remote` and `rlmm`, and once its topic
        is deleted the `metadata_log`."""
        stage = self._stage
        state: State = {
            "brokers": {name: await self.broker(name) for name in self._actors},
            "isr": stage.in_sync,
        }
        if stage.is_tiered:
            if stage.is_deleted:
                state["metadata_log"] = await self._read_deletion()
            else:
                await self._read_metadata()
            state["remote"] = self._remote()
            state["rlmm"] = [self._described(segment) for segment in self._metadata]
        return state

    # -- brokers -----------------------------------------------------------------------------------

    async def broker(self, name: str) -> State:
        """Return the state of one broker."""
        stage, names = self._stage, self._names
        found = await stage.inside(name).look() if stage.is_running(name) else {}
        if not found:
            rows = records_in(stage.files_of(name), stage.log_folder(name))
            end = rows[-1][0] + 1 if rows else 0
            return {"role": "stopped", "leo": end, "records": names.rows(rows)}
        known = found["remote_leo"].items()
        found["remote_leo"] = {stage.letters[int(node_id)]: end for node_id, end in known}
        return {"role": await self._role(name), **names.translated(found)}

    async def _role(self, name: str) -> str:
        stage = self._stage
        if await stage.leads(name):
            return "leader"
        return "follower" if name in stage.in_sync else "out_of_sync"

    # -- the remote tier ---------------------------------------------------------------------------

    async def _read_metadata(self) -> None:
        """Read the leader's metadata; without a leader keep the last."""
        stage = self._stage
        for name in self._actors:
            if await stage.leads(name):
                known = await stage.inside(name).known()
                if known is not None:
                    self._metadata = from_hex(known)

    async def _read_deletion(self) -> list[str]:
        """Return the events of the deletion in the metadata topic, in order.

        No broker follows a deleted partition, so the topic itself is read.
        """
        stage = self._stage
        holder = stage.inside(next(filter(stage.is_running, stage.metadata_on)))
        metadata = PartitionMetadata(stage.remote_partition)
        lines: dict[str, None] = {}  # a repeated event is legal
        for event in map(decode, map(bytes.fromhex, await holder.metadata_events())):
            metadata.apply(event)
            name = event.state.name
            if isinstance(event, PartitionDelete):
                lines[name] = None
            elif event.state in _DELETED:
                lines[f"{self._names.symbol(event.segment_id)} {name}"] = None
        self._metadata = metadata.segments()
        return list(lines)

    def _described(self, segment: RemoteSegment) -> State:
        return {
            "id": self._names.symbol(segment.segment_id),
            "start": segment.start_offset,
            "end": segment.end_offset,
            "epochs": self._names.epochs(segment.epochs),
            "state": segment.state.name,
        }

    def _remote(self) -> list[State]:
        """Return the store's whole segments, and the files that belong to none."""
        stage, names = self._stage, self._names
        files = stage.store_files
        folder = f"{stage.store_folder}/{folder_name(stage.remote_partition)}"
        left = set(files.list(folder)) if files.exists(folder) else set()
        found = []
        known = {segment.segment_id: segment for segment in self._metadata} | names.segments
        for segment in known.values():
            own = {name for name in left if name.startswith(object_name(segment, "."))}
            left -= own
            if object_name(segment, MANIFEST_ENDING) in own:
                found.append(self._object(folder, segment))
        found += [{"id": name, "start": -1, "end": -1} for name in sorted(left)]
        return sorted(found, key=lambda each: str(each["id"]))

    def _object(self, folder: str, segment: RemoteSegment) -> State:
        def content(ending: str) -> bytes:
            return self._stage.store_files.read_bytes(f"{folder}/{object_name(segment, ending)}")

        checkpoint = parse_epochs(content(INDEX_ENDINGS[IndexKind.LEADER_EPOCH]))
        return {
            "id": self._names.symbol(segment.segment_id),
            "start": segment.start_offset,
            "end": segment.end_offset,
            "checkpoint": self._names.epochs(checkpoint),
            "records": self._names.rows(rows_of(content(LOG_ENDING))),
        }
