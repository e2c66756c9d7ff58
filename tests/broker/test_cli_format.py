"""`tidelog format`, and the nodes that do not start without it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import shutil
from typing import TYPE_CHECKING

import pytest

import tidelog
from tidelog.__main__ import main
from tidelog.cli.scram_users import parse_scram
from tidelog.cluster.formatting import bootstrap_checkpoint
from tidelog.cluster.metadata.features import initial_levels
from tidelog.cluster.metadata.image import ClusterImage
from tidelog.cluster.metadata.snapshots import SnapshotId, decode_snapshot
from tidelog.start_error import StartError
from tidelog_storage.checkpoints import read_meta_properties
from tidelog_storage.os_files import OsFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

ID = "anchorAAAAAAAAAAAAAAAA"
SCRAM = "SCRAM-SHA-256="


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


def test_scram_users_of_the_format_are_there_from_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--node-id", 1, "--data-dir", tmp_path, "-S", f"{SCRAM}[name=a,password=secret-a]"]
    words += ["--add-scram", 'SCRAM-SHA-512=[name=b,iterations=8192,salt="N3E=",password=b]']
    code, lines, error = run(capsys, *words)
    assert (code, error) == (0, "")
    assert "secret-a" not in "".join(lines)

    async def test() -> None:
        settings = {"node.id": "1", "log.dirs": str(tmp_path)}
        for _ in range(2):
            async with tidelog.Cluster(settings) as cluster:
                users = cluster.brokers[0].server.metadata.image.scram_credentials
                assert {key: one.iterations for key, one in users.items()} == {
                    ("a", 1): 4096,
                    ("b", 2): 8192,
                }
            (tmp_path / "bootstrap.checkpoint").unlink(missing_ok=True)

    asyncio.run(test())


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda data: data[:-1], "is cut off"),
        (lambda data: data[:300] + b"?" + data[301:], "is damaged at byte"),
    ],
)
def test_a_damaged_bootstrap_checkpoint_refuses_the_start(
    change: Callable[[bytes], bytes], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "--node-id", 1, "--data-dir", tmp_path, "-S", f"{SCRAM}[name=a,password=x]")
    file = tmp_path / "bootstrap.checkpoint"
    file.write_bytes(change(file.read_bytes()))

    async def test() -> None:
        with pytest.raises(StartError, match=error):
            async with tidelog.Cluster({"node.id": "1", "log.dirs": str(tmp_path)}):
                pass

    asyncio.run(test())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SCRAM", "Failed to find equals sign in SCRAM argument"),
        ("X=[]", "The add-scram mechanism X is not supported."),
        (f"{SCRAM}name=a", "Expected configuration string to start with ["),
        (f"{SCRAM}[name=a", "Expected configuration string to end with ]"),
        (f"{SCRAM}[name=a,hush]", "No equals sign found in a SCRAM component"),
        (f"{SCRAM}[password=hush]", "You must supply 'name' to add-scram"),
        (
            f"{SCRAM}[name=a]",
            "You must supply one of 'password' or 'saltedpassword' to add-scram",
        ),
        (
            f"{SCRAM}[name=a,saltedpassword=aHVzaA==]",
            "You must supply 'salt' with 'saltedpassword' to add-scram",
        ),
        (f"{SCRAM}[name=a,salt=h,password=hush]", "Failed to decode given salt"),
        (f"{SCRAM}[name=a,password=hush,more=1]", "Unknown SCRAM configurations: more"),
        (
            f"{SCRAM}[name=a,password=hush,iterations=x]",
            "Failed to parse iterations count: x",
        ),
        (
            f"{SCRAM}[name=a,password=hush,iterations=4095]",
            "The 'iterations' value must be >= 4096 for add-scram using SCRAM-SHA-256",
        ),
        (
            f"{SCRAM}[name=a,password=hush,iterations=16385]",
            "The 'iterations' value must be <= 16384 for add-scram using SCRAM-SHA-256",
        ),
    ],
)
def test_wrong_users_are_refused_without_their_passwords(
    text: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, said = run(capsys, "--node-id", 1, "--data-dir", tmp_path / "d", "-S", text)
    assert (code, lines) == (1, [])
    assert said == f"tidelog: --add-scram: {error}\n"
    assert not (tmp_path / "d").exists()


def test_a_salted_password_is_that_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = base64.b64encode(hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)).decode()
    given = f"name=user,salt={base64.b64encode(salt).decode()}"
    of_password = parse_scram(f"{SCRAM}[{given},password=pencil]", bytes)
    assert parse_scram(f"{SCRAM}[{given},saltedpassword={salted}]", bytes) == of_password
    assert of_password.salt == salt
    assert parse_scram(f"{SCRAM}[name=user,password=pencil]", bytes).salt == bytes(20)


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
