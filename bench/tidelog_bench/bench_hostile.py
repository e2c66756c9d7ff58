"""What hostile bytes cost other clients: `python -m tidelog_bench.bench_hostile [--only TEXT]`.

A quiet producer sends 20 records a second, each at its moment whether or not the one before is
answered. Beside it other connections repeat an attack of `loads/hostile.py` or
`hostile_floods.py`: each request as wide as its limit, record batches that take more to read than
to send, frames that never end, thousands of members, partitions or ACLs. Each attack has a broker
of its own. Prints a row each: p99 and the longest of the producer's times, the CPU time of the
callback that held the broker's loop for longest (0: none above 50 ms), and how far its resident
memory rose. Latencies and callbacks of 100 ms and more are marked. `--wide` leaves out all but wide
requests, `--no-wide` those.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import struct
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidelog.embedded.simple_client import SimpleClient, create_topic
from tidelog_bench.bench_groups import Connection, await_coordinator, check
from tidelog_bench.loads.hostile import (
    COMPACTED,
    HANGS_UP,
    NOTHING,
    PLAIN,
    RECOMPRESSED,
    TO_THE_END,
    Attack,
    Names,
    batches,
    frames,
    requests,
)
from tidelog_bench.loads.hostile_floods import WITH_ACLS, add_acls, floods
from tidelog_bench.peers.attacked import AttackedTidelog
from tidelog_protocol.messages.cluster import ApiVersionsRequest, MetadataRequest
from tidelog_protocol.messages.data import ProduceRequest
from tidelog_protocol.records import Record, build_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog_bench.peers.peer import Peer

__all__ = ["Row", "attacks", "measure"]

PRODUCE_VERSION = 12
INTERVAL_S = 0.05
SECONDS = 3.0
STALL_S_MAX = 120.0
STALL_MS = 100.0
GROUP = "a-group"
UNKNOWN_ID = b"id of the topic!"  # replaced by that of each broker
PARTITIONS = 1
TOPICS = {
    PLAIN: {},
    COMPACTED: {"cleanup.policy": "compact", "max.message.bytes": str(200 << 20)},
    RECOMPRESSED: {"compression.type": "lz4", "max.message.bytes": str(200 << 20)},
}


class Row(NamedTuple):
    """What one attack did."""

    attack: str
    sent: int  # times, on all connections
    answer_ms: float  # longest time to an answer or the end of the connection
    p99_ms: float
    longest_ms: float
    callback_ms: int  # CPU time of the longest
    callback: str
    memory_mib: int  # by how much the peak of resident memory is above that before


def attacks(served: set[int], names: Names) -> Iterator[Attack]:
    """Yield all attacks, and a row without one."""
    yield Attack("nothing", bytes, NOTHING)
    yield from frames()
    yield from floods()
    yield from batches()
    yield from requests(served, names)


def chosen(
    served: set[int], names: Names, *, wide: bool | None = None
) -> Iterator[tuple[Attack, bool]]:
    """Yield attacks, and whether the broker has ACLs: all of them, or those that are wide requests
    without ACLs, or the others."""
    wides = list(requests(served, names))
    if wide is not True:
        of_wide = {attack.name for attack in wides}
        yield from ((each, False) for each in attacks(served, names) if each.name not in of_wide)
        by_name = {attack.name: attack for attack in wides}
        yield from ((by_name[name], True) for name in WITH_ACLS if name in by_name)
    if wide is not False:
        yield from ((each, False) for each in wides)


def _prepared(peer: Peer) -> bytes:
    """Make what the attacks name; return the id of the topic."""
    for topic, settings in TOPICS.items():
        create_topic(peer.bootstrap, topic, PARTITIONS, settings)
    with SimpleClient(peer.bootstrap) as client:
        await_coordinator(client, GROUP)
        known = client.ask(
            MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=PLAIN)])
        )
        topic_id: bytes = known.topics[0].topic_id
        return topic_id


def served_by(peer: Peer) -> set[int]:
    """Return the keys of the APIs that a broker lists."""
    with SimpleClient(peer.bootstrap) as client:
        answer = client.ask(
            ApiVersionsRequest(client_software_name="b", client_software_version="1")
        )
    return {each.api_key for each in answer.api_keys}


def measure(peer: AttackedTidelog, attack: Attack, seconds: float = SECONDS) -> Row:
    """Attack a new broker for so long."""
    frame = attack.frame().replace(UNKNOWN_ID, _prepared(peer))
    if attack.prepare is not None:
        attack.prepare(peer.bootstrap)
    peer.forget_slow()
    return asyncio.run(_measured(peer, attack, frame, seconds))


async def _measured(peer: AttackedTidelog, attack: Attack, frame: bytes, seconds: float) -> Row:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(attack.connections))
    quiet = await Connection.open(peer.bootstrap)
    await _produce(quiet)
    _forget_peak(peer)
    before = _peak_mib(peer)
    end = time.perf_counter() + seconds
    latencies: list[float] = []
    took: list[float] = []
    at = getattr(peer.doors, attack.door)
    # Blocking sockets in threads: megabytes that go through this loop would delay the producer.
    attackers = [
        asyncio.create_task(asyncio.to_thread(_attack, at, attack, frame, end, took))
        for _ in range(attack.connections)
    ]
    await _produce_quietly(quiet, attackers, end, latencies)
    await asyncio.gather(*attackers)
    quiet.close()
    latencies.sort()
    return Row(
        attack.name,
        len(took),
        round(1000 * max(took, default=0.0), 1),
        round(1000 * latencies[int(len(latencies) * 0.99)], 1),
        round(1000 * latencies[-1], 1),
        *peer.slowest(),
        _peak_mib(peer) - before,
    )


async def _produce_quietly(
    connection: Connection, attackers: list[asyncio.Task[None]], end: float, took: list[float]
) -> None:
    """Produce at intervals until the time is over and the attacks have their answers. A time counts
    from the moment that a record is due, so that those behind a stall wait as well."""
    due = time.perf_counter()
    async with asyncio.timeout(STALL_S_MAX):
        while time.perf_counter() < end or not all(each.done() for each in attackers):
            await asyncio.sleep(due - time.perf_counter())
            await _produce(connection)
            took.append(time.perf_counter() - due)
            due += INTERVAL_S


async def _produce(connection: Connection) -> None:
    data = ProduceRequest.TopicProduceData
    batch = build_batch([Record(0, int(time.time() * 1000), None, bytes(100))])
    partition = data.PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[data(name=PLAIN, partition_data=[partition])]
    )
    answer = await connection.ask(request, PRODUCE_VERSION)
    check(answer.responses[0].partition_responses[0])


def _attack(bootstrap: str, attack: Attack, frame: bytes, end: float, took: list[float]) -> None:
    """Send the frame again and again, each time on a new connection, after the last answer; without
    one the connection stays open until the end."""
    patience_s = attack.patience_s
    host, _, port = bootstrap.rpartition(":")
    while frame and time.perf_counter() < end:
        began = time.perf_counter()
        with suppress(OSError), socket.create_connection((host, int(port)), patience_s) as sent:
            sent.sendall(frame)
            if attack.answers == NOTHING:
                time.sleep(max(0.0, end - time.perf_counter()))
            elif attack.answers == HANGS_UP:
                sent.recv(1)
            elif attack.answers == TO_THE_END:
                while sent.recv(1 << 20):
                    pass
            else:
                for _ in range(attack.answers):
                    _take_answer(sent)
        took.append(time.perf_counter() - began)


def _take_answer(connection: socket.socket) -> None:
    """Read one answer and drop it; nothing if the connection is closed."""
    head = connection.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        raise ConnectionError("closed")
    (left,) = struct.unpack(">i", head)
    while left:
        left -= len(connection.recv(min(left, 1 << 20))) or left


def _forget_peak(peer: Peer) -> None:
    Path(f"/proc/{peer.child.pid}/clear_refs").write_text("5")


def _peak_mib(peer: Peer) -> int:
    status = Path(f"/proc/{peer.child.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def rows(only: str, seconds: float, *, wide: bool | None = None) -> Iterator[Row]:
    """Measure the attacks whose name has this text, each with a broker of its own."""
    with tempfile.TemporaryDirectory(prefix="tidelog-hostile-") as folder:
        peer = AttackedTidelog(Path(folder) / "first")
        try:
            peer.start()
            served = served_by(peer)
        finally:
            peer.remove()
        names = Names(PLAIN, UNKNOWN_ID, GROUP)
        for number, (attack, has_acls) in enumerate(chosen(served, names, wide=wide)):
            name = f"{attack.name}, ACLs" if has_acls else attack.name
            if only.lower() not in name.lower():
                continue
            peer = AttackedTidelog(Path(folder) / f"broker-{number}", has_acls=has_acls)
            try:
                peer.start()
                if has_acls:
                    add_acls(peer.bootstrap)
                yield measure(peer, attack, seconds)._replace(attack=name)
            finally:
                peer.remove()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="attacks whose name has this text")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--wide", action=argparse.BooleanOptionalAction, help="of wide requests")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    options = parser.parse_args()
    heads = f"{'p99 ms':>9}{'longest':>9}{'callback':>9}{'answer':>9}{'sent':>6}{'MiB':>7}"
    print(heads, file=sys.stderr)
    for row in rows(options.only, options.seconds, wide=options.wide):
        if options.json:
            print(json.dumps(row._asdict()), flush=True)
            continue
        mark, held = ("!" if ms >= STALL_MS else " " for ms in (row.longest_ms, row.callback_ms))
        print(
            f"{row.p99_ms:9.1f}{row.longest_ms:8.1f}{mark}{row.callback_ms:8}{held}"
            f"{row.answer_ms:9.1f}{row.sent:6}{row.memory_mib:7}  {row.attack}  {row.callback}",
            flush=True,
        )


if __name__ == "__main__":
    main()
