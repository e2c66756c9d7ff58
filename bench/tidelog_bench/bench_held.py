"""What holds the event loop: `python -m tidelog_bench.bench_held [--only TEXT] [--acls] [--known]`.

Each request of `loads/hostile.py`, as wide as its limit, is sent once to a broker in this process.
With `--known` all of its names are the same, of a topic of 2,000 partitions and a group of as many
members.
Prints the longest callback of each that has one above a limit: CPU time of the loop's thread, so
that a busy machine adds little. `bench_hostile.py` measures what other clients see of it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import tidelog
from tidelog.embedded.simple_client import SimpleClient, create_topic
from tidelog.watchdog import watch
from tidelog_bench.bench_groups import await_coordinator
from tidelog_bench.loads.hostile import PLAIN, Names, requests
from tidelog_bench.loads.hostile_floods import add_acls, joins
from tidelog_protocol.messages.cluster import ApiVersionsRequest, MetadataRequest

if TYPE_CHECKING:
    from tidelog.watchdog import SlowCallback
    from tidelog_bench.loads.hostile import Attack

__all__ = ["Held", "held"]

GROUP = "a-group"
NOTICED_MS = 4.0
ANSWER_S_MAX = 20.0
SILENT_MS = 1_800_000
KNOWN, JOINING = 2_000, 20  # partitions and members; connections of the members
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


class Held(NamedTuple):
    """The longest callback that one request led to."""

    request: str
    cpu_ms: float
    where: str


async def held(only: str = "", *, has_acls: bool = False, is_known: bool = False) -> list[Held]:
    """Send each request whose name has this text."""
    async with tidelog.Cluster(AUTHORIZER if has_acls else {}) as cluster:
        at = cluster.bootstrap_servers
        width = KNOWN if is_known else 1
        served, names = await asyncio.to_thread(_prepared, at, width, has_acls=has_acls)
        members = await asyncio.to_thread(_join, at, width) if is_known else []
        gc.collect()
        gc.freeze()  # as a broker's own process does: what was prepared is collected no more
        slow: list[SlowCallback] = []
        end = watch(NOTICED_MS, slow.append)
        try:
            return [
                await _sent(at, attack, slow)
                for attack in requests(served, names, is_known=is_known)
                if only.lower() in attack.name.lower()
            ]
        finally:
            end()
            for member in members:
                member.close()


def _join(at: str, count: int) -> list[socket.socket]:
    """Let so many members join the group; they stay while their connections do."""
    host, _, port = at.rpartition(":")
    members = []
    for _ in range(JOINING):
        member = socket.create_connection((host, int(port)), ANSWER_S_MAX)
        member.sendall(joins(GROUP, count // JOINING, timeout_ms=SILENT_MS))
        members.append(member)
    for member in members:
        member.recv(1)  # the rebalance is over
    return members


def _prepared(at: str, partitions: int, *, has_acls: bool) -> tuple[set[int], Names]:
    create_topic(at, PLAIN, partitions, {})
    if has_acls:
        add_acls(at)
    with SimpleClient(at) as client:
        await_coordinator(client, GROUP)
        known = client.ask(
            MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=PLAIN)])
        )
        versions = client.ask(
            ApiVersionsRequest(client_software_name="b", client_software_version="1")
        )
    served = {each.api_key for each in versions.api_keys}
    return served, Names(PLAIN, known.topics[0].topic_id, GROUP)


async def _sent(at: str, attack: Attack, slow: list[SlowCallback]) -> Held:
    frame = await asyncio.to_thread(attack.frame)
    gc.collect()
    await asyncio.sleep(0)  # this callback is not the broker's
    slow.clear()
    await asyncio.to_thread(_ask, at, frame)
    longest = max(slow, key=lambda each: each.cpu_ms, default=None)
    if longest is None:
        return Held(attack.name, 0.0, "")
    return Held(attack.name, longest.cpu_ms, " < ".join((longest.name, *longest.stack[:4])))


def _ask(at: str, frame: bytes) -> None:
    """Send a request and read its answer, or the end of the connection."""
    host, _, port = at.rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), ANSWER_S_MAX) as client:
        client.sendall(frame)
        head = client.recv(4, socket.MSG_WAITALL)
        left = struct.unpack(">i", head)[0] if len(head) == 4 else 0
        while left:
            got = len(client.recv(min(left, 1 << 20)))
            left = left - got if got else 0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="requests whose name has this text")
    parser.add_argument("--acls", action="store_true", help="an authorizer with 5,000 ACLs")
    parser.add_argument("--known", action="store_true", help="names of what is there, all the same")
    parser.add_argument("--above", type=float, default=25.0, help="CPU time in ms")
    options = parser.parse_args()
    measured = held(options.only, has_acls=options.acls, is_known=options.known)
    for each in asyncio.run(measured):
        if each.cpu_ms >= options.above:
            print(f"{each.cpu_ms:6.0f} ms  {each.request}  {each.where}", flush=True)


if __name__ == "__main__":
    main()
