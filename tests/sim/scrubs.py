"""Rot in a replica's segments, scrubbed and repaired from another replica, by processes that die on
the way.

One broker's log on a simulated disk, damaged in seeded ways, the real `Healer` over it, and a
second replica that answers fetches as a broker does. The disk may lose power or the process die
inside of any step. Afterwards every committed record is read as it was written; without a second
replica what is damaged is refused, and all else is read.
"""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sim.history import Violation, require
from support.logs import NOW, PARTITION, SMALL, batch, open_log
from tidelog.healing.healer import Healer
from tidelog.healing.peer_copies import PeerCopies
from tidelog.simulation.disk import MachineDiedError, SimDisk
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import iter_batches
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog_storage.log import Log

FOLDER = "data/t-0"
CHECKED_FROM = 16  # after a kill, recovery goes by checksums, which leave out what is before
DAMAGES = ("flip", "flip", "header", "cut", "empty", "remove")
BROKER, OTHER = 1, 2


class _Inline:
    """An executor whose work is done at once."""

    async def run(self, function: Any, *args: Any) -> Any:
        return function(*args)


class _Channel:
    """The other replica, as a broker answers a Fetch: a consumer sees what is committed there."""

    host, port = "other", 1

    def __init__(self, play: Play) -> None:
        self.play, self.log = play, play.other

    async def ask(self, request: Any) -> Any:
        (asked,) = request.topics[0].partitions
        log = self.log
        state = request.replica_state
        is_consumer = state is None or state.replica_id == -1
        bound = log.high_watermark if is_consumer else log.log_end_offset
        offset = asked.fetch_offset
        records = b""
        if offset < bound:
            outcome = log.read(offset, asked.partition_max_bytes, upper_bound=bound)
            records = b"".join(bytes(part) for part in outcome.parts)
            self.play.gave_uncommitted |= outcome.next_offset > log.high_watermark
        answer = SimpleNamespace(error_code=0, records=records, high_watermark=log.high_watermark)
        topic = SimpleNamespace(partitions=[answer])
        return SimpleNamespace(error_code=0, responses=[topic])

    def close(self) -> None:
        """Nothing is open."""


class Play:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"{seed}:scrubs")
        self.disk = SimDisk(f"{seed}:scrubs")
        self.disk.on_death = lambda: None
        self.has_other = self.rng.random() < 0.8
        self.deaths = self.damaged = 0
        self.gave_uncommitted = False
        self.truth: dict[int, bytes] = {}  # batches by base offset
        self.log = self._open(SimDisk(f"{seed}:other"))
        self.other = self.log
        self._write()
        self.end = self.log.log_end_offset
        self.committed = self.rng.choice([self.end, self.rng.choice([*self.truth, self.end])])
        self.other.set_high_watermark(self.committed)
        self.log = self._open(self.disk)
        self._catch_up()
        self.log.flush()

    def _open(self, disk: SimDisk, **options: Any) -> Log:
        files = disk.files()
        files.make_dirs("data")
        files.fsync_dir("data")
        return open_log(files, FOLDER, SMALL, topic_id=bytes(16), **options)

    def _write(self) -> None:
        for number in range(self.rng.randint(20, 60)):
            data = batch(self.rng.randint(1, 4), timestamp=NOW + number)
            result = self.log.append_as_leader(data, leader_epoch=number // 25, now_ms=NOW)
            self.truth[result.first_offset] = bytes(data)

    def _catch_up(self) -> None:
        """Follow the other replica."""
        while self.log.log_end_offset < self.end:
            outcome = self.other.read(self.log.log_end_offset, 1 << 20, upper_bound=self.end)
            data = memoryview(bytearray(b"".join(bytes(part) for part in outcome.parts)))
            self.log.append_as_follower(data, leader_epoch=9, now_ms=NOW)
        self.log.set_high_watermark(self.committed)

    # -- damage ------------------------------------------------------------------------------------

    def damage(self) -> None:
        """Damage a file or two; what was in it is read from disk from now on."""
        segments = list(self.log.segments)
        for segment in self.rng.sample(segments, min(len(segments), self.rng.randint(1, 2))):
            path, size = segment.path(".log"), segment.size
            kind = self.rng.choice(DAMAGES)
            if not size or (segment is segments[-1] and kind in ("cut", "empty", "remove")):
                continue  # the log goes on appending there
            self.damaged += 1
            inode = self.disk.names[path]
            if kind == "remove":
                self.disk.change("remove", path)
                self.disk.sync_names()
            elif kind in ("cut", "empty"):
                left = self.rng.randrange(size) if kind == "cut" else 0
                del inode.data[left:]
                self.disk.sync(inode)
            else:
                starts = [position for position, _ in iter_batches(bytes(inode.data))]
                first = 0 if segment is not segments[-1] else CHECKED_FROM
                last = 27 if kind == "header" else 80
                within = self.rng.randrange(first, last)
                at = min(self.rng.choice(starts) + within, size - 1)
                self.disk.flip(path, at, self.rng.randrange(8))

    # -- healing -----------------------------------------------------------------------------------

    def heal(self) -> None:
        """Scrub; a process that dies in it begins again. Then all is committed, and scrubbed."""
        intact = self._intact(self.log.segments.active.base_offset)
        if self.rng.random() < 0.7:
            self.disk.die_at = self.disk.operations + self.rng.randint(1, 40)
            try:
                asyncio.run(self._scrub())
            except MachineDiedError:
                self._restart()
                lost = intact - self._intact(self.end)
                require(not lost, f"a repair that was interrupted lost the batches at {lost}")
        self.disk.die_at = None
        asyncio.run(self._scrub())
        self.committed = self.end
        self.other.set_high_watermark(self.end)
        self.log.set_high_watermark(self.end)
        asyncio.run(self._scrub())

    def _restart(self) -> None:
        self.deaths += 1
        self.disk.unwinding = False
        recovery_point = self.log.recovery_point
        if self.rng.random() < 0.5:
            self.disk.power_failure()
        else:
            self.disk.kill()
        marks = {"recovery_point": recovery_point, "high_watermark": self.committed}
        try:
            self.log = self._open(self.disk, clean=False, **marks)
        except StorageError as error:
            raise Violation(f"the log of an interrupted repair can't be loaded: {error}") from error
        if self.has_other:
            self._catch_up()

    def _intact(self, below: int) -> set[int]:
        """Base offsets of the batches on the disk that are as they were written."""
        found = set()
        for path, inode in self.disk.names.items():
            if path.endswith(".log"):
                data = bytes(inode.data)
                found |= {base for base, good in self.truth.items() if good in data}
        return {base for base in found if base < below}

    async def _scrub(self) -> None:
        log = self.log
        partition = SimpleNamespace(
            topic_partition=PARTITION, topic_id=bytes(16), log=log, leader_epoch=9
        )
        state = SimpleNamespace(isr=(BROKER, OTHER), leader=OTHER)
        replicas: Any = SimpleNamespace(
            node_id=BROKER,
            hosted=lambda _: partition,
            partitions=lambda: [partition],
            logs=SimpleNamespace(may_have_gaps=lambda _: False),
            image=SimpleNamespace(
                partition=lambda *_: state,
                is_alive=lambda _: True,
                address_of=lambda _: ("other", 1),
            ),
        )
        clock = SimpleNamespace(monotonic=lambda: 0.0, wall_ms=lambda: NOW)
        healer = Healer(
            bytes_per_second=1e15,
            runtime=SimpleNamespace(
                clock=clock, files=log.segments.first.files, executor=_Inline()
            ),
            replicas=replicas,
            peers=PeerCopies(lambda *_: _Channel(self), replicas) if self.has_other else None,
            remote=None,
        )
        await healer.scrub(partition)

    # -- the promise -------------------------------------------------------------------------------

    def check(self) -> None:
        """Read all that is committed: each batch as it was, or, if none else has it, refused."""
        log, offset = self.log, self.log.log_start_offset
        end = min(self.committed, log.log_end_offset)
        while offset < end:
            try:
                outcome = log.read(offset, 1 << 20, upper_bound=log.log_end_offset)
            except StorageError as error:
                require(error.code is ErrorCode.CORRUPT_MESSAGE, f"{error} at {offset}")
                require(not self.has_other, f"offset {offset} was not repaired: {error}")
                offset += 1
                continue
            data = b"".join(bytes(part) for part in outcome.parts)
            for position, header in iter_batches(data):
                base = header.base_offset
                good = data[position : position + header.size_in_bytes] == self.truth.get(base)
                require(good, f"the batch at {base} is another one than was written")
                require(base <= offset, f"offsets {offset} to {base - 1} were left out")
                offset = header.next_offset
        if self.has_other:
            require(offset >= self.committed, f"the log ends at {offset}, not at {self.committed}")
            require(log.log_start_offset == 0, f"the log begins at {log.log_start_offset}")
        require(not self.gave_uncommitted, "records were taken that were not committed")


def run_scrubs(seed: int) -> Play:
    """Play a seed; Violation if a promise is broken."""
    play = Play(seed)
    play.damage()
    play.heal()
    play.check()
    return play
