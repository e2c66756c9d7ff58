"""Faults of requests as Python methods for asyncio: `cluster.faults`.

`blocking.py` has the same for code without asyncio, and is generated from this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tidelog.control.faults.rules import Effect, Match, Rule, Trigger
from tidelog.control.values import to_json

if TYPE_CHECKING:
    from tidelog.control.faults.device_faults import Device
    from tidelog.control.faults.link_values import Link
    from tidelog.control.handles import Ask

__all__ = ["Devices", "Fault", "Faults", "Network", "On"]


class Faults:
    """The faults of requests: `cluster.faults.on("Produce", topic="orders").once().error(...)`."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def on(
        self,
        api: str | int | None = None,
        *,
        client_id: str | None = None,
        connection: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        broker: int | None = None,
    ) -> On:
        """Choose requests; None matches any. `*` and `?` in names stand for any characters.

        `api` is a name or a key, `connection` the client's `host:port`, `broker` a node id.
        """
        match = Match(
            api=api,
            client_id=client_id,
            connection=connection,
            topic=topic,
            partition=partition,
            group=group,
            transactional_id=transactional_id,
            broker=broker,
        )
        return On(self._ask, match, Trigger())

    async def add(
        self, effect: Effect, match: Match | None = None, trigger: Trigger | None = None
    ) -> Fault:
        """Add a fault by its values, as over HTTP; `on` says the same in words."""
        values = {"effect": effect, "match": match or Match(), "trigger": trigger or Trigger()}
        args = {name: to_json(value) for name, value in values.items()}
        return Fault(self._ask, await self._ask("faults.add", args))

    async def list(self) -> tuple[Rule, ...]:
        """Return all faults with their calls and hits."""
        rules: tuple[Rule, ...] = (await self._ask("faults.list", {})).rules
        return rules

    async def clear(self) -> None:
        """Remove all faults."""
        await self._ask("faults.clear", {})


class Network:
    """The links between brokers, and between brokers and clients.

    A broker is its node id. What is held travels when the link heals, as after a retransmission.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def cut(
        self,
        broker: int,
        other: int | Literal["clients"],
        *,
        holds: Literal["both", "sent", "received"] = "both",
    ) -> None:
        """Cut a broker from another one or from all clients: both ways, or only what `broker`
        sends, or only what it receives."""
        await self._ask("network.cut", {"broker": broker, "other": other, "holds": holds})

    async def slow(self, broker: int, other: int, seconds: float) -> None:
        """Let each request between two brokers travel for so long."""
        args = {"broker": broker, "other": other, "seconds": seconds}
        await self._ask("network.slow", args)

    async def list(self) -> tuple[Link, ...]:
        """Return the links that are cut or slow, with their hits.

        A hit is a request, or a new connection, that waits for the link, or for an answer over it.
        """
        links: tuple[Link, ...] = (await self._ask("network.list", {})).links
        return links

    async def wait(
        self,
        broker: int,
        other: int | Literal["clients"],
        hits: int = 1,
        *,
        seconds: float = 10.0,
    ) -> int:
        """Wait until the faults of a link have that many hits, together; return how many.
        ControlError after `seconds`."""
        args = {"broker": broker, "other": other, "hits": hits, "seconds": seconds}
        links: tuple[Link, ...] = (await self._ask("network.wait", args)).links
        return sum(link.hits for link in links)

    async def heal(
        self, broker: int | None = None, other: int | Literal["clients"] | None = None
    ) -> None:
        """Heal the link between two ends; all links of one end; without ends, all links."""
        await self._ask("network.heal", {"broker": broker, "other": other})


class Devices:
    """The disk and the remote store of each broker. `topic` limits a fault to one topic."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def _add(self, kind: str, broker: int, trigger: Trigger | None, **fault: Any) -> None:
        when = to_json(trigger or Trigger())
        await self._ask(f"devices.{kind}", {"broker": broker, "trigger": when, **fault})

    async def fill_disk(
        self, broker: int, *, topic: str | None = None, trigger: Trigger | None = None
    ) -> None:
        """Let the disk of a broker be full."""
        await self._add("fill_disk", broker, trigger, topic=topic)

    async def fail_disk(
        self,
        broker: int,
        operations: Literal["all", "reads", "writes", "syncs"] = "all",
        *,
        topic: str | None = None,
        trigger: Trigger | None = None,
    ) -> None:
        """Let operations of a broker's disk fail with EIO."""
        await self._add("fail_disk", broker, trigger, operations=operations, topic=topic)

    async def slow_disk(
        self,
        broker: int,
        seconds: float,
        operations: Literal["all", "reads", "writes", "syncs"] = "all",
        *,
        topic: str | None = None,
        trigger: Trigger | None = None,
    ) -> None:
        """Let each operation of a broker's disk take longer."""
        fault = {"seconds": seconds, "operations": operations, "topic": topic}
        await self._add("slow_disk", broker, trigger, **fault)

    async def fail_store(
        self,
        broker: int,
        operations: Literal["all", "copies", "fetches", "deletions"] = "all",
        *,
        topic: str | None = None,
        trigger: Trigger | None = None,
    ) -> None:
        """Let operations of a broker on the remote store fail."""
        await self._add("fail_store", broker, trigger, operations=operations, topic=topic)

    async def slow_store(
        self,
        broker: int,
        seconds: float,
        operations: Literal["all", "copies", "fetches", "deletions"] = "all",
        *,
        topic: str | None = None,
        trigger: Trigger | None = None,
    ) -> None:
        """Let each operation of a broker on the remote store take longer."""
        fault = {"seconds": seconds, "operations": operations, "topic": topic}
        await self._add("slow_store", broker, trigger, **fault)

    async def throttle_store(
        self,
        broker: int,
        bytes_per_second: int,
        *,
        topic: str | None = None,
        trigger: Trigger | None = None,
    ) -> None:
        """Let a broker's copies to the remote store take so many bytes a second."""
        fault = {"bytes_per_second": bytes_per_second, "topic": topic}
        await self._add("throttle_store", broker, trigger, **fault)

    async def list(self) -> tuple[Device, ...]:
        """Return all faults of disks and stores, with their hits."""
        devices: tuple[Device, ...] = (await self._ask("devices.list", {})).devices
        return devices

    async def wait(
        self, broker: int, device: Literal["disk", "store"], hits: int = 1, *, seconds: float = 10.0
    ) -> int:
        """Wait until the faults of a broker's disk or store have applied so often, together; return
        how often. ControlError after `seconds`."""
        args = {"broker": broker, "device": device, "hits": hits, "seconds": seconds}
        devices: tuple[Device, ...] = (await self._ask("devices.wait", args)).devices
        return sum(each.hits for each in devices)

    async def heal(
        self, broker: int | None = None, device: Literal["disk", "store"] | None = None
    ) -> None:
        """Remove the faults of a broker's disk, or store, or both; without a broker, of all."""
        await self._ask("devices.heal", {"broker": broker, "device": device})


class On:
    """Chosen requests; a trigger limits to which of them a fault applies."""

    def __init__(self, ask: Ask, match: Match, trigger: Trigger) -> None:
        self._ask = ask
        self._match = match
        self._trigger = trigger

    def _when(self, trigger: Trigger) -> On:
        return On(self._ask, self._match, trigger)

    def once(self) -> On:
        """Apply to the first request only."""
        return self._when(Trigger(times=1))

    def times(self, n: int) -> On:
        """Apply to the first `n` requests."""
        return self._when(Trigger(times=n))

    def on_call(self, n: int) -> On:
        """Apply only to request number `n`, counted from 1."""
        return self._when(Trigger(on_call=n))

    def every(self, n: int) -> On:
        """Apply to each request whose number is a multiple of `n`."""
        return self._when(Trigger(every=n))

    def every_time(self) -> On:
        """Apply to all requests, until the fault is removed; the default."""
        return self._when(Trigger())

    def with_probability(self, p: float, *, seed: int = 0) -> On:
        """Apply to each request by chance; the same seed draws the same."""
        return self._when(Trigger(probability=p, seed=seed))

    async def _add(self, effect: Effect) -> Fault:
        return await Faults(self._ask).add(effect, self._match, self._trigger)

    async def error(self, error: str | int) -> Fault:
        """Answer with an error of Kafka, by name or number; the request does no work."""
        return await self._add(Effect("error", error=error))

    async def delay(self, seconds: float) -> Fault:
        """Let the request wait before its work."""
        return await self._add(Effect("delay", seconds=seconds))

    async def delay_answer(self, seconds: float) -> Fault:
        """Let the answer wait after the work."""
        return await self._add(Effect("delay_answer", seconds=seconds))

    async def drop_connection(self, *, after_work: bool = False) -> Fault:
        """Close the connection before the work, or after it and without an answer."""
        return await self._add(Effect("drop_connection", after_work=after_work))

    async def swallow_answer(self) -> Fault:
        """Do the work and answer nothing; the client times out."""
        return await self._add(Effect("swallow_answer"))

    async def stale_leader(self) -> Fault:
        """Let Metadata name another broker as the leader, of the epoch before."""
        return await self._add(Effect("stale_leader"))

    async def throttle(self, seconds: float) -> Fault:
        """Let the answer ask the client to wait, as a quota does."""
        return await self._add(Effect("throttle", seconds=seconds))

    async def corrupt_records(self) -> Fault:
        """Change a byte of the records that are sent (Produce) or answered (Fetch)."""
        return await self._add(Effect("corrupt_records"))

    async def cut_short(self, size: int | None = None) -> Fault:
        """End the records of a Fetch after `size` bytes; in the middle without it."""
        return await self._add(Effect("cut_short", size=size))


class Fault:
    """A fault that was added."""

    def __init__(self, ask: Ask, rule: Rule) -> None:
        self._ask = ask
        self.rule = rule
        """The fault, with the counts of the last call of this handle."""

    def __repr__(self) -> str:
        return f"<Fault {self.rule}>"

    async def wait(self, hits: int = 1, *, seconds: float = 10.0) -> Rule:
        """Wait until it has applied so often; ControlError after `seconds`."""
        args = {"id": self.rule.id, "hits": hits, "seconds": seconds}
        self.rule = await self._ask("faults.wait", args)
        return self.rule

    async def hits(self) -> int:
        """Return how often it has applied."""
        rules = (await self._ask("faults.list", {})).rules
        self.rule = next((rule for rule in rules if rule.id == self.rule.id), self.rule)
        return self.rule.hits

    async def disable(self) -> Rule:
        """Let it match nothing until `enable`; it keeps its counts."""
        self.rule = await self._ask("faults.disable", {"id": self.rule.id})
        return self.rule

    async def enable(self) -> Rule:
        """Let it match again; its trigger goes on from its counts."""
        self.rule = await self._ask("faults.enable", {"id": self.rule.id})
        return self.rule

    async def remove(self) -> Rule:
        """Remove it; return its last counts."""
        self.rule = await self._ask("faults.remove", {"id": self.rule.id})
        return self.rule
