"""The ops every client driver serves, one JSON object a line each way (compat.line_process).

All carry `op` and `bootstrap`. Keys, values and header values are base64 or null.

| op | fields | answer |
|---|---|---|
| produce | topic, records [{key, value, headers, timestamp, partition}], codec, acks, idempotent | offsets [[partition, offset]] |
| consume | topic, partition, from (offset or "earliest"), count, committed? (read_committed; else the client's default) | records [{partition, offset, timestamp, key, value, headers}] |
| join | member, group, topic, session_timeout_ms or (Java, librdkafka, Go) protocol "consumer", instance? | |
| assignment, consumed, commit, leave | member | partitions; records; ; |
| committed | group, topic, partition | offset (-1: none) |
| offsets | topic, partition, at ("earliest", "latest" or a timestamp) | offset (-1: none) |
| create_topic | topic, partitions, configs | |
| delete_topic, describe_topic | topic | partitions, leader |
| topics | | topics |
| delete_records | topic, partition, before | low_watermark |
| txn_open | producer, transactional_id, timeout_ms? | (a producer of this name, its transactions initialised) |
| txn_send | producer, topic, records, begin (a transaction first) | (all are acknowledged) |
| txn_end | producer, commit (else abort) | |
| txn_close | producer | |
| txn_init, txn_offsets | below | |
| share_open, share_close | member; group, topic, settings (Java and librdkafka) | |
| share_poll | member, wait_ms | records [[offset, value, deliveries]] |
| share_commit | member, marks [[offset, "ACCEPT", "RELEASE", "REJECT" or (not librdkafka) "RENEW"]] | errors |
| copy | topic, to, group, transactional_id, count, commit | copied (so many, with their offsets in one transaction) |

Of Java, librdkafka and Go alone: members of share groups.

Of Java and librdkafka alone: `txn_open` with init (false: later, by `txn_init`), max_block_ms (of
each call) and delivery_timeout_ms; `txn_offsets` with producer, group, topic, partition, offset and
metadata; `txn_close` with at_once; `txn_end` and the like with max_block_ms; `consume` with
fetch_min_bytes and fetch_max_wait_ms; the metadata in what `committed` answers.

Python drivers subclass `Driver`; Java's is java/Client.java, Go's go/client/main.go.
"""  # noqa: E501

from __future__ import annotations

import base64
import json
import queue
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S = 60.0


def encoded(data: bytes | None) -> str | None:
    """Bytes for JSON."""
    return None if data is None else base64.b64encode(data).decode()


def decoded(text: str | None) -> bytes | None:
    """Bytes from JSON."""
    return None if text is None else base64.b64decode(text)


def deadline(seconds: float = WAIT_S) -> Callable[[], bool]:
    """A function telling whether the time is over."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


class Member:
    """One consumer of a group on its own thread; work on it is queued to that thread."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.records: list[dict[str, Any]] = []
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]]] = (
            queue.SimpleQueue()
        )
        self._running = True
        self._thread = threading.Thread(target=self._run, args=(request,), daemon=True)
        self._thread.start()

    def open(self, request: dict[str, Any]) -> None:
        """Create and subscribe the consumer."""
        raise NotImplementedError

    def poll(self) -> list[dict[str, Any]]:
        """Poll for at most 50 ms."""
        raise NotImplementedError

    def assignment(self) -> list[int]:
        """Partitions assigned now."""
        raise NotImplementedError

    def commit(self) -> None:
        """Commit positions and wait."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the group."""
        raise NotImplementedError

    def _run(self, request: dict[str, Any]) -> None:
        self.open(request)
        while self._running:
            self.records += self.poll()
            while not self._work.empty():
                job, result = self._work.get()
                try:
                    result.put((job(), None))
                except Exception as failure:  # noqa: BLE001 - handed to the caller
                    result.put((None, failure))
        self.close()

    def queued(self, job: Callable[[], Any]) -> Any:
        """Run the job on the consumer's thread."""
        result: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._work.put((job, result))
        value, failure = result.get(timeout=WAIT_S)
        if failure is not None:
            raise failure
        return value

    def leave(self) -> None:
        """End the thread, the consumer leaving its group."""
        self._running = False
        self._thread.join(WAIT_S)


class Driver:
    """Serves the ops by methods called `do_<op>(request) -> answer`."""

    member_class: type[Member]

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}

    def do_join(self, request: dict[str, Any]) -> dict[str, Any]:
        self.members[request["member"]] = self.member_class(request)
        return {}

    def do_assignment(self, request: dict[str, Any]) -> dict[str, Any]:
        member = self.members[request["member"]]
        return {"partitions": sorted(member.queued(member.assignment))}

    def do_consumed(self, request: dict[str, Any]) -> dict[str, Any]:
        member = self.members[request["member"]]
        return {"records": member.queued(lambda: list(member.records))}

    def do_commit(self, request: dict[str, Any]) -> dict[str, Any]:
        member = self.members[request["member"]]
        member.queued(member.commit)
        return {}

    def do_leave(self, request: dict[str, Any]) -> dict[str, Any]:
        self.members.pop(request["member"]).leave()
        return {}

    def serve(self) -> None:
        """Answer requests until the input ends."""
        for line in sys.stdin:
            request = json.loads(line)
            try:
                answer = getattr(self, f"do_{request['op']}")(request)
            except Exception as failure:  # noqa: BLE001 - the caller decides
                answer = {"error": f"{type(failure).__name__}: {failure}"}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
