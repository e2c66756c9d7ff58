"""What must hold of a compacted log on several brokers: each cleans its own, when it likes.

Batches so differ from replica to replica. A record that is there at all is the same everywhere, and
the newest of a key is on every replica that has come so far. (Where deletions are forgotten that is
not known: the last record of a key goes, too, and perhaps nobody looked meanwhile.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.history import Violation, require
from sim.raw_logs import read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.simulation.machine import Machine

Content = tuple[bytes | None, bytes | None, int]  # key, value, producer id


class Compacted:
    """Records of one log that were below a high watermark, by offset."""

    def __init__(
        self, name: str, *, has_deletions: bool, take_all: Callable[[], None] = lambda: None
    ) -> None:
        """`take_all` takes what every replica has: a newer record of a key may be on its leader
        alone, which has removed the older one before a follower fetched either."""
        self.name, self.has_deletions = name, has_deletions
        self._take_all = take_all
        self.records: dict[int, Content] = {}
        self.batches: dict[int, bytes] = {}  # none of them has to stay
        self._newest: dict[bytes | None, int] = {}  # offsets by key

    def compare(
        self, machine: Machine, folder: str, high_watermark: int, log_start_offset: int = 0
    ) -> None:
        """Take or compare what one replica has below its high watermark, and not below its log
        start; it has the newest of each key."""
        found = self.take(machine, folder, high_watermark, log_start_offset)
        if not self.has_deletions and found is not None:
            if any(self._misses(found, high_watermark)):
                self._take_all()
            for key, offset in self._misses(found, high_watermark):
                # A leader's high watermark may fall when it follows. What it has cleaned until then
                # it has for a newer record, unless it loses that one, too.
                if key in self._keys_from(machine, folder, high_watermark):
                    continue
                text = f"the newest of {key!r}, at {offset}, is gone"
                raise Violation(f"{self.name} on {machine.host}: {text}")

    def take(
        self, machine: Machine, folder: str, high_watermark: int, log_start_offset: int = 0
    ) -> set[int] | None:
        """Take or compare records; return their offsets, or None if the end of the log is torn."""
        log = read_log(machine.disk, folder)
        found: set[int] = set()
        for batch in log.batches():
            header = batch.header
            if header.last_offset >= high_watermark:
                break
            if header.last_offset < log_start_offset:
                continue
            for record in batch.records():
                content = (record.key, record.value, header.producer_id)
                known = self.records.setdefault(record.offset, content)
                require(
                    known == content,
                    f"{self.name}: replicas differ below the high watermark, at {record.offset} on"
                    f" {machine.host}: {known} and {content}",
                )
                found.add(record.offset)
                self._newest[record.key] = max(self._newest.get(record.key, -1), record.offset)
        return None if any(log.torn.values()) else found

    def _keys_from(self, machine: Machine, folder: str, offset: int) -> set[bytes | None]:
        """Return the keys of records at or after this offset."""
        batches = read_log(machine.disk, folder).batches()
        later = (each for each in batches if each.header.last_offset >= offset)
        return {record.key for batch in later for record in batch.records()}

    def _misses(self, found: set[int], high_watermark: int) -> Iterator[tuple[bytes | None, int]]:
        for key, offset in self._newest.items():
            if offset < high_watermark and offset not in found:
                yield key, offset
