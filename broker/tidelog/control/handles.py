"""The control calls as Python methods for asyncio: `cluster.topics` and its like.

`blocking.py` has the same for code without asyncio, and is generated from this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tidelog.control.values import as_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.control.clock import Clocks
    from tidelog.control.last_requests import LastRequests, RequestState
    from tidelog.control.losing import Lost
    from tidelog.control.making import Made

__all__ = ["Ask", "Clock", "Groups", "Logs", "Tier", "Topics", "Transactions"]

Value = str | int | float | bool


class Ask(Protocol):
    """Performs a call by its name; ControlError if it is refused."""

    async def __call__(self, call: str, args: Mapping[str, Any]) -> Any:
        """Return the result."""
        ...


class Clock:
    """The time of a cluster's brokers. What moves with it is in docs/testing.md."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def describe(self) -> Clocks:
        """Return the clocks of the running brokers."""
        return _clocks(await self._ask("clock.describe", {}))

    async def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        expire_sessions: bool = False,
    ) -> Clocks:
        """Let time pass at once on all running brokers, with all work that falls due in it.

        Group members and open transactions outlive it, unless `expire_sessions` is set.
        """
        lengths = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
        args = {**lengths, "expire_sessions": expire_sessions}
        return _clocks(await self._ask("clock.advance", args))

    async def freeze(self) -> Clocks:
        """Stop the wall clock and all periodic work; sessions go on in real time."""
        return _clocks(await self._ask("clock.freeze", {}))

    async def resume(self) -> Clocks:
        """Let time pass as fast as the machine's again, from where it is."""
        return _clocks(await self._ask("clock.resume", {}))

    async def speed(self, speed: float) -> Clocks:
        """Let so many seconds pass in a second; sessions go on in real time."""
        return _clocks(await self._ask("clock.speed", {"speed": speed}))

    async def skew(self, broker: int, ms: int) -> Clocks:
        """Let the wall clock of one broker, by its node id, be ahead of the others' by `ms`;
        behind if negative. Its timers are not moved."""
        return _clocks(await self._ask("clock.skew", {"broker": broker, "ms": ms}))

    async def reset(self) -> Clocks:
        """Show the machine's wall clock again on all brokers, at normal speed, without skew."""
        return _clocks(await self._ask("clock.reset", {}))


def _clocks(answer: Any) -> Clocks:
    clocks: Clocks = answer
    return clocks


class Topics:
    """The topics of a cluster."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def create(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, Value] | None = None,
    ) -> None:
        """Create a topic, and wait until all running brokers serve it.

        -1 partitions or replicas are the broker's `num.partitions` and
        `default.replication.factor`. `config` has the topic's settings by their Kafka names.
        """
        await self._ask(
            "topics.create",
            {
                "name": name,
                "partitions": partitions,
                "replication_factor": replication_factor,
                "config": dict(config or {}),
            },
        )

    async def delete(self, name: str, *, missing_ok: bool = False) -> None:
        """Delete a topic, and wait until no running broker knows it."""
        await self._ask("topics.delete", {"name": name, "missing_ok": missing_ok})

    async def roll(self, topic: str | None = None, partition: int | None = None) -> None:
        """Seal the active segment of each log of a topic, and begin a new one.

        As in all these methods, no partition means all of them, and no topic all but Kafka's own.
        """
        await self._ask("topics.roll", {"topic": topic, "partition": partition})

    async def flush(self, topic: str | None = None, partition: int | None = None) -> None:
        """Make all records durable."""
        await self._ask("topics.flush", {"topic": topic, "partition": partition})

    async def retain(self, topic: str | None = None, partition: int | None = None) -> int:
        """Delete the segments that retention allows; return how many the leaders had."""
        asked = {"topic": topic, "partition": partition}
        count: int = (await self._ask("topics.retain", asked)).count
        return count

    async def compact(self, topic: str | None = None, partition: int | None = None) -> int:
        """Seal the active segments, and compact however little is dirty; return how many leaders'
        logs were compacted. `min.compaction.lag.ms` still counts."""
        asked = {"topic": topic, "partition": partition}
        count: int = (await self._ask("topics.compact", asked)).count
        return count

    async def delete_records(self, topic: str, partition: int, before_offset: int = -1) -> None:
        """Delete the records of a partition before an offset; -1 is the high watermark."""
        asked = {"topic": topic, "partition": partition, "before_offset": before_offset}
        await self._ask("topics.delete_records", asked)

    async def elect(self, topic: str, partition: int, *, unclean: bool = False) -> None:
        """Elect the preferred leader of a partition.

        `unclean` elects a replica that is not in sync if the partition has no leader.
        """
        asked = {"topic": topic, "partition": partition, "unclean": unclean}
        await self._ask("topics.elect", asked)

    async def move(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Move a partition to these brokers, and return when they have it. The first is the
        preferred leader; `elect` makes it lead."""
        asked = {"topic": topic, "partition": partition, "replicas": as_list(replicas)}
        await self._ask("topics.move", asked)

    async def expire_producer(
        self, producer_id: int, topic: str | None = None, partition: int | None = None
    ) -> int:
        """Let logs forget a producer id, as `producer.id.expiration.ms` does later; return how many
        leaders' logs did. One in an open transaction stays."""
        asked = {"producer_id": producer_id, "topic": topic, "partition": partition}
        count: int = (await self._ask("topics.expire_producer", asked)).count
        return count

    async def make_gap(self, topic: str, partition: int = 0, count: int = 1) -> Made:
        """Append `count` offsets that have no record: an empty batch, as compaction leaves it."""
        return await self._make("gap", topic, partition, {"count": count})

    async def make_control_batch(
        self, topic: str, partition: int = 0, *, commit: bool = True
    ) -> Made:
        """Append a control batch: the end marker of a transaction that wrote nothing here."""
        return await self._make("control_batch", topic, partition, {"commit": commit})

    async def make_aborted(
        self, topic: str, partition: int = 0, values: Sequence[str] = ("aborted",)
    ) -> Made:
        """Append records with these values in a transaction, and the marker that aborts it."""
        return await self._make("aborted", topic, partition, {"values": as_list(values)})

    async def make_tombstones(self, topic: str, keys: Sequence[str], partition: int = 0) -> Made:
        """Append a record without value for each key."""
        return await self._make("tombstones", topic, partition, {"keys": as_list(keys)})

    async def _make(self, what: str, topic: str, partition: int, more: dict[str, Any]) -> Made:
        asked = {"topic": topic, "partition": partition, **more}
        made: Made = await self._ask(f"topics.make_{what}", asked)
        return made

    async def truncate(self, topic: str, partition: int, broker: int, offset: int) -> int:
        """Truncate the log of a follower to an offset, or to the start of the batch that has it;
        return where it ended. The follower fetches the rest again at once, unless
        `network.cut` keeps it from its leader."""
        asked = {"topic": topic, "partition": partition, "broker": broker, "offset": offset}
        end: int = (await self._ask("topics.truncate", asked)).offset
        return end

    async def lose(
        self,
        topic: str,
        partition: int = 0,
        *,
        offset: int,
        broker: int | None = None,
    ) -> Lost:
        """Lose the records from an offset on, committed or not, as an unclean election does.

        A follower, by default any, is truncated to the offset, or to the start of the batch that
        has it, and leads in a new epoch; the others truncate their logs and follow it. Returns
        when all replicas that run are in sync.
        """
        asked = {"topic": topic, "partition": partition, "offset": offset, "broker": broker}
        lost: Lost = await self._ask("topics.lose", asked)
        return lost


class Groups:
    """The consumer groups of a cluster."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def move(self, group_id: str, broker: int) -> None:
        """Let another broker coordinate a group, with all groups of the same partition of
        `__consumer_offsets`, and return when it does."""
        await self._ask("groups.move", {"group_id": group_id, "broker": broker})

    async def expire(self, group_id: str, member_id: str | None = None) -> int:
        """Let the session of a member, by default of all, time out now; return how many have left.

        A member whose JoinGroup or SyncGroup waits for an answer stays, as in Kafka.
        """
        asked = {"group_id": group_id, "member_id": member_id}
        count: int = (await self._ask("groups.expire", asked)).count
        return count


class Transactions:
    """The transactional ids of a cluster."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def move(self, transactional_id: str, broker: int) -> None:
        """Let another broker coordinate a transactional id, with all ids of the same partition of
        `__transaction_state`, and return when it does."""
        asked = {"transactional_id": transactional_id, "broker": broker}
        await self._ask("transactions.move", asked)


class Tier:
    """The remote tier of a cluster."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def copy(self, topic: str | None = None, partition: int | None = None) -> None:
        """Seal the active segments, and return when all sealed ones are in the remote tier."""
        await self._ask("tier.copy", {"topic": topic, "partition": partition})

    async def expire(self, topic: str | None = None, partition: int | None = None) -> None:
        """Delete the remote segments that retention allows."""
        await self._ask("tier.expire", {"topic": topic, "partition": partition})


class Logs:
    """What the brokers of a cluster log."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def level(self, part: str, level: str) -> dict[str, str]:
        """Set what a part logs: debug, info, warning, error, or inherited; return all levels.

        `requests` has a line for each request at debug: broker, client, API, version, time, error.
        `all` has all parts without a level of their own.
        """
        asked = {"part": part, "level": level}
        levels: dict[str, str] = (await self._ask("logs.level", asked)).levels
        return levels

    async def requests(self) -> tuple[RequestState, ...]:
        """Return the last requests of clients, oldest first; each broker keeps 100.

        They are kept from the first call on, until there was none for half a minute.
        """
        found: LastRequests = await self._ask("logs.requests", {})
        return found.requests

    async def reset(self) -> None:
        """Let all parts log again what their process logs."""
        await self._ask("logs.reset", {})
