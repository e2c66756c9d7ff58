"""Moves of this broker's replicas between its log directories (AlterReplicaLogDirs, KIP-113).

It owns the moves and the fetchers that copy replicas. A moving replica has a future replica
(`Partition.future`), which follows it through `local_leader.py` as a follower follows a leader.
When the future one has everything, its log replaces the current one between two steps of the loop
(`LogManager.replace_current`), without an effect on requests.

It is created with the first move, or at the start if a move was interrupted. Kafka: ReplicaManager
(alterReplicaLogDirs), ReplicaAlterLogDirsManager and -Thread.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from tidelog.replication.directory_assignment import Assignment, assign, is_elsewhere
from tidelog.replication.local_leader import LocalLeader, MovePace
from tidelog.replication.partition import Partition
from tidelog.replication.replica_fetcher import FetcherContext, ReplicaFetcher
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.checkpoints import CheckpointError
from tidelog_storage.folders import FOLDER_NAME_MAX, future_folder
from tidelog_storage.open_files import lacks_descriptors
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from tidelog.config.broker import BrokerConfig
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Runtime
    from tidelog_storage.log import Log
    from tidelog_storage.types import TopicPartition

__all__ = ["LogDirMoves"]

_log = logging.getLogger(__name__)

_RATE_KEY = "replica.alter.log.dirs.io.max.bytes.per.second"
_RATE_DEFAULT = 2**63 - 1
_ASK_AGAIN_S = 0.1


class _Step(Enum):
    """The progress of a move, checked whenever the future replica has caught up.

    - COPYING: it has caught up for the first time; its log is being flushed.
    - FLUSHED: the new directory is reported first, if the controller knows the current one.
    - KNOWN: its log replaces the current one, unless that has grown meanwhile.
    """

    COPYING = auto()
    FLUSHED = auto()
    KNOWN = auto()


@dataclass(slots=True, eq=False)
class _Move:
    """One moving replica."""

    partition: Partition
    future: Partition
    fetcher_id: int
    step: _Step = _Step.COPYING


class LogDirMoves:
    """Invariant: `_moves` has the partitions whose `future` is set; each is in its fetcher."""

    def __init__(self, replicas: ReplicaManager, config: BrokerConfig, runtime: Runtime) -> None:
        self._replicas = replicas
        self._logs = replicas.logs
        self._config = config
        self._runtime = runtime
        self._fetchers_max = config.num_replica_alter_log_dirs_threads or len(self._logs.log_dirs)
        self._pace = MovePace(runtime.clock, self._bytes_per_second)
        self._moves: dict[tuple[str, int], _Move] = {}
        self._is_closed = False
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}  # ends of fetchers, reports

    def _bytes_per_second(self) -> int:
        image = self._replicas.image
        settings = {} if image is None else image.broker_config(self._config.node_id)
        text = settings.get(_RATE_KEY, "").strip()
        return int(text) if text.isdecimal() else _RATE_DEFAULT

    # ---- requests -----------------------------------------------------------------------------

    def alter(self, key: TopicPartition, log_dir: str) -> ErrorCode:
        """Begin to move a replica to a directory; moving to its current one cancels a move.

        A replica that is not here is created there later, if ever: the answer is
        REPLICA_NOT_AVAILABLE or UNKNOWN_TOPIC_OR_PARTITION, as in Kafka.
        """
        refusal = self._refusal(key, log_dir)
        if refusal is not None:
            return refusal
        partition = self._replicas.partition(*key)
        if partition is ErrorCode.KAFKA_STORAGE_ERROR:
            return partition
        if isinstance(partition, ErrorCode):
            self._logs.prefer(key, log_dir)
            is_known = partition is ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.REPLICA_NOT_AVAILABLE if is_known else partition
        try:
            self._redirect(partition, log_dir)
        except OSError as error:
            _log.error("%s cannot be moved to %s: %s", key, log_dir, error)
            if not lacks_descriptors(error):
                self._replicas.disk_failed(key, error, log_dir)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _refusal(self, key: TopicPartition, log_dir: str) -> ErrorCode | None:
        """Return why no replica of a partition may be in a directory."""
        if len(future_folder(key, "0" * 32)) > FOLDER_NAME_MAX:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if log_dir not in self._logs.log_dirs:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if self._logs.files_of(log_dir).failure is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if log_dir in self._logs.cordoned:  # KIP-1066
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        return None

    def _redirect(self, partition: Partition, log_dir: str) -> None:
        key, logs = partition.topic_partition, self._logs
        if key in self._moves and logs.future_log_dir(key) == log_dir:
            return
        self._end(key)
        logs.delete_future(key, self._runtime.clock.wall_ms())
        self._correct(partition)
        if logs.log_dir(key) != log_dir:
            unique_id = self._runtime.rng.uuid().hex()
            log = logs.create_future(key, log_dir, unique_id, partition.log.config)
            _log.info("moving %s from %s to %s", key, logs.log_dir(key), log_dir)
            self._begin(partition, log)

    # ---- roles (see `RoleListener`) -----------------------------------------------------------

    def became_leader(self, partition: Partition) -> None:
        """Let the future replica follow the current one in its new role and epoch."""
        self.became_follower(partition)

    def became_follower(self, partition: Partition) -> None:
        """Like `became_leader`. A move interrupted by the last stop resumes."""
        move = self._moves.get(partition.topic_partition)
        if self._is_closed:
            return
        if move is not None:
            self._follow(move)
        elif self._logs.is_moving(partition.topic_partition):
            self._resume(partition)

    def stopped(self, partition: Partition, *, delete: bool) -> None:
        """Cancel the move, because the replica leaves this broker; the log manager owns its
        files."""
        del delete
        self._end(partition.topic_partition)

    def config_changed(self, partition: Partition) -> None:
        """Give the future log the same configuration."""
        if partition.future is None:
            return
        try:
            partition.future.log.config = partition.log.config
        except CheckpointError as error:  # it is tiered now, and its earlier epochs are lost
            _log.warning("giving up the move of %s: %s", partition.topic_partition, error)
            self._give_up(partition.topic_partition)

    def _resume(self, partition: Partition) -> None:
        key = partition.topic_partition
        try:
            log = self._logs.future(key)
            assert log is not None
            if log.topic_id == partition.topic_id:
                log.config = partition.log.config
                self._begin(partition, log)
                return
            _log.warning("giving up the move of %s: it was for another topic of that name", key)
        except (OSError, StorageError, CheckpointError) as error:
            _log.warning("giving up the move of %s: %s", key, error)
        self._give_up(key)

    # ---- moves --------------------------------------------------------------------------------

    def _begin(self, partition: Partition, log: Log) -> None:
        replicas, key = self._replicas, partition.topic_partition
        future = Partition(key, partition.topic_id, log, replicas.node_id, replicas.rules)
        partition.future = future
        # Neighbouring partitions go to different fetchers, as in `fetcher_manager.py`.
        number = int.from_bytes(partition.topic_id[:4], "big") + key.partition
        self._moves[key] = move = _Move(partition, future, number % self._fetchers_max)
        self._follow(move)

    def _follow(self, move: _Move) -> None:
        move.future.leader_epoch = move.partition.leader_epoch
        fetcher = self._fetchers.get(move.fetcher_id)
        if fetcher is None:
            fetcher = self._fetchers[move.fetcher_id] = self._new_fetcher(move.fetcher_id)
        fetcher.add(move.future, move.future.leader_epoch)

    def _new_fetcher(self, fetcher_id: int) -> ReplicaFetcher:
        runtime, replicas = self._runtime, self._replicas
        return ReplicaFetcher(
            f"{self._config.node_id}-log-dirs-{fetcher_id}",
            LocalLeader(replicas, runtime.clock, self._pace, self._caught_up),
            FetcherContext(
                config=self._config,
                clock=runtime.clock,
                rng=runtime.rng,
                broker_epoch=lambda: -1,
                on_advanced=replicas.delete_records_purgatory.check_all,
                on_disk_failure=self._disk_failed,
                aux_state_of=replicas.aux_state_of,
            ),
        )

    def _disk_failed(self, key: TopicPartition, error: Exception) -> None:
        """Cancel a move that failed, mostly as its future log could not be written: the current one
        is unaffected. The error may name a file of the current one's directory."""
        named = getattr(error, "filename", None)
        log_dir = self._logs.holder_of(f"{named}") or self._logs.future_log_dir(key)
        self._give_up(key)
        if not lacks_descriptors(error):
            self._replicas.disk_failed(key, error, log_dir)

    def directory_failed(self, log_dir: str, error: OSError) -> None:
        """Cancel the moves to a directory whose disk has failed."""
        del error
        for move in list(self._moves.values()):
            key = move.partition.topic_partition
            if self._logs.future_log_dir(key) == log_dir:
                self._give_up(key)

    def _give_up(self, key: TopicPartition) -> None:
        move = self._moves.get(key)
        self._end(key)
        with suppress(OSError):
            self._logs.delete_future(key, self._runtime.clock.wall_ms())
        if move is not None:
            self._correct(move.partition)

    def _correct(self, partition: Partition) -> None:
        """Correct the controller: the replica stays in its directory after all."""
        if self._is_elsewhere(partition, self._logs.log_dir(partition.topic_partition)):
            self._spawn(self._tell(partition), f"directory of {partition.topic_partition}")

    def _is_elsewhere(self, partition: Partition, log_dir: str) -> bool:
        return is_elsewhere(self._replicas, partition, self._logs.directory_id(log_dir))

    async def _tell(self, partition: Partition) -> None:
        """Report the replica's directory to the controller, unless it moves again."""
        key, logs, replicas = partition.topic_partition, self._logs, self._replicas
        while replicas.partition(*key) is partition and not logs.is_moving(key):
            directory_id = logs.directory_id(logs.log_dir(key))
            if await assign(replicas, [Assignment(key, partition.topic_id, directory_id)]):
                return
            await asyncio.sleep(_ASK_AGAIN_S)

    def _end(self, key: tuple[str, int]) -> None:
        """Stop copying a replica; the caller handles its log."""
        move = self._moves.pop(key, None)
        if move is None:
            return
        move.partition.future = None
        move.future.remove()
        fetcher = self._fetchers[move.fetcher_id]
        fetcher.remove(move.partition.topic_id, key[1])
        if fetcher.is_idle:
            del self._fetchers[move.fetcher_id]
            # It may be the current task.
            self._spawn(self._stop(fetcher), f"end of {fetcher!r}")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    @staticmethod
    async def _stop(fetcher: ReplicaFetcher) -> None:
        fetcher.stop()
        await fetcher.stopped()

    async def close(self) -> None:
        """Stop all copying; moves resume at the next start."""
        self._is_closed = True
        fetchers, self._fetchers = self._fetchers, {}
        for move in self._moves.values():
            move.partition.future = None
        self._moves.clear()
        await asyncio.gather(*[self._stop(fetcher) for fetcher in fetchers.values()])
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- the last step ------------------------------------------------------------------------

    async def _caught_up(self, partition: Partition) -> None:
        """Take the next step of a move whose future log has caught up."""
        move = self._moves.get(partition.topic_partition)
        if move is None:
            return
        if move.step is _Step.KNOWN and not self._is_behind(move):
            self._replace(move)
        elif move.step is _Step.FLUSHED:
            await self._make_known(move)
        else:
            await self._flush(move)

    @staticmethod
    def _is_behind(move: _Move) -> bool:
        """Return whether the future log has yet to flush what the current one has on disk."""
        return move.future.log.recovery_point < move.partition.log.recovery_point

    async def _flush(self, move: _Move) -> None:
        log, key = move.future.log, move.partition.topic_partition
        try:
            flush = log.prepare_flush()
            if flush is not None:
                await self._runtime.executor.run(flush)
                log.flushed(flush)
        except OSError as error:
            if self._moves.get(key) is move:
                self._disk_failed(key, error)
            return
        if move.step is _Step.COPYING:
            move.step = _Step.FLUSHED

    async def _make_known(self, move: _Move) -> None:
        """Report the new directory before the replica leaves the current one, which may then be
        removed."""
        partition, key = move.partition, move.partition.topic_partition
        log_dir = self._logs.future_log_dir(key)
        assert log_dir is not None
        if self._is_elsewhere(partition, log_dir):
            directory_id = self._logs.directory_id(log_dir)
            try:
                known = Assignment(key, partition.topic_id, directory_id)
                is_known = await assign(self._replicas, [known])
            finally:
                # cancelled meanwhile: the report must be corrected
                if self._moves.get(key) is not move:
                    self._spawn(self._tell(partition), f"directory of {key}")
            if not is_known:
                await asyncio.sleep(_ASK_AGAIN_S)
                return
        move.step = _Step.KNOWN

    def _replace(self, move: _Move) -> None:
        partition, log = move.partition, move.future.log
        key = partition.topic_partition
        try:
            _hand_over(partition.log, log)
            self._logs.replace_current(key, self._runtime.clock.wall_ms())
        except OSError as error:
            self._disk_failed(key, error)
            return
        self._end(key)
        partition.log = log
        _log.info("moved %s to %s", key, self._logs.log_dir(key))
        self._replicas.log_replaced(partition)


def _hand_over(old: Log, new: Log) -> None:
    """Copy the state that a log does not get by following."""
    new.set_high_watermark(old.high_watermark)
    new.maybe_increment_log_start(old.log_start_offset, "moved to another log directory")
    new.set_highest_remote_offset(old.highest_remote_offset)
    if old.epochs.latest_epoch > new.epochs.latest_epoch:
        new.assign_epoch(old.epochs.latest_epoch)  # the epoch of a leader without records yet
