"""librdkafka with its own settings while a broker dies: how long until a produce succeeds again.

`python -m tidelog_bench.loads.failover BOOTSTRAP TOPIC REPLICAS` creates the topic of one partition
on those nodes (the first of them leads), produces a record every few milliseconds and says `ready`;
a line of input is the moment of the kill (nanoseconds of the monotonic clock). It answers with the
seconds until the first record that was produced after that is acknowledged, and ends.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from tidelog_bench.peers.peer import Served

__all__ = ["failover_s"]

TICK_S = 0.005
SETTLED = 100  # records acknowledged before anything is killed
WAIT_S_MAX = 90.0


def failover_s(
    peer: Served, topic: str, replicas: Sequence[int], kill_leader: Callable[[], None]
) -> float:
    """Seconds from before `kill_leader` to the first acknowledgement of a later record."""
    module = [sys.executable, "-m", "tidelog_bench.loads.failover"]
    program = subprocess.Popen(
        [*module, peer.bootstrap, topic, ",".join(map(str, replicas))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    try:
        said = program.stdout.readline()
        if said != "ready\n":
            raise RuntimeError(f"the producer ended with {program.wait(10)}")
        at = time.monotonic_ns()
        kill_leader()
        program.stdin.write(f"{at}\n")
        program.stdin.flush()
        return float(program.stdout.readline() or "nan")
    finally:
        program.stdin.close()
        program.kill()
        program.wait()
        program.stdout.close()


class _Producing:
    """One record after the other; `acknowledged` are the moments at which each was produced."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Producer  # noqa: PLC0415

        self._topic = topic
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "log_level": 0,
        }
        self._producer = Producer(settings)
        self.count = 0
        self.killed_at: int | None = None
        self.seconds: float | None = None

    def until(self, is_enough: Callable[[], bool]) -> None:
        """Produce on; TimeoutError if that takes too long."""
        deadline = time.monotonic() + WAIT_S_MAX
        while not is_enough():
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {self.count} records were acknowledged in time")
            delivered = functools.partial(self._delivered, time.monotonic_ns())
            self._producer.produce(self._topic, b"x" * 100, partition=0, on_delivery=delivered)
            self._producer.poll(TICK_S)

    def _delivered(self, produced_at: int, error: object, message: object) -> None:
        del message
        if error is not None:
            raise RuntimeError(str(error))
        self.count += 1
        if self.seconds is None and self.killed_at is not None and produced_at > self.killed_at:
            self.seconds = (time.monotonic_ns() - self.killed_at) / 1e9


def _main(bootstrap: str, topic: str, replicas: str) -> None:
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415
    from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    assignment = [[int(node_id) for node_id in replicas.split(",")]]
    created = NewTopic(topic, num_partitions=1, replica_assignment=assignment)
    admin.create_topics([created])[topic].result(30)
    producing = _Producing(bootstrap, topic)
    producing.until(lambda: producing.count >= SETTLED)
    known = admin.list_topics(topic, timeout=10).topics[topic].partitions[0]
    assert known.leader == assignment[0][0], f"{known.leader} leads, not {replicas}"

    def listen() -> None:
        producing.killed_at = int(sys.stdin.readline())

    print("ready", flush=True)
    threading.Thread(target=listen, daemon=True).start()
    producing.until(lambda: producing.seconds is not None)
    print(producing.seconds, flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
