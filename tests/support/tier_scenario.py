"""Plays the specification's KIP-405 scenarios on logs, a store and the parts of the remote tier.

Brokers are logs; who leads and what is fetched, the vector says. What decides here is the storage
room: lineage, copies, their metadata, reads, expiry, and the restart behind the remote part. High
watermarks and ISRs are the broker's and not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.logs import NOW, config
from support.remote import KnownSegments
from support.remote_reads import InlineLoader, at_once
from support.remote_vectors import PARTITION, pairs, segment_id, symbol, update_of
from tidelog.tiered.reads.reader import RemoteRead, read
from tidelog_protocol.records import Record, build_batch, iter_batches, iter_records
from tidelog_storage.checkpoints import parse_epochs
from tidelog_storage.config import LogConfig
from tidelog_storage.manager import LogManager
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.producer_snapshot import format_snapshot
from tidelog_storage.remote import lineage
from tidelog_storage.remote.api import IndexKind, SegmentState
from tidelog_storage.remote.chunk_cache import ChunkCache
from tidelog_storage.remote.copier import candidates
from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.expiry import LogExtent, RemoteRetention, plan
from tidelog_storage.remote.index_cache import IndexCache
from tidelog_storage.remote.layout import MANIFEST_ENDING, folder_name
from tidelog_storage.remote.metadata_cache import PartitionMetadata
from tidelog_storage.remote.sources import Sources
from tidelog_storage.types import InRemoteTier, Records, TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog_storage.log import Log
    from tidelog_storage.remote.copier import CopyCandidate

CONFIG = config(remote_storage_enable=True, local_retention_bytes=1, retention_ms=-1)
FINISHED = SegmentState.COPY_SEGMENT_FINISHED


def rows(data: bytes) -> list[list[Any]]:
    """[offset, value, leader epoch] of each record."""
    return [
        [record.offset, (record.value or b"").decode(), header.leader_epoch]
        for position, header in iter_batches(data)
        for record in iter_records(data[position : position + header.size_in_bytes])
    ]


class Node:
    """One broker's log. It rolls at the offsets where the vector has segments of it end."""

    def __init__(self, folder: Path, rolls: set[int]) -> None:
        self.folder = folder
        self.rolls = rolls
        self.leader_epoch = 0
        self.copied: int | None = None
        self.life = 0
        self.begin()

    def begin(self) -> None:
        """A disk with nothing on it."""
        self.life += 1
        home = self.folder / str(self.life)
        home.mkdir(parents=True)
        logs = LogManager(
            OsFileSystem(), [str(home)], LogConfig(), remote_storage_system_enable=True
        )
        logs.open(now_ms=NOW, cluster_id="c", node_id=1, new_directory_id=lambda: b"d" * 16)
        self.logs = logs
        self.log: Log = logs.create(TopicPartition("t", 0), PARTITION.topic_id.bytes, CONFIG)

    def set_up(self, facts: dict[str, Any]) -> None:
        self.leader_epoch = facts.get("leader_epoch", 0)
        if facts["local_start"] > 0:
            before = [entry for entry in facts["epochs"] if entry[1] < facts["local_start"]]
            self.log.restart_from_remote(
                facts["local_start"],
                log_start=facts["log_start"],
                epochs=pairs(before),
                snapshot=format_snapshot([]),
                now_ms=NOW,
            )
        self.follow(facts["records"])

    def follow(self, records: list[list[Any]]) -> None:
        for offset, value, epoch in records:
            data = build_batch(
                [Record(offset, NOW, None, value.encode())], base_offset=offset, leader_epoch=epoch
            )
            self.log.append_as_follower(memoryview(data), leader_epoch=epoch, now_ms=NOW)
            self.grown()

    def produce(self, value: str) -> None:
        data = bytearray(build_batch([Record(0, NOW, None, value.encode())]))
        self.log.append_as_leader(memoryview(data), leader_epoch=self.leader_epoch, now_ms=NOW)
        self.grown()

    def grown(self) -> None:
        self.log.set_high_watermark(self.log.log_end_offset)
        if self.log.log_end_offset in self.rolls:
            self.log.roll(NOW)

    def local_records(self, start: int | None = None) -> list[list[Any]]:
        log = self.log
        offset = log.local_log_start_offset if start is None else start
        found: list[list[Any]] = []
        while offset < log.log_end_offset:
            outcome = log.read(offset, 1 << 20, upper_bound=log.log_end_offset)
            assert isinstance(outcome, Records), outcome
            found += rows(b"".join(outcome.parts))
            offset = outcome.next_offset
        return found

    def diverging(self, offset: int, last_fetched_epoch: int | None) -> dict[str, int] | None:
        if last_fetched_epoch is None or last_fetched_epoch < 0:
            return None
        end = self.log.end_offset_for_epoch(last_fetched_epoch)
        if end.leader_epoch == last_fetched_epoch and end.offset >= offset:
            return None
        return {"epoch": end.leader_epoch, "end_offset": end.offset}


class TierScenario:
    """One vector of kind cluster."""

    def __init__(self, document: dict[str, Any], folder: Path) -> None:
        self.steps = document["steps"]
        given = document["given"]
        self.folder = folder / "tier"
        self.store = DirectoryStore(OsFileSystem(), str(self.folder))
        self.metadata = PartitionMetadata(PARTITION)
        self.known = KnownSegments()
        self.known.of[PARTITION] = self.metadata
        cache = IndexCache(OsFileSystem(), str(folder), 1 << 30)
        cache.open(NOW)
        chunks = ChunkCache(1 << 20, chunk_bytes=1 << 16)
        self.loader = InlineLoader(Sources(self.store, cache, chunks))
        self.nodes = {
            name: Node(folder / name, self._rolls_of(name, facts))
            for name, facts in given["brokers"].items()
        }
        for name, facts in given["brokers"].items():
            self.nodes[name].set_up(facts)
        epochs = {facts["id"]: facts["epochs"] for facts in given["rlmm"]}
        for facts in given["remote"]:
            node = Node(folder / facts["id"], {facts["end"] + 1})
            local = {"log_start": 0, "local_start": facts["start"], "epochs": facts["checkpoint"]}
            node.set_up(local | {"records": facts["records"]})
            (candidate,) = candidates(node.log, facts["start"] - 1, NOW)
            assert candidate.epochs == pairs(epochs[facts["id"]])
            self._ship(node, candidate, facts["id"])

    def _rolls_of(self, name: str, facts: dict[str, Any]) -> set[int]:
        found = {last + 1 for _, last in facts.get("segments", [])}
        for step in self.steps:
            action = step["do"]
            if action.get("broker") == name:
                found |= {action[key] for key in ("start", "at", "before") if key in action}
                if "end" in action:
                    found.add(action["end"] + 1)
        return found

    def _ship(self, node: Node, candidate: CopyCandidate, name: str) -> None:
        segment = candidate.started(PARTITION, segment_id(name), 1, NOW)
        node.log.flush()
        held = node.log.segments.floor(candidate.start_offset)
        assert held is not None
        node.log.sealed_files(held)
        assert self.metadata.apply(segment)
        self.store.copy_segment(segment, candidate.files)
        assert self.metadata.apply(update_of(segment, FINISHED))
        node.log.set_highest_remote_offset(segment.end_offset)

    # -- steps -------------------------------------------------------------------------------------

    def play(self) -> int:
        """All steps; how many replies and states were compared."""
        compared = 0
        for step in self.steps:
            action = dict(step["do"])
            reply = getattr(self, f"do_{action.pop('action')}")(**action)
            for key, wanted in step.get("reply", {}).items():
                if reply is not None and key in reply:
                    assert reply[key] == wanted, (step.get("name"), key)
                    compared += 1
            for name, facts in step.get("expect", {}).get("brokers", {}).items():
                compared += self.check_broker(name, facts, step)
            compared += self.check_remote(step.get("expect", {}))
        return compared

    def check_broker(self, name: str, facts: dict[str, Any], step: dict[str, Any]) -> int:
        node = self.nodes[name]
        log = node.log
        found = {
            "log_start": log.log_start_offset,
            "local_start": log.local_log_start_offset,
            "leo": log.log_end_offset,
            "records": node.local_records(),
            "epochs": [list(entry) for entry in log.epochs.entries],
            "copied_to": node.copied,
            "leader_epoch": node.leader_epoch,
            "segments": [
                [base, end - 1]
                for base, end in zip(
                    log.segments.base_offsets,
                    [*log.segments.base_offsets[1:], log.log_end_offset],
                    strict=True,
                )
            ],
        }
        if snapshot := facts.get("producer_snapshot"):
            assert OsFileSystem().exists(f"{log.folder}/{snapshot}")
        compared = [key for key in facts if key in found]
        for key in compared:
            assert found[key] == facts[key], (step.get("name"), name, key)
        return len(compared)

    def check_remote(self, expect: dict[str, Any]) -> int:
        segments = {symbol(each): each for each in self.metadata.segments()}
        if "rlmm" in expect:
            assert {facts["id"] for facts in expect["rlmm"]} == set(segments)
        for facts in expect.get("rlmm", []):
            segment = segments[facts["id"]]
            assert (segment.start_offset, segment.end_offset) == (facts["start"], facts["end"])
            assert segment.epochs == pairs(facts["epochs"])
            assert segment.state.name == facts["state"]
        if "remote" in expect:
            files, folder = OsFileSystem(), f"{self.folder}/{folder_name(PARTITION)}"
            found = files.list(folder) if files.exists(folder) else []
            assert sum(name.endswith(MANIFEST_ENDING) for name in found) == len(expect["remote"])
            assert expect["remote"] or found == []
        for facts in expect.get("remote", []):
            segment = segments[facts["id"]]
            assert (segment.start_offset, segment.end_offset) == (facts["start"], facts["end"])
            with self.store.fetch_index(segment, IndexKind.LEADER_EPOCH) as stream:
                checkpoint = [list(entry) for entry in parse_epochs(stream.read())]
            assert checkpoint == facts.get("checkpoint", checkpoint)
            with self.store.fetch_segment(segment, 0) as stream:
                records = rows(stream.read())
            assert records == facts.get("records", records)
        return len(expect.get("rlmm", [])) + len(expect.get("remote", []))

    # -- actions -----------------------------------------------------------------------------------

    def do_stop(self, brokers: list[str]) -> None:
        """Its log stays as it is."""

    do_isr = do_config = do_stop

    def do_crash(self, brokers: list[str], lost_from: dict[str, int]) -> None:
        for name, offset in lost_from.items():
            self.nodes[name].log.truncate_to(offset, NOW)

    def do_start(self, broker: str, wipe: bool = False) -> None:
        if wipe:
            self.nodes[broker].begin()

    def do_elect(self, leader: str, epoch: int, **_: Any) -> None:
        node = self.nodes[leader]
        node.leader_epoch = epoch
        node.log.assign_epoch(epoch)
        node.copied = None
        self.find_positions(node)

    def find_positions(self, node: Node) -> None:
        log = node.log
        start = lineage.find_log_start(
            log.epochs.entries, log.local_log_start_offset, self.metadata.segments
        )
        log.set_high_watermark(log.log_end_offset)
        log.maybe_increment_log_start(start, "remote log start")
        epochs = log.epochs.entries
        copied = lineage.copied_up_to(epochs, log.log_end_offset, self.metadata.highest_offset)
        node.copied = lineage.kept_up_to(
            copied.offset,
            epochs,
            log.local_log_start_offset,
            log.log_end_offset,
            self.metadata.segment_for,
        )
        log.reset_highest_remote_offset(node.copied)

    def do_produce(self, broker: str, values: list[str], **_: Any) -> None:
        for value in values:
            self.nodes[broker].produce(value)

    def do_roll(self, broker: str, at: int) -> None:
        assert at in self.nodes[broker].log.segments.base_offsets

    def do_run(self, task: str, broker: str) -> None:
        node = self.nodes[broker]
        if task == "find_copied_offset":
            self.find_positions(node)
            return
        assert task == "remote_expiration"
        log = node.log
        retention = RemoteRetention.of(log.config)
        found = plan(self.metadata.segments(), LogExtent.of(log), retention, now_ms=NOW)
        log.maybe_increment_log_start(found.new_log_start, "expired")
        for segment in found.deletions:
            assert self.metadata.apply(update_of(segment, SegmentState.DELETE_SEGMENT_STARTED))
            self.store.delete_segment(segment)
            assert self.metadata.apply(update_of(segment, SegmentState.DELETE_SEGMENT_FINISHED))

    def do_copy(self, broker: str, segment: str, start: int, end: int) -> None:
        node = self.nodes[broker]
        if node.copied is None:
            self.find_positions(node)
        assert node.copied is not None
        candidate = candidates(node.log, node.copied, NOW)[0]
        assert (candidate.start_offset, candidate.end_offset) == (start, end)
        self._ship(node, candidate, segment)
        node.copied = end

    def do_delete_local(self, broker: str, before: int) -> None:
        log = self.nodes[broker].log
        log.delete_old_segments(NOW)
        assert log.local_log_start_offset == before

    def do_delete_records(self, broker: str, before: int) -> None:
        self.nodes[broker].log.maybe_increment_log_start(before, "DeleteRecords")

    # -- questions ---------------------------------------------------------------------------------

    def do_list_offsets(self, broker: str, timestamp: int, **_: Any) -> dict[str, Any]:
        log = self.nodes[broker].log
        offset = {-2: log.log_start_offset, -4: log.local_log_start_offset}[timestamp]
        return {"offset": offset, "leader_epoch": log.epochs.epoch_for_offset(offset)}

    def do_offset_for_leader_epoch(
        self, broker: str, leader_epoch: int, **_: Any
    ) -> dict[str, Any]:
        end = self.nodes[broker].log.end_offset_for_epoch(leader_epoch)
        return {"leader_epoch": end.leader_epoch, "end_offset": end.offset}

    def do_metadata_lookup(self, epoch: int, offset: int, **_: Any) -> dict[str, Any]:
        found = self.metadata.segment_for(epoch, offset)
        return {"segment": None if found is None else symbol(found)}

    def do_build_aux_state(self, follower: str, from_segment: str) -> None:
        leader = max(self.nodes.values(), key=lambda node: node.leader_epoch).log
        start = leader.local_log_start_offset
        epoch = leader.epochs.epoch_for_offset(start)
        assert epoch is not None
        end = leader.end_offset_for_epoch(epoch - 1)
        target = lineage.target_epoch(start, epoch, (end.leader_epoch, end.offset))
        found = lineage.aux_segment(self.metadata.segments(target), target, start - 1)
        assert found is not None
        assert symbol(found) == from_segment
        with self.store.fetch_index(found, IndexKind.LEADER_EPOCH) as stream:
            epochs = parse_epochs(stream.read())
        with self.store.fetch_index(found, IndexKind.PRODUCER_SNAPSHOT) as stream:
            snapshot = stream.read()
        self.nodes[follower].log.restart_from_remote(
            found.end_offset + 1,
            log_start=leader.log_start_offset,
            epochs=epochs,
            snapshot=snapshot,
            now_ms=NOW,
        )

    def do_follower_fetch(
        self, follower: str, leader: str, offset: int, last_fetched_epoch: int, **_: Any
    ) -> dict[str, Any]:
        node, source = self.nodes[follower], self.nodes[leader]
        assert node.log.log_end_offset == offset
        diverging = source.diverging(offset, last_fetched_epoch)
        if diverging is not None:
            own = node.log.end_offset_for_epoch(diverging["epoch"])
            node.log.truncate_to(min(diverging["end_offset"], own.offset), NOW)
            return {"error": "NONE", "records": [], "diverging": diverging}
        outcome = source.log.read(offset, 1, upper_bound=source.log.log_end_offset)
        if isinstance(outcome, InRemoteTier):
            return {"error": "OFFSET_MOVED_TO_TIERED_STORAGE", "records": []}
        records = source.local_records(offset)
        node.follow(records)
        return {"error": "NONE", "records": records}

    def do_consumer_fetch(
        self, broker: str, offset: int, last_fetched_epoch: int | None = None
    ) -> dict[str, Any]:
        node = self.nodes[broker]
        diverging = node.diverging(offset, last_fetched_epoch)
        if diverging is not None:
            return {"error": "NONE", "records": [], "diverging": diverging}
        outcome = node.log.read(offset, 1 << 20, upper_bound=node.log.log_end_offset)
        assert isinstance(outcome, InRemoteTier)
        request = RemoteRead(PARTITION, offset, 1 << 20)
        found = at_once(read(request, node.log, self.known, self.loader))
        records = rows(b"".join(found.parts))
        assert found.place is not None
        return {
            "error": "NONE",
            "from": "remote",
            "segments": [symbol(found.place[0])],
            "records": records,
            "first_record": records[0],
        }
