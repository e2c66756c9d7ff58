"""The manifest of an export, over a folder that fails at any one of its operations."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tidelog_pipeline.operations.errors import OperationError, sentence_of
from tidelog_pipeline.operations.manifest import Export, Manifest, resumed
from tidelog_pipeline.operations.tables import Commits, settle

if TYPE_CHECKING:
    from pathlib import Path

MEANT = Export("flights", "00ff", "read_committed", by_date=False)


class KilledError(Exception):
    """The process ended here."""


class DiskFolder:
    """What `Folder` does, by pathlib. It ends the process before its n-th change.

    With `copies` a move is a copy and a deletion, and replaces nothing, as in an object store.
    """

    def __init__(self, path: Path, left: int = 1 << 30, *, copies: bool = False) -> None:
        self._path = path
        self.left = left
        self._copies = copies

    def _change(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KilledError

    def place(self, name: str = "") -> str:
        return str(self._path / name)

    def names(self, name: str = "") -> list[str]:
        path = self._path / name
        return sorted(each.name for each in path.iterdir()) if path.is_dir() else []

    def is_file(self) -> bool:
        return self._path.is_file()

    def all_files(self, name: str) -> list[str]:
        root = self._path / name
        return sorted(str(each.relative_to(root)) for each in root.rglob("*") if each.is_file())

    def read(self, name: str) -> str:
        return (self._path / name).read_text()

    def write(self, name: str, text: str) -> None:
        self._change()
        (self._path / name).parent.mkdir(parents=True, exist_ok=True)
        (self._path / f"{name}.new").write_text(text)
        self.move(f"{name}.new", name)

    def move(self, name: str, target: str) -> None:
        self._change()
        (self._path / target).parent.mkdir(parents=True, exist_ok=True)
        if not self._copies:
            (self._path / name).rename(self._path / target)
            return
        if self.exists(target):
            raise FileExistsError(target)
        shutil.copy(self._path / name, self._path / target)
        self._change()
        (self._path / name).unlink()

    def exists(self, name: str) -> bool:
        return (self._path / name).exists()

    def delete(self, name: str) -> None:
        self._change()
        path = self._path / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def run(folder: DiskFolder, path: Path, end: int) -> None:
    """Export offsets up to an end in chunks of two; a file is named for its offset."""
    manifest = Manifest(folder)
    manifest.check(MEANT)
    left = resumed(manifest.covered, {0: (0, end)}, is_from_given=False)
    manifest.begin(MEANT, {0: 0})
    start, end = left.get(0, (end, end))
    for first in range(start, end, 2):
        offsets = range(first, min(first + 2, end))
        staging = manifest.staging(f"{folder.left}")
        folder._change()
        for offset in offsets:
            target = path / staging / f"date={offset % 3}" / f"part-{offset}.parquet"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(str(offset))
            folder._change()
        (path / staging / "_SUCCESS").touch()
        manifest.add(staging, {0: (offsets[0], offsets[-1] + 1)}, len(offsets))


def offsets_in(path: Path) -> list[int]:
    """What Spark would read: names that begin with `_` are none of the data."""
    found = [each for each in path.rglob("*.parquet") if "_tidelog" not in each.parts]
    return sorted(int(each.read_text()) for each in found)


@pytest.mark.parametrize("copies", [False, True])
def test_a_run_killed_anywhere_leaves_no_offset_twice_and_the_next_one_ends_it(
    tmp_path: Path, copies: bool
) -> None:
    for killed in range(1, 200):
        path = tmp_path / str(killed)
        folder = DiskFolder(path, killed, copies=copies)
        try:
            run(folder, path, 7)
        except KilledError:
            there = offsets_in(path)
            assert there == sorted(set(there))
        else:
            break
        run(DiskFolder(path, copies=copies), path, 9)
        assert offsets_in(path) == list(range(9))
        assert Manifest(DiskFolder(path)).records == 9
        assert not [name for name in DiskFolder(path).names("_tidelog") if "staging" in name]
    assert killed > 20


class DiskTable:
    """Commits in a file, each whole or not at all: (name, offsets). It loses old ones if told so,
    as tables do whose history expires."""

    def __init__(self, path: Path, folder: DiskFolder) -> None:
        self._file = path / "table.json"
        self._folder = folder
        self.is_cut = False

    @property
    def rows(self) -> list[tuple[str, list[int]]]:
        return json.loads(self._file.read_text()) if self._file.exists() else []

    def append(self, offsets: list[int], name: str) -> None:
        self._folder._change()
        self._file.write_text(json.dumps([*self.rows, (name, offsets)]))
        self._folder._change()

    def commits(self) -> Commits:
        if self.is_cut:
            return Commits({}, is_whole=False)
        return Commits({name: len(offsets) for name, offsets in self.rows}, is_whole=True)


def run_table(folder: DiskFolder, table: DiskTable, end: int) -> None:
    """As `run`, to a table."""
    manifest = Manifest(folder)
    manifest.check(MEANT)
    settle(manifest, table)
    left = resumed(manifest.covered, {0: (0, end)}, is_from_given=False)
    manifest.begin(MEANT, {0: 0})
    start, end = left.get(0, (end, end))
    for first in range(start, end, 2):
        offsets = list(range(first, min(first + 2, end)))
        chunk = manifest.announce(f"{folder.left}", {0: (first, offsets[-1] + 1)})
        table.append(offsets, chunk.staging)
        manifest.confirm(chunk, table.commits().records[chunk.staging])


def test_a_table_has_each_offset_once_wherever_a_run_was_killed(tmp_path: Path) -> None:
    for killed in range(1, 200):
        folder = DiskFolder(tmp_path / str(killed) / "out", killed)
        place = tmp_path / str(killed)
        place.mkdir()
        table = DiskTable(place, folder)
        try:
            run_table(folder, table, 7)
        except KilledError:
            folder.left = 1 << 30
        else:
            break
        run_table(folder, table, 9)
        assert [offset for _, offsets in table.rows for offset in offsets] == list(range(9))
        assert Manifest(folder).records == 9
        assert not [name for name in folder.names("_tidelog") if "staging" in name]
    assert killed > 20


def test_a_table_whose_history_was_cut_can_not_tell(tmp_path: Path) -> None:
    folder = DiskFolder(tmp_path / "out")
    table = DiskTable(tmp_path, folder)
    run_table(folder, table, 4)
    Manifest(folder).announce("killed", {0: (4, 6)})
    table.is_cut = True
    with pytest.raises(OperationError, match="history was cut"):
        run_table(folder, table, 9)


def test_a_destination_with_other_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.parquet").touch()
    with pytest.raises(OperationError, match="has other data; nothing was written"):
        Manifest(DiskFolder(tmp_path))
    with pytest.raises(OperationError, match="has other data"):
        Manifest(DiskFolder(tmp_path / "one.parquet"))
    other = tmp_path / "other"
    run(DiskFolder(other), other, 1)
    with pytest.raises(OperationError, match="is an export with topic flights, not weather"):
        Manifest(DiskFolder(other)).check(Export("weather", "00ff", "read_committed", False))
    (other / "_tidelog" / "chunk-000001.json").write_text("{")
    with pytest.raises(OperationError, match="can't be read"):
        Manifest(DiskFolder(other))


def test_an_export_goes_on_where_it_ended_and_leaves_no_hole() -> None:
    covered = {0: (10, 20), 1: (0, 5)}
    wanted = {0: (12, 30), 1: (0, 5), 2: (7, 9)}
    assert resumed(covered, wanted, is_from_given=True) == {0: (20, 30), 2: (7, 9)}
    assert resumed(covered, {0: (0, 25)}, is_from_given=False) == {0: (20, 25)}
    for start in (9, 21):
        with pytest.raises(OperationError, match="of partition 0: an export from"):
            resumed(covered, {0: (start, 30)}, is_from_given=True)


def test_records_are_plain_json(tmp_path: Path) -> None:
    run(DiskFolder(tmp_path), tmp_path, 3)
    record = json.loads((tmp_path / "_tidelog" / "chunk-000002.json").read_text())
    assert (record["covered"], record["records"]) == ({"0": [0, 3]}, 3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[PYTHON_DATA_SOURCE_ERROR] Failed ...: Traceback (most recent call last):\n"
            '  File "x.py", line 3, in y\ntidelog_pipeline.history.loss.DataLossError: gone\n\n'
            "\tat org.apache.spark.Foo.bar(Foo.scala:1)\nCaused by: java.lang.IOException: other",
            "gone",
        ),
        (
            "An error occurred while calling o63.exists.\n: org.apache.hadoop.fs.s3a."
            "AWSBadRequestException: getFileStatus on s3a://lake: 400\n\tat org.apache.hadoop.fs."
            "s3a.S3AUtils.translateException(S3AUtils.java:261)\nCaused by: x.S3Exception: null",
            "getFileStatus on s3a://lake: 400",
        ),
        (
            "An error occurred while calling o9.save.\n: org.apache.spark.SparkException: lost\n\t"
            "at x.Y.z(Y.scala:1)",
            "org.apache.spark.SparkException: lost",
        ),
        ("\n  [PATH_NOT_FOUND] Path does not exist: /x. SQLSTATE: 42K03", None),
        ("", "RuntimeError"),
    ],
)
def test_an_error_of_spark_is_one_sentence(text: str, sentence: str | None) -> None:
    assert sentence_of(RuntimeError(text)) == (sentence or text.strip())
