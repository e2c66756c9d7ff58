"""The manifest of an export: which offsets of a topic a destination has, and in which files.

    DEST/_tidelog/export.json          the topic, written first
    DEST/_tidelog/chunk-000007.json    the offsets up to this chunk, its files, its staging folder
    DEST/_tidelog/staging-000007-*/    a chunk that is being written
    DEST/chunk-000007-*.parquet        a chunk that is there

Spark reads no name that begins with `_`. A chunk counts once its record is written; its files are
moved out of the staging folder after that. A run that was killed in between is ended by the next
one: it moves what is left. So each offset comes into the destination exactly once.

A table (Delta, Iceberg) has its own files. Its chunk is announced (`staging-000007-*.json`), then
committed to the table under that name, then confirmed by its record. `tables.py` tells the next run
of one that was killed whether the table has it.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from tidelog_pipeline.operations.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog_pipeline.operations.folders import Folder

__all__ = ["Chunk", "Export", "Manifest", "export_in", "resumed"]

_FOLDER = "_tidelog"
_EXPORT = f"{_FOLDER}/export.json"
_VERSION = 1

Ranges = dict[int, tuple[int, int]]
"""Offsets [start, end) by partition."""


@dataclass(frozen=True, slots=True)
class Export:
    """What a destination is an export of. It never changes."""

    topic: str
    topic_id: str
    isolation_level: str
    by_date: bool
    format: str = "parquet"
    version: int = _VERSION


@dataclass(frozen=True, slots=True)
class Chunk:
    """One step. `covered` are the offsets of all chunks up to this one."""

    number: int
    covered: Ranges
    records: int  # of all chunks up to this one
    staging: str
    files: tuple[str, ...]

    def as_json(self) -> str:
        """The text of its record."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def parse(cls, text: str) -> Chunk:
        """Read a record; ValueError or KeyError for another text."""
        given = json.loads(text)
        covered = {int(each): (start, end) for each, (start, end) in given["covered"].items()}
        return cls(
            given["number"], covered, given["records"], given["staging"], tuple(given["files"])
        )


@contextmanager
def _readable(folder: Folder) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        place = folder.place(_FOLDER)
        raise OperationError(f"the manifest in {place} can't be read: {error}") from None


def export_in(folder: Folder) -> Export | None:
    """What a folder is an export of, None if it is none. OperationError if that can't be read."""
    if not folder.exists(_EXPORT):
        return None
    with _readable(folder):
        return Export(**json.loads(folder.read(_EXPORT)))


class Manifest:
    """The manifest in a destination."""

    def __init__(self, folder: Folder) -> None:
        """OperationError if the destination has other data, or a manifest that can't be read."""
        self._folder = folder
        self.export: Export | None = None
        self.last: Chunk | None = None
        self._starts: dict[int, int] = {}
        names = folder.names()
        if folder.is_file() or (names and not folder.exists(_EXPORT) and names != [_FOLDER]):
            raise OperationError(f"{folder.place()} has other data; nothing was written")
        self._load()

    def _load(self) -> None:
        chunks = [name for name in self._folder.names(_FOLDER) if _is_chunk(name)]
        self.export = export_in(self._folder)
        if chunks:
            with _readable(self._folder):
                self.last = Chunk.parse(self._folder.read(f"{_FOLDER}/{chunks[-1]}"))

    def check(self, export: Export) -> None:
        """OperationError if the destination is an export of something else."""
        if self.export is not None and self.export != export:
            there, wanted = asdict(self.export), asdict(export)
            other = next(name for name in wanted if there[name] != wanted[name])
            raise OperationError(
                f"{self._folder.place()} is an export with {other} {there[other]}, "
                f"not {wanted[other]}; nothing was written"
            )

    @property
    def covered(self) -> Ranges:
        """The offsets that the destination has."""
        return {} if self.last is None else self.last.covered

    @property
    def records(self) -> int:
        """The records that the destination has."""
        return 0 if self.last is None else self.last.records

    def begin(self, export: Export, starts: Mapping[int, int]) -> None:
        """Write the topic if it is new; end the chunk of a run before, remove what it left.

        `starts`: where a partition begins that the destination has nothing of.
        """
        self._starts = dict(starts)
        if self.export is None:
            self._folder.write(_EXPORT, json.dumps(asdict(export), indent=1))
            self.export = export
        if self.last is not None:
            self._publish(self.last)
        for name in self._folder.names(_FOLDER):
            if name.startswith("staging-"):
                self._folder.delete(f"{_FOLDER}/{name}")

    def staging(self, run: str) -> str:
        """The folder to write the next chunk to, relative to the destination."""
        return f"{_FOLDER}/staging-{self._next:06d}-{run}"

    def add(self, staging: str, ranges: Ranges, records: int) -> None:
        """Take the files of a staging folder, which have all records of these offsets."""
        files = [name for name in self._folder.all_files(staging) if name.endswith(".parquet")]
        chunk = self._following(staging, ranges)
        chunk = replace(chunk, records=chunk.records + records, files=tuple(files))
        self._record(chunk)
        self._publish(chunk)

    def announce(self, run: str, ranges: Ranges) -> Chunk:
        """Say which offsets a table is about to get."""
        chunk = self._following(self.staging(run), ranges)
        self._folder.write(f"{chunk.staging}.json", chunk.as_json())
        return chunk

    def announced(self) -> Chunk | None:
        """The chunk that a run before announced and did not confirm."""
        for name in self._folder.names(_FOLDER):
            if name.startswith("staging-") and name.endswith(".json"):
                chunk = Chunk.parse(self._folder.read(f"{_FOLDER}/{name}"))
                if chunk.number == self._next:
                    return chunk
        return None

    def confirm(self, chunk: Chunk, records: int) -> None:
        """Take an announced chunk, which the table has with this many records."""
        self._record(replace(chunk, records=chunk.records + records))
        self._folder.delete(f"{chunk.staging}.json")

    def _following(self, staging: str, ranges: Ranges) -> Chunk:
        """The next chunk, without its own records and files."""
        covered = {each: (start, start) for each, start in self._starts.items()} | self.covered
        for partition, (_, end) in ranges.items():
            covered[partition] = (covered[partition][0], end)
        return Chunk(self._next, covered, self.records, staging, ())

    def _record(self, chunk: Chunk) -> None:
        name = f"{_FOLDER}/chunk-{chunk.number:06d}.json"
        if self._folder.exists(name):
            raise OperationError(f"another export writes to {self._folder.place()}")
        self._folder.write(name, chunk.as_json())
        self.last = chunk

    @property
    def _next(self) -> int:
        return 1 if self.last is None else self.last.number + 1

    def _publish(self, chunk: Chunk) -> None:
        """Move what is still in the staging folder: a run may have been killed on the way. In an
        object store a move is a copy and a deletion, so a file may be in both places."""
        if not self._folder.exists(chunk.staging):
            return
        for number, name in enumerate(chunk.files):
            staged, target = f"{chunk.staging}/{name}", _target(chunk.number, number, name)
            if self._folder.exists(staged) and not self._folder.exists(target):
                self._folder.move(staged, target)
        self._folder.delete(chunk.staging)


def _is_chunk(name: str) -> bool:
    return name.startswith("chunk-") and name.endswith(".json")


def _target(chunk: int, number: int, name: str) -> str:
    date, slash, _ = name.rpartition("/")
    return f"{date}{slash}chunk-{chunk:06d}-{number:05d}.parquet"


def resumed(
    covered: Mapping[int, tuple[int, int]], wanted: Ranges, *, is_from_given: bool
) -> Ranges:
    """What is still to be exported of the wanted offsets; OperationError if that leaves a hole.

    Without a given start, an export goes on where it ended.
    """
    left = {}
    for partition, (start, end) in sorted(wanted.items()):
        first, after = covered.get(partition, (start, start))
        if is_from_given and not first <= start <= after:
            raise OperationError(
                f"the destination has offsets {first} to {after} of partition {partition}: "
                f"an export from {start} does not go on there"
            )
        if after < end:
            left[partition] = (after, end)
    return left
