"""The table: kinds of files, ways to damage them, ways to stop before."""

from __future__ import annotations

import itertools
import random
import shutil
from typing import TYPE_CHECKING, NamedTuple

from damage.directory import STOPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DAMAGES = ("flip", "cut", "empty", "delete", "swap")


class Kind(NamedTuple):
    """One kind of file. `swap` is the same kind of another partition, or another file of its."""

    name: str
    find: Callable[[Path], Path]
    swap: Callable[[Path], Path] | None = None


def _nth(folder: str, suffix: str, number: int) -> Callable[[Path], Path]:
    return lambda root: sorted((root / folder).glob(f"*{suffix}"))[number]


def _in_store(topic: str, suffix: str, number: int) -> Callable[[Path], Path]:
    return lambda root: sorted((root / "tier").glob(f"{topic}-0-*/*{suffix}"))[number]


def _at(path: str) -> Callable[[Path], Path]:
    return lambda root: root / path


def _of_segments() -> Iterator[Kind]:
    for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        places = {"first": 0, "middle": 1 if suffix == ".txnindex" else 3}
        if suffix != ".txnindex":
            places["last"] = -1
        for place, number in places.items():
            yield Kind(
                f"{place} {suffix}",
                _nth("data/t-0", suffix, number),
                _nth("data/u-0", suffix, number),
            )


KINDS = [
    *_of_segments(),
    Kind("offsets .log", _nth("data/__consumer_offsets-0", ".log", 0), _nth("data/u-0", ".log", 0)),
    *[
        Kind(name, _at(f"data/t-0/{name}"), _at(f"data/u-0/{name}"))
        for name in ("leader-epoch-checkpoint", "partition.metadata")
    ],
    *[
        Kind(name, _at(f"data/{name}"), _at(f"data/{other}"))
        for name, other in (
            ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"),
            ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint"),
            ("replication-offset-checkpoint", "log-start-offset-checkpoint"),
            ("meta.properties", "replication-offset-checkpoint"),
            (".kafka_cleanshutdown", "meta.properties"),
        )
    ],
    Kind(
        "metadata .log", _nth("data/__cluster_metadata-0", ".log", 0), _nth("data/t-0", ".log", 0)
    ),
    Kind(
        "quorum-state", _at("data/__cluster_metadata-0/quorum-state"), _at("data/meta.properties")
    ),
    *[
        Kind(f"remote {suffix}", _in_store("r", suffix, 1), _in_store("r", suffix, 2))
        for suffix in (".log", ".index", ".timeindex", ".snapshot", "manifest.json")
    ],
]

OF_ONE = [
    *[
        Kind(f"{name} .log", _nth(f"data/{topic}-0", ".log", 0), _nth("data/u-0", ".log", 0))
        for name, topic in (
            ("transactions", "__transaction_state"),
            ("remote metadata", "__remote_log_metadata"),
        )
    ],
    *[
        Kind(f"metadata {name}", _at(f"data/__cluster_metadata-0/{name}"), _at(f"data/t-0/{name}"))
        for name in ("leader-epoch-checkpoint", "partition.metadata")
    ],
    *[
        Kind(name, _at(f"data/{name}"), _at(f"data/{other}"))
        for name, other in (
            (".lock", "meta.properties"),
            ("bootstrap.checkpoint", "replication-offset-checkpoint"),
            ("cleaner-offset-checkpoint", "replication-offset-checkpoint"),
        )
    ],
    Kind(
        "durable-end-offset",
        _at("data/__cluster_metadata-0/durable-end-offset"),
        _at("data/__cluster_metadata-0/quorum-state"),
    ),
    Kind(
        "metadata .checkpoint",
        _nth("data/__cluster_metadata-0", ".checkpoint", -1),
        _nth("data/__cluster_metadata-0", ".log", 0),
    ),
    *[
        Kind(f"saved {suffix}", _nth("data", suffix, 0), _at("data/meta.properties"))
        for suffix in ("_rlmm_committed_offsets", ".snapshot")
    ],
    Kind("remote .txnindex", _in_store("r", ".txnindex", 0), _in_store("r", ".txnindex", 1)),
    Kind(
        "remote epochs",
        _in_store("r", ".leader-epoch-checkpoint", 1),
        _in_store("r", ".index", 1),
    ),
]
"""Files of one broker alone: those of three would be the same again."""

FOLDERS = [
    Kind("folder of a partition", _at("data/t-0")),
    Kind("folder of the metadata", _at("data/__cluster_metadata-0")),
    Kind("whole disk", _at("data")),
]
STOPS_OF_THREE = ("clean", "kill", "together")
"""One broker of three stops in order or is killed while the others go on; or all stop at once."""


class Case(NamedTuple):
    """One cell of the table."""

    kind: Kind
    damage: str
    stop: str

    def __str__(self) -> str:
        return f"{self.kind.name}, {self.damage}, {self.stop}"

    def apply(self, root: Path) -> bool:
        """Damage a copy of the directory; False if there is nothing to damage."""
        try:
            path = self.kind.find(root)
        except IndexError:
            return False
        if path.is_dir() and self.damage == "delete":
            shutil.rmtree(path.resolve())
            return True
        if not path.is_file():
            return False
        before = path.read_bytes()
        if self.damage == "delete":
            path.unlink()
            return True
        if self.damage == "empty":
            path.write_bytes(b"")
        elif self.damage == "cut":
            path.write_bytes(before[: len(before) * 2 // 3])
        elif self.damage == "flip":
            path.write_bytes(_flipped(before, random.Random(str(self))))
        else:
            return self._swap(root, path)
        return path.read_bytes() != before

    def _swap(self, root: Path, path: Path) -> bool:
        assert self.kind.swap is not None
        try:
            other = self.kind.swap(root)
        except IndexError:
            return False
        if not other.is_file():
            return False
        aside = path.with_name(path.name + "-aside")
        path.rename(aside)
        shutil.copyfile(other, path)
        shutil.copyfile(aside, other)
        aside.unlink()
        return True


def _flipped(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def all_cases() -> list[Case]:
    """The whole table of one broker."""
    return [Case(*cell) for cell in itertools.product([*KINDS, *OF_ONE], DAMAGES, STOPS)]


def cases_of_three() -> list[Case]:
    """That of three: their remote objects are as those of one."""
    kinds = [kind for kind in KINDS if not kind.name.startswith("remote ")]
    files = itertools.product(kinds, DAMAGES, STOPS_OF_THREE)
    folders = itertools.product(FOLDERS, ["delete"], STOPS_OF_THREE)
    return [Case(*cell) for cell in (*files, *folders)]
