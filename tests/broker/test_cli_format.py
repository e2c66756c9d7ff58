"""`tidelog format`, and the nodes that do not start without it."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

import tidelog
from tidelog.__main__ import main
from tidelog.cluster.formatting import bootstrap_checkpoint
from tidelog.cluster.metadata.features import initial_levels
from tidelog.cluster.metadata.image import ClusterImage
from tidelog.cluster.metadata.snapshots import SnapshotId, decode_snapshot
from tidelog.start_error import StartError
from tidelog_storage.checkpoints import read_meta_properties
from tidelog_storage.os_files import OsFileSystem

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ID = "anchorAAAAAAAAAAAAAAAA"


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[str], str]:
    """Exit code, lines of standard output, standard error."""
    code = main(["format", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out.splitlines(), said.err


def owners(folders: Sequence[Path]) -> list[tuple[str, int]]:
    found = [read_meta_properties(OsFileSystem(), str(folder)) for folder in folders]
    return [(one.cluster_id, one.node_id) for one in found if one is not None]


def test_directories_are_formatted_for_one_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [tmp_path / name for name in ("one", "two", "metadata")]
    dirs = f"log.dirs={folders[0]},{folders[1]}"
    words = ["--set", dirs, "--set", f"metadata.log.dir={folders[2]}", "--node-id", 4]
    code, lines, _ = run(capsys, "-t", ID, *words)
    assert code == 0
    assert [line.split(" for node ")[0] for line in lines] == [
        f"formatted data directory {folders[0]}",
        f"formatted data directory {folders[1]}",
        f"formatted metadata directory {folders[2]}",
    ]
    assert all(f" for node 4 of cluster {ID} with directory id " in line for line in lines)
    assert owners(folders) == [(ID, 4)] * 3
    assert len({line.rpartition(" ")[2] for line in lines}) == 3
    assert run(capsys, "-t", ID, *words) == (
        1,
        [],
        f"tidelog: {folders[0]} is formatted already; --ignore-formatted formats the others\n",
    )


def test_the_others_are_formatted_beside_those_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    code, (line,), _ = run(capsys, "--node-id", 1, "--data-dir", one)
    ((cluster_id, _),) = owners([one])
    assert code == 0
    assert f"of cluster {cluster_id} " in line
    (two / "notes").mkdir(parents=True)
    words = ["--node-id", 1, "--set", f"log.dirs={one},{two}", "-g"]
    code, lines, error = run(capsys, "-t", "another", *words)
    assert (code, lines) == (1, [])
    assert error == f"tidelog: {one} belongs to cluster {cluster_id}, not to another\n"
    assert run(capsys, *words)[0] == 0
    assert owners([one, two]) == [(cluster_id, 1)] * 2
    assert (two / "notes").exists()
    assert run(capsys, "--node-id", 2, "--data-dir", one, "-g")[0] == 1


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--node-id", "1"], "--data-dir: is missing"),
        (["--data-dir", "x"], "--node-id: is missing"),
        (["--node-id", "1", "--data-dir", "x", "-t", "a b"], "--cluster-id: 'a b' is not an id"),
        (["--node-id", "-1", "--data-dir", "x"], "node.id: "),
    ],
)
def test_what_is_missing_is_one_line(
    words: list[str],
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, lines, said = run(capsys, *words)
    assert (code, lines) == (1, [])
    assert said.startswith(f"tidelog: {error}")
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_settings_may_be_kafkas_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(f"node.id=7\nlog.dirs={tmp_path}/data\n")
    assert run(capsys, "-t", ID, "-c", properties)[0] == 0
    assert owners([tmp_path / "data"]) == [(ID, 7)]


def test_the_bootstrap_checkpoint_is_a_whole_snapshot() -> None:
    image = decode_snapshot(SnapshotId(0, 0), bootstrap_checkpoint(1_700_000_000_000), "c")
    assert isinstance(image, ClusterImage)
    assert image.features == initial_levels()


def test_a_node_that_lost_its_disk_does_not_start_before_it_is_formatted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a new voter it could forget, with another that was away, what is committed."""

    async def test() -> None:
        async with tidelog.Cluster(brokers=3, data_dir=tmp_path) as cluster:
            folder = tmp_path / "broker-2"
            ((cluster_id, _),) = owners([folder])
            second = cluster.brokers[1]
            await second.stop()
            shutil.rmtree(folder)
            with pytest.raises(StartError, match=r"broker-2 is not formatted: run `tidelog format"):
                await second.start()
            assert not folder.exists() or list(folder.iterdir()) == []
            code, _, _ = run(capsys, "-t", cluster_id, "--node-id", 2, "--data-dir", folder)
            assert code == 0
            await second.start()
        shutil.rmtree(tmp_path / "broker-3")
        with pytest.raises(StartError, match="broker-3 is not formatted, but"):
            await tidelog.Cluster(brokers=3, data_dir=tmp_path).start()

    asyncio.run(test())
