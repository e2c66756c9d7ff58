"""Two brokers that lead by turns, uncleanly too, and copy what they have to a remote tier."""

from __future__ import annotations

import random

from support.logs import NOW, batch, config, open_log
from support.remote import PARTITION, KnownSegments, LogView, copy_log
from support.remote_reads import InlineLoader, at_once
from tidelog.simulation.disk import SimDisk
from tidelog.tiered.reads.reader import RemoteRead, read
from tidelog_protocol.records import ControlType, build_end_transaction_marker, iter_batches
from tidelog_storage.remote.chunk_cache import ChunkCache
from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.index_cache import IndexCache
from tidelog_storage.remote.sources import Sources

SETTINGS = config(internal_segment_bytes=900, index_interval_bytes=200, retention_ms=-1)


class World:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.files = SimDisk(0).files()
        self.files.make_dirs("data")
        self.logs = [open_log(self.files, f"data/b{n}-0", SETTINGS) for n in range(2)]
        self.store = DirectoryStore(self.files, "tier")
        cache = IndexCache(self.files, "data", 1 << 30)
        cache.open(NOW)
        self.loader = InlineLoader(Sources(self.store, cache, ChunkCache(chunk_bytes=400)))
        self.metadata = KnownSegments()
        self.leader, self.epoch = 0, 0
        self.now = NOW
        self.next_id = 1
        self.sequences = [{1: 0, 2: 0}, {1: 0, 2: 0}]
        self.open: list[set[int]] = [set(), set()]

    @property
    def log(self):
        return self.logs[self.leader]

    def append(self):
        """A batch, of nobody or of a transaction that may end."""
        self.now += 10
        producer = self.rng.choice([None, None, 1, 2])
        options = {}
        if producer is not None:
            options = {
                "producer_id": producer + 10 * self.epoch,  # nobody is known to the next leader
                "producer_epoch": 0,
                "base_sequence": self.sequences[self.leader][producer],
                "transactional": True,
            }
        count = self.rng.randint(1, 3)
        data = batch(count, size=self.rng.choice([20, 120]), timestamp=self.now, **options)
        self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=self.now)
        if producer is not None:
            self.sequences[self.leader][producer] += count
            self.open[self.leader].add(producer)
            if self.rng.random() < 0.6:
                self.end(producer)

    def end(self, producer):
        marker = build_end_transaction_marker(
            self.rng.choice([ControlType.ABORT, ControlType.COMMIT]),
            producer_id=producer + 10 * self.epoch,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=self.now,
        )
        self.log.append_as_leader(
            memoryview(bytearray(marker)),
            leader_epoch=self.epoch,
            now_ms=self.now,
            from_client=False,
        )
        self.open[self.leader].discard(producer)

    def replicate(self):
        """The other one cuts what the leader does not have, and takes what it has."""
        leader, follower = self.log, self.logs[1 - self.leader]
        while follower.log_end_offset:
            latest = follower.epochs.latest_epoch
            end = leader.end_offset_for_epoch(latest)
            if end.leader_epoch == latest:
                follower.truncate_to(min(end.offset, follower.log_end_offset), self.now)
                break
            own = follower.end_offset_for_epoch(end.leader_epoch).offset if end.offset >= 0 else 0
            follower.truncate_to(max(0, min(own, end.offset, follower.log_end_offset)), self.now)
        stop = self.rng.choice([leader.log_end_offset, leader.log_end_offset // 2 + 1])
        while follower.log_end_offset < stop:
            records = leader.read(follower.log_end_offset, 500, upper_bound=leader.log_end_offset)
            data = memoryview(bytearray(b"".join(records.parts)))
            follower.append_as_follower(data, leader_epoch=self.epoch, now_ms=self.now)
        follower.set_high_watermark(min(follower.log_end_offset, leader.high_watermark))

    def elect(self):
        """The other one, in sync or not."""
        for producer in list(self.open[self.leader]):
            self.end(producer)
        if self.rng.random() < 0.5:
            self.replicate()
        self.leader = 1 - self.leader
        self.epoch += self.rng.randint(1, 2)
        self.sequences = [{1: 0, 2: 0}, {1: 0, 2: 0}]
        self.open = [set(), set()]

    def copy(self, *, all_of_it=False):
        log = self.log
        if len(log.segments) < 2:
            return
        self.log.set_high_watermark(log.log_end_offset)
        copied = copy_log(log, self.store, self.files, first_id=self.next_id)
        self.next_id += len(copied)
        if not all_of_it:
            copied = [segment for segment in copied if self.rng.random() < 0.6]
            self.rng.shuffle(copied)
        self.metadata.add(*copied)

    def play(self):
        for _ in range(self.rng.randint(8, 20)):
            for _ in range(self.rng.randint(1, 8)):
                self.append()
            verb = self.rng.random()
            if verb < 0.3:
                self.copy()
            elif verb < 0.6:
                self.replicate()
            elif verb < 0.9:
                self.copy()
                self.elect()
        for producer in list(self.open[self.leader]):
            self.end(producer)
        self.log.set_high_watermark(self.log.log_end_offset)
        for _ in range(12):
            self.append()
        for producer in list(self.open[self.leader]):
            self.end(producer)
        self.copy(all_of_it=True)
        self.log.set_high_watermark(self.log.log_end_offset)
        self.view = LogView(self.log, self.log.segments.active.base_offset)

    def read(self, offset, max_bytes):
        request = RemoteRead(PARTITION, offset, max_bytes, committed=True)
        return at_once(read(request, self.view, self.metadata, self.loader))

    def batches(self):
        """(last offset, bytes) of every batch of the log."""
        found = []
        offset = 0
        while offset < self.log.log_end_offset:
            records = self.log.read(offset, 1 << 20, upper_bound=self.log.log_end_offset)
            data = b"".join(records.parts)
            for position, header in iter_batches(data):
                found.append((header.last_offset, data[position : position + header.size_in_bytes]))
            offset = records.next_offset
        return found
