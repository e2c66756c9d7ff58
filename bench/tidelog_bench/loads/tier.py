"""Our program `go/tier`: topics with settings, where their segments are, when they get there."""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING, Any, Self

from tidelog_bench.loads.load import output_of
from tidelog_bench.peers.go_programs import go_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog_bench.peers.peer import Served

__all__ = ["TierTopic"]

REMOTE_TIMEOUT_S = 120.0
_POLL_S = 0.2
_numbers = itertools.count()


class TierTopic:
    """A fresh topic of one partition with settings of its own, gone afterwards."""

    def __init__(self, peer: Served, settings: Mapping[str, object], replicas: str = "") -> None:
        """`replicas` are node ids with commas, the leader first."""
        self._peer = peer
        self._settings = ",".join(f"{key}={value}" for key, value in settings.items())
        self._replicas = replicas
        self.name = f"bench-tier-{next(_numbers)}"

    def __enter__(self) -> Self:
        options = {"replicas": self._replicas} if self._replicas else {}
        self.run("create", settings=self._settings, **options)
        return self

    def __exit__(self, *_: object) -> None:
        self.run("delete")

    def run(self, op: str, **options: object) -> dict[str, Any]:
        """One operation of the program on this topic."""
        words = [f"-{name}={value}" for name, value in options.items()]
        start = [str(go_program("tier")), op, f"-bootstrap={self._peer.bootstrap}"]
        facts: dict[str, Any] = json.loads(output_of([*start, f"-topic={self.name}", *words]))
        return facts

    def wait_until_remote(self, share: float) -> None:
        """Until so much of it, counted in records, is in the tier alone."""
        self._wait(
            lambda offsets: offsets["local_start"] - offsets["start"] >= share * offsets["end"]
        )

    def wait_until_copied(self, records: int) -> None:
        """Until no more than its last `records` are not in the tier."""
        self._wait(lambda offsets: offsets["tiered"] + records >= offsets["end"])

    def _wait(self, is_over: Callable[[dict[str, int]], bool]) -> None:
        deadline = time.monotonic() + REMOTE_TIMEOUT_S
        while not is_over(offsets := self.run("offsets")):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} of {self._peer.name} is still local: {offsets}")
            time.sleep(_POLL_S)
