"""What a failover of thousands of partitions does to the brokers that stay: `python -m
tidelog_bench.bench_failover`.

Three brokers, each in its own process, on a disk whose fsync takes 10 ms (a library that is built
and preloaded here). Broker 1 is killed; the other two get its leaderships. Meanwhile each of them
is asked for ApiVersions every few milliseconds, which shows how long its loop is away, and a
producer with acks=all writes to a partition of its own that broker 1 has no replica of. Prints one
JSON object: the longest time that a loop was away, produce latency, and when the last leadership
had moved, all in ms from the kill on.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.embedded.simple_client import SimpleClient
from tidelog_bench.peers.address import live_brokers
from tidelog_bench.peers.tidelog import TidelogCluster
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.cluster import ApiVersionsRequest, MetadataRequest
from tidelog_protocol.messages.data import ListOffsetsRequest, ProduceRequest
from tidelog_protocol.records import Record, build_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

PARTITIONS_PER_TOPIC = 50
PROBE = "elsewhere"
TICK_S = 0.005
SETTLED_S = 3.0  # with no answer later than QUIET_MS
QUIET_MS = 100.0
AFTER_S = 5.0  # still measured when the last leadership has moved
WAIT_S_MAX = 300.0
LATEST = -1

# fsync does nothing but take the milliseconds that the first byte of a shared file says.
SLOW_DISK_C = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static volatile unsigned char *delay_ms;
__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("TIDELOG_BENCH_FSYNC_MS"), O_RDONLY);
    delay_ms = mmap(0, 1, PROT_READ, MAP_SHARED, file, 0);
    close(file);
}
int fsync(int file) { (void)file; if (*delay_ms) usleep(*delay_ms * 1000); return 0; }
int fdatasync(int file) { return fsync(file); }
"""


class SlowDisk:
    """The library that makes fsync slow, in the environment of what is started meanwhile."""

    def __init__(self, folder: Path) -> None:
        library, source = folder / "slow_disk.so", folder / "slow_disk.c"
        source.write_text(SLOW_DISK_C)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        delay = folder / "fsync-ms"
        delay.write_bytes(b"\0")
        with delay.open("r+b") as file:
            self._delay = mmap.mmap(file.fileno(), 1)
        self._environment = {"LD_PRELOAD": str(library), "TIDELOG_BENCH_FSYNC_MS": str(delay)}

    @contextmanager
    def for_children(self) -> Iterator[None]:
        """What is started meanwhile is on this disk."""
        os.environ.update(self._environment)
        try:
            yield
        finally:
            for name in self._environment:
                del os.environ[name]

    def take_ms(self, milliseconds: int) -> None:
        """Each fsync takes so long from now on."""
        self._delay[0] = milliseconds


class Asking(threading.Thread):
    """Sends one request after the other to a broker; `answers` are (moment, ms) of each."""

    def __init__(self, bootstrap: str, ask: Callable[[SimpleClient], None]) -> None:
        super().__init__(daemon=True)
        self.answers: list[tuple[float, float]] = []
        self.error: Exception | None = None
        self._client = SimpleClient(bootstrap, timeout_s=WAIT_S_MAX)
        self._ask = ask
        self._over = threading.Event()
        self.start()

    def run(self) -> None:
        """Ask until `stop`."""
        try:
            while not self._over.wait(TICK_S):
                began = time.perf_counter()
                self._ask(self._client)
                self.answers.append((began, 1e3 * (time.perf_counter() - began)))
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            self.error = error

    def since(self, moment: float) -> list[float]:
        """Milliseconds of all answers that came after `moment`, in rising order."""
        if self.error is not None:
            raise self.error
        return sorted(ms for began, ms in self.answers if began + ms / 1e3 >= moment)

    def stop(self) -> None:
        """Ask no more."""
        self._over.set()
        self.join()
        self._client.close()


def _ping(client: SimpleClient) -> None:
    client.send_and_receive(ApiVersionsRequest(), 0)


def _producer(partition: int) -> Callable[[SimpleClient], None]:
    batch = build_batch([Record(0, 0, None, b"x" * 100)])

    def produce(client: SimpleClient) -> None:
        part = ProduceRequest.TopicProduceData.PartitionProduceData(
            index=partition, records=memoryview(bytearray(batch))
        )
        topic = ProduceRequest.TopicProduceData(name=PROBE, partition_data=[part])
        request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic])
        answer = client.send_and_receive(request, 9).responses[0].partition_responses[0]
        if answer.error_code:
            raise RuntimeError(f"produce elsewhere failed with error {answer.error_code}")

    return produce


def _create(bootstrap: str, name: str, replicas: Sequence[Sequence[int]]) -> None:
    topics = CreateTopicsRequest.CreatableTopic
    topic = topics(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            topics.CreatableReplicaAssignment(partition_index=index, broker_ids=list(nodes))
            for index, nodes in enumerate(replicas)
        ],
    )
    with _client(bootstrap) as client:
        answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000)).topics[0]
    if answer.error_code:
        raise RuntimeError(f"{name} was not created: {answer.error_message}")


def _client(bootstrap: str) -> AbstractContextManager[SimpleClient]:
    return SimpleClient(bootstrap, timeout_s=WAIT_S_MAX)


def _wait(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"timed out after {WAIT_S_MAX:g} s: {what}")
        time.sleep(0.1)


def _is_led(client: SimpleClient, topics: Sequence[str], node_id: int) -> bool:
    """Whether a broker answers as the leader of all that it says it leads, and 1 leads nothing."""
    named = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    led = []
    for topic in client.send_and_receive(MetadataRequest(topics=named), 9).topics:
        if topic.error_code or any(one.leader_id not in (2, 3) for one in topic.partitions):
            return False
        asked = [
            ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=partition.partition_index, timestamp=LATEST
            )
            for partition in topic.partitions
            if partition.leader_id == node_id
        ]
        led.append(ListOffsetsRequest.ListOffsetsTopic(name=topic.name, partitions=asked))
    request = ListOffsetsRequest(replica_id=-1, topics=led)
    answers = client.send_and_receive(request, 6).topics
    return not any(answer.error_code for topic in answers for answer in topic.partitions)


def measure(partitions: int, fsync_ms: int, folder: Path) -> dict[str, Any]:
    """One failover in a cluster of its own."""
    disk = SlowDisk(folder)
    cluster = TidelogCluster(folder / "brokers", {"auto.leader.rebalance.enable": "false"})
    cluster.folder.mkdir()
    names = [f"t{number}" for number in range(partitions // PARTITIONS_PER_TOPIC)]
    try:
        with disk.for_children():
            cluster.start()
        first = cluster.nodes[2].bootstrap
        turns = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
        replicas = [turns[index % 3] for index in range(PARTITIONS_PER_TOPIC)]
        for name in names:
            _create(first, name, replicas)
        _create(first, PROBE, [(2, 3), (3, 2)])
        return _fail_over(cluster, disk, names, fsync_ms)
    finally:
        cluster.remove()


def _fail_over(
    cluster: TidelogCluster, disk: SlowDisk, names: Sequence[str], fsync_ms: int
) -> dict[str, Any]:
    stay = {node_id: cluster.nodes[node_id].bootstrap for node_id in (2, 3)}
    _wait("the probe is led", lambda: all(_led(at, [PROBE], n) for n, at in stay.items()))
    pings = {node_id: Asking(at, _ping) for node_id, at in stay.items()}
    producers = [Asking(at, _producer(node_id - 2)) for node_id, at in stay.items()]
    every = [*pings.values(), *producers]

    def is_quiet() -> bool:
        moment = time.perf_counter() - SETTLED_S
        return all(asking.since(moment)[-1:] < [QUIET_MS] for asking in every)

    try:
        time.sleep(SETTLED_S)
        _wait("the brokers are quiet", is_quiet)
        disk.take_ms(fsync_ms)
        time.sleep(SETTLED_S)
        cpu = {node_id: cluster.nodes[node_id].cpu_seconds() for node_id in stay}
        began = time.perf_counter()
        cluster.kill(1)
        fenced: set[int] = set()
        last = names[-1:]

        def has_moved() -> bool:
            for at in stay.values():
                fenced.update({2, 3} - live_brokers(at))
            return all(_led(at, last, node_id) for node_id, at in stay.items())

        _wait("the last topic has moved", has_moved)
        moved_ms = 1e3 * (time.perf_counter() - began)
        time.sleep(AFTER_S)
        figures = figures_of(pings, producers, began)
        figures |= {
            "moved ms": round(moved_ms),
            "fenced": sorted(fenced),
            "CPU ms": {
                node_id: round(1e3 * (cluster.nodes[node_id].cpu_seconds() - before))
                for node_id, before in cpu.items()
            },
        }
    finally:
        for asking in every:
            asking.stop()
    _wait("all partitions are led", lambda: all(_led(at, names, n) for n, at in stay.items()))
    return figures


def _led(bootstrap: str, topics: Sequence[str], node_id: int) -> bool:
    with _client(bootstrap) as client:
        return _is_led(client, topics, node_id)


def figures_of(
    pings: dict[int, Asking], producers: Sequence[Asking], began: float
) -> dict[str, Any]:
    """How long loops were away and produce took, of what was answered after `began`."""
    produced = sorted(ms for asking in producers for ms in asking.since(began))
    return {
        "away ms": {node_id: round(asking.since(began)[-1]) for node_id, asking in pings.items()},
        "produced": len(produced),
        "produce p50 ms": round(produced[len(produced) // 2], 1),
        "produce p99 ms": round(produced[len(produced) * 99 // 100], 1),
        "produce worst ms": round(produced[-1], 1),
    }


CASES = {f"{count} partitions": count for count in (1500, 5000)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--fsync-ms", type=int, default=10, help="duration of each fsync")
    options = parser.parse_args()
    results = {}
    for name, partitions in CASES.items():
        if options.only in name:
            with tempfile.TemporaryDirectory(prefix="tidelog-failover-") as folder:
                results[name] = measure(partitions, options.fsync_ms, Path(folder))
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
