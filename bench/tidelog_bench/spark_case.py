"""A small Spark query (`--spark`): mostly waiting, for the consumer sends ListOffsets behind a
parked Fetch, and answers keep their order. A broker that completes that Fetch early saves half a
second.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog_bench.cases import Case, Topic
from tidelog_bench.loads.franz_go import FranzGo
from tidelog_bench.loads.load import SMALL, Work

if TYPE_CHECKING:
    from tidelog_bench.peers.peer import Served

__all__ = ["SparkQuery"]

PROGRAM = Path(__file__).parent.parent / "spark_queries.py"
RECORDS = 1000


class SparkQuery(Case):
    """Count the records of a small topic, by one Spark session for all peers."""

    name = "Spark, count of 1000 records"
    warm_up_share = 1.0

    def __init__(self) -> None:
        self._program: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `close`

    def run(self, peer: Served, scale: float) -> dict[str, float]:
        """Median of a few queries on a topic of two partitions."""
        with Topic(peer, 2) as topic:
            FranzGo().produce(peer, Work(topic, 2, RECORDS - 1, 100, SMALL))
            queries = max(3, int(6 * scale))
            answer = self._ask(
                bootstrap=peer.bootstrap, topic=topic, records=RECORDS, queries=queries
            )
        return {"query": 1e3 * statistics.median(answer["seconds"])}

    def _ask(self, **request: object) -> dict[str, Any]:
        if self._program is None:
            self._program = subprocess.Popen(
                [sys.executable, str(PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(json.dumps(request) + "\n")
        self._program.stdin.flush()
        line = self._program.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"Spark ended: {self._errors.read()[-800:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the session: end of input, and after a while by force."""
        if self._program is not None:
            assert self._program.stdin is not None
            self._program.stdin.close()
            try:
                self._program.wait(20)
            except subprocess.TimeoutExpired:
                self._program.kill()
                self._program.wait()
        self._errors.close()
