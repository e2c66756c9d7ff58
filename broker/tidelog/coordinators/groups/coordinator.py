"""The group coordinator: groups of the partitions of `__consumer_offsets` that this broker leads.

It is what all types of groups share: it owns the shards that `LedPartitions` loads and unloads,
sets the groups' timers and appends their records. Their requests come to the `membership.py` of
each type, which call it, as does the metadata log on new images. Of classic groups it performs the
effects: it answers parked requests, too. It does not know the wire. Writes are work for
`awaiting.drive`. Offsets and the administration of groups are in `admin.py`.
"""

# ruff: noqa: PLC0415 - what the first group needs is imported with it: a start is faster without

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING

from tidelog.awaiting import answer_of, drive, turn
from tidelog.cluster.metadata.image import GROUP_METADATA_TOPIC
from tidelog.coordinators.groups.now import Now
from tidelog.coordinators.led_partitions import WRITE_ERRORS, LedPartitions
from tidelog.replication.internal_topics import InternalTopic, partition_for
from tidelog.turns import Turns
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.primitives import ZERO_UUID
from tidelog_protocol.records import ControlType, control_type, iter_records, read_header
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from tidelog.cluster.metadata.delta import MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinators.groups.classic.group import Group
    from tidelog.coordinators.groups.classic.member import (
        CompleteJoin,
        CompleteSync,
        Effect,
        Persist,
    )
    from tidelog.coordinators.groups.consumer.mixed import MixedGroups
    from tidelog.coordinators.groups.kinds import AnyGroup, MemberGroup
    from tidelog.coordinators.groups.modern.records import Record
    from tidelog.coordinators.groups.modern.topics import ImageTopics
    from tidelog.coordinators.groups.offsets import OffsetChange
    from tidelog.coordinators.groups.shard import GroupShard
    from tidelog.replication.internal_topics import KeyValue
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Clock, Timers
    from tidelog_protocol.records import BatchHeader
    from tidelog_protocol.records import Record as LogRecord

__all__ = ["GroupCoordinator", "log_failure"]

logger = logging.getLogger(__name__)
_new = tuple.__new__  # what a NamedTuple's own constructor calls, three times as fast

ANSWERS_AT_ONCE = 500  # of the parked requests of a group, in one turn of the loop
ENCODED_AT_ONCE = 500  # offsets of a commit, in one turn of the loop
RESUMED_AT_ONCE = 500  # groups of a shard that was loaded, in one turn of the loop
RETRY_MS = 500  # before what is due is written again, as Kafka's CoordinatorTimer waits
TOMBSTONES_MAX = 1000  # in one batch of expiry: far below max.message.bytes


class GroupCoordinator:
    """Groups by partition, their timers and their records."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        replica_manager: ReplicaManager,
    ) -> None:
        """`timers` is the time of sessions."""
        self.config = config
        self.topic = InternalTopic(
            GROUP_METADATA_TOPIC,
            replica_manager,
            commit_timeout_ms=config.offsets_commit_timeout_ms,
            codec=config.offsets_topic_compression_codec,
            load_buffer_bytes=config.offsets_load_buffer_size,
        )
        self._clock = clock
        self._timers = timers
        self.led: LedPartitions[GroupShard] = LedPartitions(
            self.topic, replica_manager.node_id, timers, self
        )
        self._image: ClusterImage | None = None  # the latest one
        self._topics: ImageTopics | None = None  # those of it
        self._configured_as = config  # with the dynamic settings of the image

    # ---- elections ---------------------------------------------------------------------------

    def on_image(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Follow the cluster."""
        acls = image.acls if self._image is None else self._image.acls
        self._image, self._topics = image, None
        is_reconfigured = delta.configures(self.config.node_id)
        if is_reconfigured:
            dynamic = image.broker_config(self.config.node_id)
            self._configured_as = self.config.with_dynamic(dynamic)
        self.led.on_image(delta, image)
        self._topics_deleted(
            [
                (topic.name, topic.topic_id)
                for topic in delta.deleted_topics
                if topic.name != GROUP_METADATA_TOPIC
            ]
        )
        # ACLs decide what patterns match; Kafka matches again after 10 minutes.
        has_new_acls = image.acls is not acls and image.acls != acls
        if delta.topics or delta.deleted_topics or has_new_acls:
            self._topics_changed()
        if is_reconfigured:
            self._all_configured()
        else:
            for group_id in delta.group_configs:
                self._configured(group_id)

    def close(self) -> None:
        """Unload all groups, as if another broker had taken over."""
        self.led.close()

    def new_shard(self, index: int, leader_epoch: int) -> GroupShard:
        """Create a shard; this and the next three methods are for `LedPartitions`."""
        from tidelog.coordinators.groups.shard import GroupShard

        return GroupShard(index, leader_epoch, self._limits_of)

    def _limits_of(self, group_type: str, group_id: str) -> Any:
        from tidelog.coordinators.groups.limits import limits_of

        assert self._image is not None, "an image makes this broker lead a shard"
        return limits_of(self._configured_as, self._image, group_type, group_id)

    def replay(self, shard: GroupShard, header: BatchHeader, record: LogRecord) -> None:
        """Apply a record of the log."""
        from tidelog.coordinators.groups.records import decode

        if header.is_control:
            kind = control_type(record)
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                is_commit = kind == ControlType.COMMIT
                shard.ended(header.producer_id, record.offset + 1, self.now(), is_commit=is_commit)
            return
        change = decode(record.key, record.value)
        if change is not None:
            producer_id = header.producer_id if header.is_transactional else None
            shard.replay(change, record.offset + 1, self.now(), producer_id)
            shard.advance(self.topic.high_watermark(shard.index))  # all at the end would be long

    def loaded(self, shard: GroupShard) -> None:
        """Start to serve the groups of a loaded shard."""
        Turns(self._timers, self._resume(shard)).begin()

    def _resume(self, shard: GroupShard) -> Iterator[None]:
        """Resume the groups of a shard, and yield between parts; serve them then."""
        from tidelog.coordinators.groups.classic.group import Group

        shard.loaded_end = shard.end_offset
        shard.advance(self.topic.high_watermark(shard.index))
        now = self.now()
        too_large = []
        for number, group in enumerate(list(shard.groups.values()), 1):
            group.resume(now)
            if isinstance(group, Group) and len(group.members) > self.config.group_max_size:
                too_large.append(group)
            else:
                self.watch(shard, group)
            if number % RESUMED_AT_ONCE == 0:
                yield
                if not self.led.holds(shard):
                    return
        shard.is_loading = False
        for group in too_large:
            reason = "it is larger than group.max.size"
            self.perform(shard, group, group.begin_rebalance(reason, now))
        self._forget_topics(shard, _ids_by_name(shard.deleted_topics))
        shard.deleted_topics.clear()

    def resigned(self, shard: GroupShard) -> None:
        """Answer all parked requests and unload the groups of a shard."""
        shard.stop_timers()
        from tidelog.coordinators.groups.classic.group import Group
        from tidelog.coordinators.groups.classic.member import Persist

        now = self.now()
        for group in shard.groups.values():
            if not isinstance(group, Group):
                continue  # its requests wait for the log alone
            for effect in group.unload(ErrorCode.NOT_COORDINATOR, now):
                if not isinstance(effect, Persist):
                    effect.answer()

    def _topics_deleted(self, topics: Sequence[tuple[str, bytes]]) -> None:
        """Delete the offsets of deleted topics at once, before their retention ends."""
        by_name = _ids_by_name(topics)
        for shard in self.led.shards.values():
            if shard.is_loading:
                shard.deleted_topics += topics
            else:
                self._forget_topics(shard, by_name)

    def _forget_topics(self, shard: GroupShard, topics: Mapping[str, Sequence[bytes]]) -> None:
        """Write tombstones of offsets, and take the topics out of share groups. The share
        coordinator deletes its states of them by itself."""
        if not topics:
            return
        self.write_tombstones(shard, shard.forget_topics(topics))
        share_groups = [group for group in shard.groups.values() if group.type == "share"]
        topic_ids = frozenset(chain.from_iterable(topics.values())) if share_groups else frozenset()
        for group in share_groups:
            records = group.forget_topics(topic_ids)
            error = self.append_consumer(shard, group, records) if records else ErrorCode.NONE
            if error is not ErrorCode.NONE:
                logger.warning(
                    "Share group %s keeps deleted topics among its partitions: %s",
                    group.group_id,
                    error.name,
                )

    def _configured(self, group_id: str) -> None:
        """Give a group its new settings. A shorter session begins with a member's heartbeat."""
        found = self.find(group_id)
        if isinstance(found, ErrorCode):
            return
        group = found[1]
        group.limits = self._limits_of(group.type, group_id)

    def _all_configured(self) -> None:
        """Give all groups their settings; most of a type have the same."""
        assert self._image is not None, "an image brings settings"
        shared: dict[str, Any] = {}
        for shard in self.led.active():
            for group_id, group in shard.groups.items():
                if self._image.group_config(group_id):
                    group.limits = self._limits_of(group.type, group_id)
                    continue
                if group.type not in shared:
                    shared[group.type] = self._limits_of(group.type, group_id)
                group.limits = shared[group.type]

    def _topics_changed(self) -> None:
        for shard in self.led.active():
            for group in shard.groups.values():
                group.topics_changed()

    @property
    def topics(self) -> ImageTopics:
        """Return the cluster's topics, as KIP-848 groups see them."""
        if self._topics is None:
            from tidelog.coordinators.groups.modern.topics import ImageTopics

            assert self._image is not None, "an image makes this broker lead a shard"
            self._topics = ImageTopics(self._image)
        return self._topics

    @cached_property
    def mixed(self) -> MixedGroups:
        """Classic members of KIP-848 groups."""
        from tidelog.coordinators.groups.consumer.mixed import MixedGroups

        return MixedGroups(self)

    # ---- look-up -----------------------------------------------------------------------------

    def now(self) -> Now:
        """Return the current time for the group machine."""
        return _new(Now, (self.ticks_ms(), self._clock.wall_ms()))

    def ticks_ms(self) -> int:
        """Return the current time for deadlines."""
        return int(self._timers.time() * 1000)

    def partition_for(self, group_id: str) -> int:
        """Return a group's partition of `__consumer_offsets`."""
        count = self.led.partition_count or self.config.offsets_topic_num_partitions
        return partition_for(group_id, count)

    def shard_of(self, group_id: str) -> GroupShard | ErrorCode:
        """Return a group's shard, or the error if it is not served here now."""
        return self.led.at(self.partition_for(group_id))

    def find(self, group_id: str) -> tuple[GroupShard, AnyGroup] | ErrorCode:
        """Return a group and its shard, or the error."""
        shard = self.shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        group = shard.groups.get(group_id)
        return ErrorCode.GROUP_ID_NOT_FOUND if group is None else (shard, group)

    # ---- sessions ----------------------------------------------------------------------------

    def end_sessions(self, group_id: str, member_id: str | None = None) -> int | ErrorCode | None:
        """Time out a member, by default all, now; return how many have left, None if there is no
        such member."""
        found = self.find(group_id)
        if isinstance(found, ErrorCode):
            return found
        from tidelog.coordinators.groups.classic.group import Group

        shard, group = found
        if member_id is not None and member_id not in group.members:
            return None
        count = len(group.members)
        chosen = list(group.members) if member_id is None else [member_id]
        if not isinstance(group, Group):
            records = group.fence(chosen, self.topics) if chosen else []
            self._write_due(shard, group, records)
            after = shard.groups.get(group_id)  # it may be a classic group now
            return count - (0 if after is None else len(after.members))
        effects = group.end_sessions(chosen, self.now())
        left = count - len(group.members)
        self.perform(shard, group, effects)
        return left

    # ---- effects -----------------------------------------------------------------------------

    def perform(self, shard: GroupShard, group: Group, effects: Sequence[Effect]) -> None:
        """Perform the effects of a step, then set the group's timer. Thousands of answers come in
        the loop's next turns."""
        from tidelog.coordinators.groups.classic.member import Persist

        answers: deque[CompleteJoin | CompleteSync] = deque()
        for effect in effects:
            if isinstance(effect, Persist):
                drive(self._persist(shard, group, effect))
            elif len(effects) <= ANSWERS_AT_ONCE:
                effect.answer()
            else:
                answers.append(effect)
        if answers:
            asyncio.get_running_loop().call_soon(_answer_in_turns, answers)
        self.watch(shard, group)

    async def _persist(self, shard: GroupShard, group: Group, effect: Persist) -> None:
        from tidelog.coordinators.groups.classic.records import group_record

        error = await self._write(shard, [group_record(group, effect.assignments)])
        if effect.then is None:
            log_failure(error)
        else:
            self.perform(shard, group, group.stored(effect.then, error, self.now()))

    def watch(self, shard: GroupShard, group: AnyGroup, earliest_ms: int = 0) -> None:
        """Set the one timer of a group, no later than its next deadline, or than `earliest_ms`.

        Heartbeats only move deadlines later and do not call this: the timer fires early once per
        session, finds nothing due and is set again.
        """
        group_id = group.group_id
        if shard.groups.get(group_id, group) is not group:
            return  # another one has taken its place
        deadline_ms = group.next_deadline_ms()
        watch = shard.watches.get(group_id)
        if deadline_ms is None or not self.led.holds(shard):
            if watch is not None:
                watch.handle.cancel()
                del shard.watches[group_id]
            return
        if watch is not None:
            if watch.at_ms <= deadline_ms:
                return
            watch.handle.cancel()
        from tidelog.coordinators.groups.shard import Watch

        deadline_ms = max(deadline_ms, earliest_ms)
        now_s = self._timers.time()
        wait_s = max(deadline_ms - now_s * 1000, 0) / 1000
        handle = self._timers.call_at(now_s + wait_s, self._expire, shard, group)
        shard.watches[group_id] = Watch(handle, deadline_ms)

    def expire_due(self, shard: GroupShard, group: AnyGroup) -> None:
        """End what is due in a group now: a busy loop reads requests before it looks at timers."""
        watch = shard.watches.get(group.group_id)
        if watch is not None and watch.at_ms <= self.ticks_ms():
            watch.handle.cancel()
            self._expire(shard, group)

    def _expire(self, shard: GroupShard, watched: AnyGroup) -> None:
        from tidelog.coordinators.groups.classic.group import Group

        shard.watches.pop(watched.group_id, None)
        group = shard.groups.get(watched.group_id)  # another one may have taken its place
        if group is None or not self.led.holds(shard):
            return
        if isinstance(group, Group):
            self.perform(shard, group, group.expire(self.now()))
        else:
            self._write_due(shard, group, group.expire(self.topics, self.now()))

    def watch_session(self, shard: GroupShard, group: MemberGroup, ticks_ms: int) -> None:
        """Set a group's timer again if a session may end before it: its timeout is shorter now."""
        watch = shard.watches.get(group.group_id)
        ends_ms = ticks_ms + group.limits.session_timeout_ms
        if watch is None or watch.at_ms > ends_ms:
            self.watch(shard, group)

    def _write_due(self, shard: GroupShard, group: MemberGroup, records: Sequence[Record]) -> None:
        """Write what is due in a group at some time, if anything is: its members' removal, or the
        first assignment of a streams group."""
        earliest_ms = 0
        if not records:
            error = ErrorCode.NONE
        elif group.type == "consumer":
            error = self.mixed.remove(shard, group, records)
        else:
            error = self.append_consumer(shard, group, records)
        if error is not ErrorCode.NONE:
            logger.warning(
                "The members of group %s stay for another session: what was due could not be "
                "written: %s",
                group.group_id,
                error.name,
            )
            now = self.now()
            group.resume(now)  # members may have no time at all to revoke
            earliest_ms = now.ticks_ms + RETRY_MS
        self.watch(shard, group, earliest_ms)

    # ---- writing -----------------------------------------------------------------------------

    async def write_offsets(
        self,
        shard: GroupShard,
        changes: Sequence[OffsetChange],
        records: Sequence[KeyValue] | None = None,
    ) -> ErrorCode:
        """Write offsets or their tombstones as one batch; return when it is committed, or has
        failed. `records` if they are encoded already."""
        if not changes:
            return ErrorCode.NONE
        return await self._write(shard, records or _encoded(changes), changes)

    async def encoded(self, changes: Sequence[OffsetChange]) -> list[KeyValue]:
        """Return the records of offsets. Thousands are encoded in several turns of the loop: look
        for their group after that."""
        records: list[KeyValue] = []
        for start in range(0, len(changes), ENCODED_AT_ONCE):
            if start:
                await turn()
            records += _encoded(changes[start : start + ENCODED_AT_ONCE])
        return records

    async def write_transactional_offsets(
        self,
        shard: GroupShard,
        changes: Sequence[OffsetChange],
        producer: tuple[int, int],
        records: Sequence[KeyValue] | None = None,
    ) -> ErrorCode:
        """Write offsets that take effect when this producer's transaction commits."""
        now = self.now()
        try:
            end_offset = self.topic.append_in_transaction(
                shard.index,
                records or _encoded(changes),
                producer,
                leader_epoch=shard.leader_epoch,
                now_ms=now.wall_ms,
            )
        except StorageError as error:
            return WRITE_ERRORS.get(error.code, error.code)
        shard.appended_in_transaction(changes, end_offset, producer[0], now)
        return await self.settled(shard)

    async def end_transaction(self, index: int, marker: memoryview) -> ErrorCode:
        """Append a marker to a partition of `__consumer_offsets`, which commits or drops the
        offsets that waited for it. The error is one of Produce."""
        shard = self.led.at(index)
        if isinstance(shard, ErrorCode):
            # not here, or not loaded yet: the caller retries
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        header = read_header(marker)
        kind = control_type(next(iter_records(marker)))
        now = self.now()
        try:
            end_offset = self.topic.append_batch(
                index, marker, leader_epoch=shard.leader_epoch, now_ms=now.wall_ms
            )
        except StorageError as error:
            return error.code
        is_commit = kind == ControlType.COMMIT
        shard.ended(header.producer_id, end_offset, now, is_commit=is_commit)
        return await answer_of(partial(self.topic.commit, index, shard.end_offset))

    def write_tombstones(self, shard: GroupShard, changes: Sequence[OffsetChange]) -> None:
        """Write any number of tombstones, without a result."""
        for start in range(0, len(changes), TOMBSTONES_MAX):
            some = changes[start : start + TOMBSTONES_MAX]
            drive(self.write_offsets(shard, some), log_failure)

    async def remove(
        self, shard: GroupShard, group: AnyGroup, changes: Sequence[OffsetChange]
    ) -> ErrorCode:
        """Delete a group with these tombstones of its offsets. Members that are left get
        UNKNOWN_MEMBER_ID."""
        from tidelog.coordinators.groups.classic.group import Group
        from tidelog.coordinators.groups.records import offset_record, tombstones

        records = [*(offset_record(change) for change in changes), *tombstones(group)]
        del shard.groups[group.group_id]
        error = self._append(shard, records, changes)
        if error is not ErrorCode.NONE:
            shard.groups[group.group_id] = group
            return error
        if isinstance(group, Group):
            self.perform(shard, group, group.unload(ErrorCode.UNKNOWN_MEMBER_ID, self.now()))
        return await self.settled(shard)

    async def settled(self, shard: GroupShard) -> ErrorCode:
        """Return when everything written so far is committed, or has failed."""
        error = self.settled_now(shard)
        return await self.settled_later(shard) if error is None else error

    def settled_now(self, shard: GroupShard, *, wrote: bool = True) -> ErrorCode | None:
        """Return the answer of `settled` if it is decided now, as without followers; else None, and
        the caller awaits `settled_later`. `wrote` is whether anything written is the caller's: most
        heartbeats write nothing, and then mostly nothing waits."""
        topic, index, end_offset = self.topic, shard.index, shard.end_offset
        if not wrote and self.is_committed(shard):
            return ErrorCode.NONE
        error = topic.commit_at_once(index, end_offset)
        if error is None:
            return None
        if error is ErrorCode.NONE:
            shard.settled_end = end_offset
        self.advance(shard)
        return WRITE_ERRORS.get(error, error)

    def is_committed(self, shard: GroupShard) -> bool:
        """Return whether everything written to a shard is committed."""
        end_offset = shard.end_offset
        if shard.settled_end != end_offset and self.topic.is_committed(shard.index, end_offset):
            shard.settled_end = end_offset
        return shard.settled_end == end_offset

    async def settled_later(self, shard: GroupShard) -> ErrorCode:
        """Return the answer of `settled`, right after `settled_now` could not."""
        committing = partial(self.topic.await_commit, shard.index, shard.end_offset)
        error: ErrorCode = await answer_of(committing)
        self.advance(shard)
        return WRITE_ERRORS.get(error, error)

    def advance(self, shard: GroupShard) -> None:
        """Show readers what is now committed."""
        if not shard.has_uncommitted:
            return
        try:
            shard.advance(self.topic.high_watermark(shard.index))
        except StorageError:
            return  # the partition has left this broker, as the next image shows

    async def _write(
        self,
        shard: GroupShard,
        records: Sequence[KeyValue],
        changes: Sequence[OffsetChange] = (),
    ) -> ErrorCode:
        """Write one batch; return when it is committed, or has failed."""
        error = self._append(shard, records, changes)
        return await self.settled(shard) if error is ErrorCode.NONE else error

    def append_consumer(
        self,
        shard: GroupShard,
        group: MemberGroup,
        records: Sequence[Record],
        now: Now | None = None,
        last: tuple[KeyValue, Callable[[], None]] | None = None,
    ) -> ErrorCode:
        """Append records of a consumer, share or streams group as one batch, then apply them;
        `last` is the last one, encoded, and how it is applied. The group may take the place of an
        empty classic one."""
        before = shard.groups.get(group.group_id)
        encoded = list(map(self._encode, records))
        if last is not None:
            encoded.append(last[0])
        if before is not None and before is not group:
            from tidelog.coordinators.groups.records import tombstones

            encoded = [*tombstones(before), *encoded]
        error = self._append(shard, encoded, (), now)
        if error is ErrorCode.NONE:
            shard.groups[group.group_id] = group
            for record in records:
                group.replay(record)
            if last is not None:
                last[1]()
            self.watch(shard, group)
        return error

    @cached_property
    def _encode(self) -> Callable[[Record], KeyValue]:
        from tidelog.coordinators.groups.modern.records import encode

        return encode

    def append_swap(
        self, shard: GroupShard, group: Group, records: Sequence[KeyValue]
    ) -> ErrorCode:
        """Append records by which a classic group takes the place of a KIP-848 group."""
        error = self._append(shard, records, ())
        if error is ErrorCode.NONE:
            shard.groups[group.group_id] = group
        return error

    def upgraded(self, shard: GroupShard, group: Group) -> None:
        """Have the members of a classic group, whose place a KIP-848 group has taken, join it."""
        logger.info("Classic group %s has become a consumer group", group.group_id)
        self.perform(shard, group, group.unload(ErrorCode.REBALANCE_IN_PROGRESS, self.now()))

    def _append(
        self,
        shard: GroupShard,
        records: Sequence[KeyValue],
        changes: Sequence[OffsetChange],
        now: Now | None = None,
    ) -> ErrorCode:
        """Append one batch; after an error nothing is written."""
        now = now or self.now()
        try:
            end_offset = self.topic.append(
                shard.index, records, leader_epoch=shard.leader_epoch, now_ms=now.wall_ms
            )
        except StorageError as error:
            return WRITE_ERRORS.get(error.code, error.code)
        shard.appended(changes, end_offset, now)
        return ErrorCode.NONE


def _ids_by_name(topics: Sequence[tuple[str, bytes]]) -> dict[str, list[bytes]]:
    """Return the ids of deleted topics by name, with that of offsets without one."""
    ids: dict[str, list[bytes]] = {}
    for name, topic_id in topics:
        ids.setdefault(name, [ZERO_UUID]).append(topic_id)
    return ids


def _encoded(changes: Sequence[OffsetChange]) -> list[KeyValue]:
    from tidelog.coordinators.groups.records import offset_record

    return [offset_record(change) for change in changes]


def log_failure(error: ErrorCode) -> None:
    """Log a write that nothing waits for, if it has failed."""
    if error is not ErrorCode.NONE:
        logger.warning("A write to __consumer_offsets was not committed: %s", error.name)


def _answer_in_turns(answers: deque[CompleteJoin | CompleteSync]) -> None:
    room = ANSWERS_AT_ONCE
    while answers and room > 0:
        each = answers.popleft()
        room -= each.weight
        each.answer()
    if answers:
        asyncio.get_running_loop().call_soon(_answer_in_turns, answers)
