"""The state of a stage, as vectors write it: every broker's, and the remote tier's.

Leader epochs and remote segments have other names in a cluster than in its vector: a time without a
leader begins an epoch as well, and segment ids are chance. `Names` keeps which is which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.scenarios.disk import records_in, rows_of
from tidelog.scenarios.stage import VOTERS
from tidelog_protocol.primitives import uuid_to_str
from tidelog_storage.checkpoints import parse_epochs
from tidelog_storage.remote.api import IndexKind
from tidelog_storage.remote.layout import LOG_ENDING, MANIFEST_ENDING, folder_name, object_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.scenarios.stage import Stage
    from tidelog.scenarios.turnstile import Turnstile
    from tidelog_storage.remote.api import RemoteSegment

__all__ = ["Looker", "Names"]

State = dict[str, Any]


class Names:
    """Which leader epochs and remote segments of the cluster are which of the vector."""

    def __init__(self) -> None:
        self._to_cluster = {-1: -1}
        self._to_vector = {-1: -1}
        self._symbols: dict[bytes, str] = {}
        self.segments: dict[bytes, RemoteSegment] = {}
        """All that have a name, whether they are still there or not."""

    def add_epoch(self, of_vector: int, of_cluster: int) -> None:
        """An epoch of the vector has begun."""
        self._to_cluster[of_vector] = of_cluster
        self._to_vector[of_cluster] = of_vector

    def cluster_epoch(self, epoch: int) -> int:
        """An epoch of the vector in the cluster; one that has not begun is above all."""
        newest = max(self._to_cluster)
        known = self._to_cluster.get(epoch)
        return self._to_cluster[newest] + epoch - newest if known is None else known

    def epoch(self, epoch: int) -> int | str:
        """An epoch of the cluster in the vector; one that the vector leaves out in brackets."""
        return self._to_vector.get(epoch, f"({epoch})")

    def epochs(self, entries: Iterable[tuple[int, int]]) -> list[list[Any]]:
        """(leader epoch, start offset) of each."""
        return [[self.epoch(epoch), start] for epoch, start in entries]

    def rows(self, rows: Iterable[list[Any]]) -> list[list[Any]]:
        """[offset, value, leader epoch] of each."""
        return [[offset, value, self.epoch(epoch)] for offset, value, epoch in rows]

    def add_segment(self, symbol: str, segment: RemoteSegment) -> None:
        """A segment of the vector was copied."""
        self._symbols[segment.segment_id] = symbol
        self.segments[segment.segment_id] = segment

    def symbol(self, segment_id: bytes) -> str:
        """The vector's name of a segment, or its id if the vector does not know it."""
        return self._symbols.get(segment_id) or uuid_to_str(segment_id)


class Looker:
    """Reads states; `leader` is who led last."""

    def __init__(self, stage: Stage, turnstile: Turnstile, names: Names) -> None:
        self._stage = stage
        self._turnstile = turnstile
        self._names = names
        self._actors = [name for name in stage.ids if name not in VOTERS]
        self._metadata: list[RemoteSegment] = []

    def state(self) -> State:
        """All of it: `brokers`, `isr`, and of a tiered play `remote` and `rlmm`."""
        state: State = {
            "brokers": {name: self.broker(name) for name in self._actors},
            "isr": self._stage.in_sync,
        }
        if self._stage.is_tiered:
            self._read_metadata()
            state["remote"] = self._remote()
            state["rlmm"] = [self._described(segment) for segment in self._metadata]
        return state

    # -- brokers -----------------------------------------------------------------------------------

    def broker(self, name: str) -> State:
        """What one broker has."""
        stage, names = self._stage, self._names
        rows = records_in(stage.files, stage.log_folder(name))
        if not stage.has_replica(name):
            end = rows[-1][0] + 1 if rows else 0
            return {"role": "stopped", "leo": end, "records": names.rows(rows)}
        partition = stage.partition(name)
        log = partition.log
        bases = log.segments.base_offsets
        first = log.local_log_start_offset
        state: State = {
            "role": self._role(name),
            "leader_epoch": names.epoch(partition.leader_epoch),
            "log_start": log.log_start_offset,
            "local_start": first,
            "hw": log.high_watermark,
            "lso": log.last_stable_offset,
            "leo": log.log_end_offset,
            "records": names.rows(row for row in rows if row[0] >= first),
            "epochs": names.epochs(log.epochs.entries),
            "segments": [
                [base, end - 1]
                for base, end in zip(bases, [*bases[1:], log.log_end_offset], strict=True)
            ],
            "remote_leo": {
                stage.letters[node_id]: max(replica.log_end_offset, 0)
                for node_id, replica in partition.remotes.items()
            },
        }
        followed = self._turnstile.state(stage.ids[name], stage.topic_id)
        if followed is not None:
            state["fetch_state"] = followed.name.lower()
        if stage.is_tiered:
            snapshot = f"{log.log_end_offset:020d}.snapshot"
            if stage.files.exists(f"{stage.log_folder(name)}/{snapshot}"):
                state["producer_snapshot"] = snapshot
            state |= self._copied(name, is_leader=partition.is_leader)
        return state

    def _role(self, name: str) -> str:
        stage = self._stage
        if stage.leads(name):
            return "leader"
        return "follower" if name in stage.in_sync else "out_of_sync"

    def _copied(self, name: str, *, is_leader: bool) -> State:
        log = self._stage.partition(name).log
        if not is_leader:
            return {"highest_remote": log.highest_remote_offset}
        copied = self._stage.tiered(name).copier.copied_offset
        return {} if copied is None else {"copied_to": copied}

    # -- the remote tier ---------------------------------------------------------------------------

    def _read_metadata(self) -> None:
        """As the leader has it; while nobody leads, as it was."""
        stage = self._stage
        for name in self._actors:
            if stage.leads(name):
                metadata = stage.tier(name).metadata
                if metadata.is_ready(stage.remote_partition):
                    self._metadata = list(metadata.segments(stage.remote_partition))

    def _described(self, segment: RemoteSegment) -> State:
        return {
            "id": self._names.symbol(segment.segment_id),
            "start": segment.start_offset,
            "end": segment.end_offset,
            "epochs": self._names.epochs(segment.epochs),
            "state": segment.state.name,
        }

    def _remote(self) -> list[State]:
        """What is in the store, by its files: whole segments, and files that belong to none."""
        stage, names = self._stage, self._names
        folder = f"{stage.store_folder}/{folder_name(stage.remote_partition)}"
        left = set(stage.files.list(folder)) if stage.files.exists(folder) else set()
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
        files, names = self._stage.files, self._names
        with self._stage.tier("X").storage.fetch_index(segment, IndexKind.LEADER_EPOCH) as stream:
            checkpoint = parse_epochs(stream.read())
        return {
            "id": names.symbol(segment.segment_id),
            "start": segment.start_offset,
            "end": segment.end_offset,
            "checkpoint": names.epochs(checkpoint),
            "records": names.rows(
                rows_of(files.read_bytes(f"{folder}/{object_name(segment, LOG_ENDING)}"))
            ),
        }
