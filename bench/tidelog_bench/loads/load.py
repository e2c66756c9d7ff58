"""What every load does: fill a topic, read it, say how long its own clock found that to take."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog_bench.peers.peer import Served

__all__ = ["LARGE", "SMALL", "Batches", "Load", "Moved", "Work", "output_of"]

TIMEOUT_S = 180.0


class Batches(NamedTuple):
    """How a producer batches; None leaves the client's own default."""

    name: str
    bytes_max: int | None
    linger_ms: int | None


SMALL = Batches("default batches", None, None)
LARGE = Batches("large batches", 512 << 10, 20)


class Work(NamedTuple):
    """One topic's worth of records."""

    topic: str
    partitions: int
    records: int
    record_bytes: int
    batches: Batches


class Moved(NamedTuple):
    """What a client moved, by its own clock: connecting and joining are not in `seconds`."""

    records: int
    seconds: float


class Load(Protocol):
    """A client program."""

    name: str

    def produce(self, peer: Served, work: Work) -> Moved:
        """Produce all records of a work to an existing topic."""
        ...

    def consume(self, peer: Served, work: Work) -> Moved:
        """Consume them from the beginning."""
        ...


def output_of(command: Sequence[str]) -> str:
    """What a finished program printed; RuntimeError with its complaint if it failed."""
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if result.returncode:
        complaint = (result.stderr or result.stdout)[-1500:]
        raise RuntimeError(f"{command[:3]}... failed ({result.returncode}): {complaint}")
    return result.stdout
