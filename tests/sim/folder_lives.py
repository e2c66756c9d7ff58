"""A broker's log directory over many lives, which end inside of file operations: topics come and go
while it runs and while it is away, and somebody else keeps folders of his own beside the logs.

Nothing of somebody else's is ever touched. A log has records of its own topic alone. What the
metadata does not know when the broker starts is kept, under whatever name. A log that somebody
removed does not come back empty.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sim.history import require
from sim.raw_logs import read_log
from support.data_path import ManualClock, ManualTimers
from support.logs import NOW, config
from support.metadata import names_by_id
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidelog.replication.partition import Partition
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.simulation.disk import MachineDiedError, SimDisk
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.folders import scan
from tidelog_storage.manager import LogManager
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from tidelog_storage.log import Log

DATA = "data"
NAMES = ("a", "b")
SETTINGS = config(internal_segment_bytes=600, file_delete_delay_ms=100)
LIVES = 6
STEPS_MAX = 8


class FolderLives:
    """A seed's lives of one directory."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"{seed}:folders")
        self.disk = SimDisk(f"{seed}:folders")
        self.disk.on_death = self.disk.kill
        self.topics: dict[str, TopicImage] = {}
        self.foreign: dict[str, bytes] = {}
        self.kept: dict[bytes, bytes] = {}  # topic ids that the metadata forgot, and their bytes
        self.now_ms = NOW
        self.deaths = self.strays = 0
        self.has_started = self.was_orderly = False
        self.lost: set[bytes] = set()  # topic ids whose log somebody removed
        self._made = 0

    def run(self) -> None:
        """All lives; Violation if a promise is broken."""
        for _ in range(LIVES):
            self._while_away()
            try:
                self._start(may_die=True)
                for _ in range(self.rng.randint(1, STEPS_MAX)):
                    self._step()
                self._end()
            except MachineDiedError:
                self.deaths += 1
                self.disk.unwinding = False
            self.disk.die_at = None
        self._start(may_die=False)

    # -- while it is away --------------------------------------------------------------------------

    def _while_away(self) -> None:
        for inode in list(self.disk.names.values()):
            self.disk.sync(inode)  # by the operating system, sooner or later
        for name in NAMES if self.has_started else ():  # a new disk has no replicas
            if self.rng.random() < 0.3 and not self._is_lost(name):
                self._forget(name)
            if name not in self.topics and self.rng.random() < 0.3:
                self._add(name)
        if self.was_orderly and self.rng.random() < 0.3:
            self._lose(self.rng.choice(NAMES))
        if self.rng.random() < 0.4:
            name = f"{self.rng.choice(NAMES)}-{self.rng.randint(1, 3)}"
            path = f"{DATA}/{name}/main.py"
            files = self.disk.files()
            files.make_dirs(f"{DATA}/{name}")
            files.write_atomic(path, b"mine")
            self.foreign[path] = b"mine"

    def _is_lost(self, name: str) -> bool:
        """The next topic of the name would count as lost too, as its id is not in the files."""
        return name in self.topics and self.topics[name].topic_id in self.lost

    def _lose(self, name: str) -> None:
        """Somebody removes a log that has records."""
        topic, folder = self.topics.get(name), f"{DATA}/{name}-0"
        if topic is None or not read_log(self.disk, folder).batches():
            return
        if scan(self.disk.files(), DATA).current.get(TopicPartition(name, 0)) == topic.topic_id:
            self.disk.files().remove_tree(folder)
            self.lost.add(topic.topic_id)

    def _forget(self, name: str) -> None:
        """The metadata has it no more, and this broker did not hear why."""
        topic = self.topics.pop(name, None)
        if topic is None:
            return
        records = [one.data for one in read_log(self.disk, f"{DATA}/{name}-0").batches()]
        if records:
            self.kept[topic.topic_id] = b"".join(map(bytes, records))

    def _add(self, name: str) -> None:
        self._made += 1
        topic_id = bytes([self._made]) * 16
        state = PartitionImage(0, 1, 0, 0, (1,), (1,))
        self.topics[name] = TopicImage(name, topic_id, (state,))

    # -- lives -------------------------------------------------------------------------------------

    def _image(self) -> ClusterImage:
        brokers = {1: BrokerImage(1, "h", 1)}
        topics = dict(self.topics)
        return ClusterImage("c", brokers=brokers, topics=topics, topic_names=names_by_id(topics))

    def _start(self, *, may_die: bool) -> None:
        if may_die and self.rng.random() < 0.2:
            self.disk.die_at = self.disk.operations + self.rng.randint(1, 10)
        self.logs = LogManager(self.disk.files(), [DATA], SETTINGS)
        self.logs.open(now_ms=NOW, cluster_id="c", node_id=1, new_directory_id=lambda: b"d" * 16)
        clock = ManualClock()
        timers = ManualTimers(clock)
        self.replicas = ReplicaManager(1, clock, timers, self.logs, lambda *_: SETTINGS)
        self.image = self._image()
        self.replicas.apply(MetadataDelta(None, self.image), self.image)
        self.has_started, self.was_orderly = True, False
        self._check()

    def _end(self) -> None:
        if self.rng.random() < 0.5:
            self.logs.shutdown(self.now_ms)
            self.was_orderly = True
        elif self.rng.random() < 0.5:
            self.disk.kill()
        else:
            for log in self._own().values():
                log.flush()
            self.disk.power_failure()

    def _step(self) -> None:
        if self.rng.random() < 0.3:
            self.disk.die_at = self.disk.operations + self.rng.randint(1, 8)
        name = self.rng.choice(NAMES)
        match self.rng.choice(("append", "append", "append", "come or go", "checkpoint", "later")):
            case "append" if name in self._own():
                log = self._own()[name]
                value = b"record of %s" % log.topic_id.hex().encode()  # type: ignore[union-attr]
                batch = build_batch([Record(0, NOW, None, value), Record(1, NOW, None, value)])
                records = memoryview(bytearray(batch))
                log.append_as_leader(records, now_ms=self.now_ms, leader_epoch=0)
                log.set_high_watermark(log.log_end_offset)
            case "come or go" if not self._is_lost(name):
                if self.topics.pop(name, None) is None:
                    self._add(name)
                old, self.image = self.image, self._image()
                self.replicas.apply(MetadataDelta(old, self.image), self.image)
            case "checkpoint":
                self.logs.upkeep.prepare_checkpoints()()
            case _:
                self.now_ms += 60
                for remove in filter(None, self.logs.upkeep.prepare_removals(self.now_ms)):
                    remove()
        self.disk.die_at = None
        self._check()

    def _own(self) -> dict[str, Log]:
        """Open logs by topic."""
        found = {name: self.replicas.partition(name, 0) for name in self.topics}
        return {name: one.log for name, one in found.items() if isinstance(one, Partition)}

    # -- promises ----------------------------------------------------------------------------------

    def _check(self) -> None:
        names = self.disk.names
        for path, data in self.foreign.items():
            require(path in names and bytes(names[path].data) == data, f"{path} was touched")
        for name, topic in self.topics.items():
            own = topic.topic_id.hex().encode()
            for one in read_log(self.disk, f"{DATA}/{name}-0").batches():
                values = [record.value or b"" for record in one.records()]
                require(
                    all(value.endswith(own) for value in values),
                    f"{name} of {topic.topic_id.hex()} has {values}",
                )
        known = {name for name, topic in self.topics.items() if topic.topic_id not in self.lost}
        require(self._own().keys() == known, f"{sorted(known)}, and {sorted(self._own())} open")
        contents: dict[str, bytes] = {}
        for path in sorted(names):
            folder = path.rpartition("/")[0]
            if path.endswith(".log"):
                contents[folder] = contents.get(folder, b"") + bytes(names[path].data)
        for topic_id, data in self.kept.items():
            is_kept = any(data in content for content in contents.values())
            require(is_kept, f"{topic_id.hex()} is not kept")
        self.strays = sum(name.endswith("-stray") for name in self.disk.folders)


def run_folder_lives(seed: int) -> FolderLives:
    """All lives of a seed."""
    lives = FolderLives(seed)
    lives.run()
    return lives
