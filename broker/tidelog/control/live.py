"""The state of a cluster as a stream of changes, for the page: `GET /events`.

What is shown is one flat object: `cluster`, `requests`, `broker/1`, `clock/1`, `topic/orders`,
`partition/orders/0`, `group/…`, `transaction/…`, `fault/3`, `link/1/clients`, `device/1/disk`. Its
values are those of the calls that read: `brokers.describe`, `clock.describe`, `cluster.state`,
`faults.list`, `network.list`, `devices.list`, `logs.requests`; a link or a device has a list of its
faults. The first event has all of it, each later one what changed, with null for what is gone.

The cluster is read four times a second at most, once for all listeners, and not without one.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from tidelog.control.values import to_json
from tidelog.control.wire import error_form

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from tidelog.control.state import ClusterState, TopicState

__all__ = ["LISTENERS_MAX", "Live"]

LISTENERS_MAX = 16
PAUSE_S = 0.25
REST = 4  # how many times longer than a look the pause after it is, at least
REQUESTS_MAX = 40
PARTITIONS_AT_ONCE = 50  # then others on this loop have their turn
_ABSENT = object()


class Live:
    """What all listeners of one door see."""

    def __init__(self, ask: Callable[[str, Mapping[str, Any]], Awaitable[Any]]) -> None:
        """`ask` performs a call of the cluster and returns its result."""
        self._ask = ask
        self._values: dict[str, Any] = {}
        self._looked = asyncio.Event()
        self._looks: asyncio.Task[None] | None = None
        self._listeners = 0
        self._is_ended = False

    @property
    def is_full(self) -> bool:
        """Whether it has as many listeners as it takes."""
        return self._listeners >= LISTENERS_MAX

    async def events(self) -> AsyncIterator[bytes]:
        """Yield server-sent events until the door closes or the listener leaves.

        A slow listener gets fewer events, never a queue of them.
        """
        self._listeners += 1
        if self._looks is None:
            self._looks = asyncio.create_task(self._look_again(), name="state for the page")
        seen: dict[str, Any] = {}
        try:
            while not self._is_ended:
                looked, values = self._looked, self._values
                changes = _changes(seen, values)
                seen = values
                if changes:
                    yield b"data: " + json.dumps(changes, separators=(",", ":")).encode() + b"\n\n"
                if looked is self._looked:
                    await looked.wait()
        finally:
            self._listeners -= 1
            if not self._listeners:
                self._stop_looking()

    def end(self) -> None:
        """End all streams: the door closes."""
        self._is_ended = True
        self._stop_looking()
        self._looked.set()

    def _stop_looking(self) -> None:
        if self._looks is not None:
            self._looks.cancel()
            self._looks = None
        self._values = {}

    async def _look_again(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            begun_s = loop.time()
            try:
                self._values = await self._look()
            except Exception as error:  # noqa: BLE001 - shown beside the last state
                self._values = {**self._values, "error": error_form(error)["message"]}
            looked, self._looked = self._looked, asyncio.Event()
            looked.set()
            await asyncio.sleep(max(PAUSE_S, REST * (loop.time() - begun_s)))

    async def _look(self) -> dict[str, Any]:
        """Read everything, as one flat object."""
        brokers, clocks, state, faults, links, devices, last = await asyncio.gather(
            self._ask("brokers.describe", {}),
            self._ask("clock.describe", {}),
            self._ask("cluster.state", {}),
            self._ask("faults.list", {}),
            self._ask("network.list", {}),
            self._ask("devices.list", {}),
            self._ask("logs.requests", {}),
        )
        values: dict[str, Any] = {
            "cluster": {
                "bootstrap_servers": brokers.bootstrap_servers,
                "controller": state.controller,
                "speed": clocks.speed,
            },
            "requests": to_json(last.requests[-REQUESTS_MAX:]),
        }
        running = {broker.node_id: to_json(broker) for broker in state.brokers}
        for broker in brokers.brokers:
            known = running.get(broker.node_id, {})
            known.pop("wall_ms", None)  # `clock/` has it; it always changes
            values[f"broker/{broker.node_id}"] = to_json(broker) | known
        for node_id, clock in clocks.brokers.items():
            values[f"clock/{node_id}"] = to_json(clock)
        for rule in faults.rules:
            values[f"fault/{rule.id}"] = to_json(rule)
        for link in links.links:
            ends = "/".join(sorted(map(str, link.ends)))
            values.setdefault(f"link/{ends}", []).append(to_json(link))
        for each in devices.devices:
            values.setdefault(f"device/{each.broker}/{each.device}", []).append(to_json(each))
        values.update(_coordinated(state))
        for topic in state.topics:
            for number, (key, value) in enumerate(_topic(topic)):
                values[key] = value
                if number % PARTITIONS_AT_ONCE == 0:
                    await asyncio.sleep(0)
        return values


def _coordinated(state: ClusterState) -> Iterator[tuple[str, Any]]:
    for group in state.groups:
        yield f"group/{group.group_id}", to_json(group)
    for transaction in state.transactions:
        yield f"transaction/{transaction.transactional_id}", to_json(transaction)


def _topic(topic: TopicState) -> Iterator[tuple[str, Any]]:
    yield (
        f"topic/{topic.name}",
        {"name": topic.name, "config": topic.config, "partitions": len(topic.partitions)},
    )
    for partition in topic.partitions:
        yield f"partition/{topic.name}/{partition.partition}", to_json(partition)


def _changes(seen: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return what is not as it was seen, and None for what is gone."""
    if seen is values:
        return {}
    changed = {key: value for key, value in values.items() if seen.get(key, _ABSENT) != value}
    return changed | dict.fromkeys(seen.keys() - values.keys())
