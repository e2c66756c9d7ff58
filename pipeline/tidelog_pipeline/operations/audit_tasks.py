"""The work of an audit's tasks: each reads one place of a partition, batch by batch.

A remote segment is read from the store. What a consumer gets is then compared with it: all that is
at the brokers as well, and of the rest some batches, or all if asked. Memory: a range of bytes, and
16 bytes a batch.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidelog.embedded.cluster_settings import ClusterError
from tidelog_pipeline.history.segments import remote_headers
from tidelog_pipeline.operations.errors import OperationError
from tidelog_pipeline.operations.scan import Scan
from tidelog_protocol.batch import crc_is_valid
from tidelog_protocol.errors import ProtocolError, error_name
from tidelog_protocol.records import iter_batches
from tidelog_storage.remote.api import RemoteResourceNotFound, RemoteStorageError
from tidelog_storage.remote.checks import UnreadableStoreError, check_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidelog_pipeline.history.planner import LivePart
    from tidelog_pipeline.history.reader import ReadSettings
    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.remote.api import RemoteStorage

__all__ = ["Checked", "Unit", "check_all"]

LOCAL_BYTES = 64 << 20  # of one unit that the brokers serve
CHECKED_BYTES_MAX = 128 << 20  # of a segment whose indexes are checked as well: it is read whole


@dataclass(frozen=True, slots=True)
class Unit:
    """One place: offsets [start, end) of a remote part, or of what only the brokers have."""

    topic: str
    topic_id: bytes = field(repr=False)
    partition: int
    start: int
    end: int
    local_start: int
    part: LivePart | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """What no other unit of the topic is called, at any time."""
        segment = self.part.segment.segment_id if self.part else "local"
        return f"{self.partition} {self.start} {self.end} {segment}"

    @property
    def size(self) -> int:
        """Estimated bytes."""
        return self.part.segment.size if self.part else LOCAL_BYTES


@dataclass(slots=True)
class Checked:
    """What a task found. `is_gone`: the place gave nothing from an offset on, and why."""

    unit: Unit
    scan: Scan
    compared: int = 0  # batches that a consumer got, too
    differing: list[str] = field(default_factory=list)
    is_gone: bool = False
    gone_from: int = 0
    why: str = ""
    is_shallow: bool = False  # its indexes were not checked

    @property
    def is_lasting(self) -> bool:
        """Whether a later run finds the same: a remote segment that is sound."""
        is_sound = not (self.is_gone or self.differing or self.scan.faults)
        return self.unit.part is not None and is_sound

    def as_json(self) -> dict[str, Any]:
        """Plain values, if it is lasting."""
        return {
            "scan": self.scan.as_json(),
            "compared": self.compared,
            "isShallow": self.is_shallow,
        }

    @classmethod
    def from_json(cls, unit: Unit, given: dict[str, Any]) -> Checked:
        """From `as_json`."""
        scan = Scan.from_json(given["scan"])
        return cls(unit, scan, given["compared"], is_shallow=given["isShallow"])


def check_all(
    units: Iterable[Unit], settings: ReadSettings, *, compares_all: bool
) -> Iterator[Checked]:
    """Check these places, over one set of connections."""
    with closing(_Checker(settings, compares_all=compares_all)) as checker:
        for unit in units:
            yield checker.check(unit)


class _Checker:
    """The connections of one task."""

    def __init__(self, settings: ReadSettings, *, compares_all: bool) -> None:
        self._client = settings.connect()
        self._settings = settings
        self._compares_all = compares_all
        self._opened: RemoteStorage | None = None

    def close(self) -> None:
        self._client.close()
        if self._opened is not None:
            self._opened.close()

    def check(self, unit: Unit) -> Checked:
        checked = Checked(unit, Scan(unit.start, unit.end))
        try:
            if unit.part is None:
                self._check_local(checked)
            else:
                self._check_remote(checked, unit.part)
            checked.scan.finish()
        except RemoteResourceNotFound:
            _note_end(checked, unit.start, "the segment's object is not there")
        except _GoneError as error:
            _note_end(checked, error.offset, str(error))
        except (RemoteStorageError, ProtocolError) as error:
            checked.scan.fault(str(error))
        return checked

    # ---- the remote tier -------------------------------------------------------------------------

    @property
    def _store(self) -> RemoteStorage:
        if self._opened is None:
            self._opened = self._settings.open_store()
        return self._opened

    def _check_remote(self, checked: Checked, part: LivePart) -> None:
        unit, scan = checked.unit, checked.scan
        checked.is_shallow = part.segment.size > CHECKED_BYTES_MAX
        if not checked.is_shallow:
            self._check_objects(scan, part)
        seen: dict[int, int] = {}
        bounds = unit.start, unit.end
        for header, data, inside in remote_headers(self._store, part.segment, bounds):
            if checked.is_shallow:
                _check_crc(scan, header, data, inside)
            scan.add(header)
            seen[header.base_offset] = header.crc
        if scan.faults:  # a broker serves no damaged segment
            return
        try:
            self._compare(checked, seen)
        except ClusterError as error:
            checked.differing.append(f"a consumer gets an error: {error}")

    def _check_objects(self, scan: Scan, part: LivePart) -> None:
        """The segment's bytes and indexes, by themselves and against its metadata."""
        try:
            faults = check_segment(self._store, part.segment)
        except UnreadableStoreError as error:
            raise OperationError(f"the remote tier can't be read: {error}") from None
        for fault in faults:
            scan.fault(f"segment {part.segment.segment_id}: {fault}")

    def _compare(self, checked: Checked, seen: dict[int, int]) -> None:
        """Ask as a consumer does; compare checksums batch by batch."""
        unit = checked.unit
        border = unit.start if self._compares_all else max(unit.start, unit.local_start)
        if border > unit.start and seen:
            for offset in {unit.start, (unit.start + min(border, unit.end)) // 2}:
                headers = [header for header, _, _ in self._fetched(unit, offset, is_one=True)]
                _compare(checked, seen, [each for each in headers if each.base_offset < border])
        if border < unit.end:
            got = []
            for header, _, _ in self._fetched(unit, border):
                _compare(checked, seen, [header])
                got.append(header.base_offset)
            for lacking in sorted(set(seen) - set(got)):
                if lacking >= border:
                    checked.differing.append(f"a consumer does not get the batch at {lacking}")

    # ---- the brokers -----------------------------------------------------------------------------

    def _check_local(self, checked: Checked) -> None:
        for header, data, inside in self._fetched(checked.unit, checked.unit.start):
            _check_crc(checked.scan, header, data, inside)
            checked.scan.add(header)

    def _fetched(
        self, unit: Unit, offset: int, *, is_one: bool = False
    ) -> Iterator[tuple[BatchHeader, Any, int]]:
        """The batches that a consumer gets from an offset on, or of one answer."""
        while offset < unit.end:
            size = {"size": 1} if is_one else {}
            answer = self._client.fetch(unit.topic, unit.topic_id, unit.partition, offset, **size)
            if answer.error_code:
                raise _GoneError(offset, error_name(answer.error_code))
            before = offset
            data = answer.records or b""
            for inside, header in iter_batches(data):
                if header.base_offset >= unit.end:
                    return
                yield header, data, inside
                offset = max(offset, header.next_offset)
            if is_one:
                return
            if offset == before:  # what was there is gone: the log ends here
                raise _GoneError(offset, "no records")


class _GoneError(Exception):
    """A consumer gets nothing from an offset on."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"a consumer gets {why} at offset {offset}")
        self.offset = offset


def _note_end(checked: Checked, offset: int, why: str) -> None:
    """The place gives nothing from this offset on."""
    checked.is_gone, checked.gone_from, checked.why = True, offset, why
    checked.scan.end = max(checked.scan.start, offset)
    checked.scan.finish()


def _check_crc(scan: Scan, header: BatchHeader, data: Any, inside: int) -> None:
    if not crc_is_valid(data, header, inside):
        scan.fault(f"the batch at {header.base_offset} has a bad checksum")


def _compare(checked: Checked, seen: dict[int, int], headers: Iterable[BatchHeader]) -> None:
    for header in headers:
        checked.compared += 1
        crc = seen.get(header.base_offset)
        if crc != header.crc:
            what = "another batch" if crc is not None else "a batch that the tier has not"
            checked.differing.append(f"a consumer gets {what} at {header.base_offset}")
