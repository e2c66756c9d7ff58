"""Moves of this broker's replicas between its log directories (AlterReplicaLogDirs, KIP-113).

Owns: which replicas are being moved, and the fetchers that copy them. A replica that moves has a
future replica beside it (`Partition.future`), which follows it through `local_leader.py` as a
follower follows a leader. When the future one has everything, its log takes the place of the
current one's, between two steps of the loop (`LogFolders.replace_current`), and is the partition's
from then on; whoever asks for the partition notices nothing.

Made when the first move is asked for, or at the start if one was interrupted. Kafka: ReplicaManager
(alterReplicaLogDirs), ReplicaAlterLogDirsManager and -Thread.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.replication.local_leader import LocalLeader, MovePace
from tidelog.replication.partition import Partition
from tidelog.replication.replica_fetcher import ReplicaFetcher
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.checkpoints import CheckpointError
from tidelog_storage.directory import FOLDER_NAME_MAX, future_folder
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Runtime
    from tidelog_storage.log import Log
    from tidelog_storage.types import TopicPartition

__all__ = ["LogDirMoves"]

_log = logging.getLogger(__name__)

_RATE_KEY = "replica.alter.log.dirs.io.max.bytes.per.second"
_RATE_DEFAULT = 2**63 - 1


class _Move:
    """One replica on its way. `is_flushed`: what it had when it first caught up is durable."""

    __slots__ = ("fetcher_id", "future", "is_flushed", "partition")

    def __init__(self, partition: Partition, future: Partition, fetcher_id: int) -> None:
        self.partition = partition
        self.future = future
        self.fetcher_id = fetcher_id
        self.is_flushed = False


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
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def _bytes_per_second(self) -> int:
        image = self._replicas.image
        settings = {} if image is None else image.broker_config(self._config.node_id)
        text = settings.get(_RATE_KEY, "").strip()
        return int(text) if text.isdecimal() else _RATE_DEFAULT

    # ---- what an admin asks -------------------------------------------------------------------

    def alter(self, key: TopicPartition, log_dir: str) -> ErrorCode:
        """Begin to move a replica to a directory; to the one it is in ends a move elsewhere.

        One that is not here is to be created there, if it ever is: REPLICA_NOT_AVAILABLE or
        UNKNOWN_TOPIC_OR_PARTITION all the same, as in Kafka.
        """
        if len(future_folder(key, "0" * 32)) > FOLDER_NAME_MAX:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if log_dir not in self._logs.log_dirs:
            return ErrorCode.LOG_DIR_NOT_FOUND
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
            self._replicas.disk_failed(key, error, log_dir)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _redirect(self, partition: Partition, log_dir: str) -> None:
        key, logs = partition.topic_partition, self._logs
        if logs.future_log_dir(key) == log_dir:
            return
        self._end(key)
        logs.delete_future(key, self._runtime.clock.wall_ms())
        if logs.log_dir(key) != log_dir:
            unique_id = self._runtime.rng.uuid().hex()
            log = logs.create_future(key, log_dir, unique_id, partition.log.config)
            _log.info("moving %s from %s to %s", key, logs.log_dir(key), log_dir)
            self._begin(partition, log)

    # ---- roles (see `RoleListener`) -----------------------------------------------------------

    def became_leader(self, partition: Partition) -> None:
        """The current replica has another role: the future one follows it in this epoch."""
        self.became_follower(partition)

    def became_follower(self, partition: Partition) -> None:
        """As `became_leader`. A move that the last stop has interrupted is taken up again."""
        move = self._moves.get(partition.topic_partition)
        if move is not None:
            self._follow(move)
        elif self._logs.is_moving(partition.topic_partition):
            self._resume(partition)

    def stopped(self, partition: Partition, *, delete: bool) -> None:
        """The replica leaves this broker; what is on disk is the log manager's."""
        del delete
        self._end(partition.topic_partition)

    def config_changed(self, partition: Partition) -> None:
        """The future log goes by the same configuration."""
        if partition.future is None:
            return
        try:
            partition.future.log.config = partition.log.config
        except CheckpointError as error:  # it is tiered now, and the epochs of before are lost
            _log.warning("the move of %s is given up: %s", partition.topic_partition, error)
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
            _log.warning("a move of %s was for another topic of that name", key)
        except (OSError, StorageError, CheckpointError) as error:
            _log.warning("the move of %s is given up: %s", key, error)
        self._give_up(key)

    # ---- moves --------------------------------------------------------------------------------

    def _begin(self, partition: Partition, log: Log) -> None:
        replicas, key = self._replicas, partition.topic_partition
        future = Partition(key, partition.topic_id, log, replicas.node_id, replicas.rules)
        partition.future = future
        # Neighbours go to different fetchers, as in `fetcher_manager.py`.
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
            config=self._config,
            clock=runtime.clock,
            rng=runtime.rng,
            broker_epoch=lambda: -1,
            on_advanced=replicas.delete_records_purgatory.check_all,
            on_disk_failure=self._disk_failed,
            aux_state_of=replicas.aux_state_of,
        )

    def _disk_failed(self, key: TopicPartition, error: Exception) -> None:
        """The future log could not be written: the current one is as good as it was."""
        log_dir = self._logs.future_log_dir(key)
        self._give_up(key)
        self._replicas.disk_failed(key, error, log_dir)

    def _give_up(self, key: TopicPartition) -> None:
        self._end(key)
        with suppress(OSError):
            self._logs.delete_future(key, self._runtime.clock.wall_ms())

    def _end(self, key: tuple[str, int]) -> None:
        """Copy it no more; its log is the caller's business."""
        move = self._moves.pop(key, None)
        if move is None:
            return
        move.partition.future = None
        move.future.remove()
        fetcher = self._fetchers[move.fetcher_id]
        fetcher.remove(move.partition.topic_id, key[1])
        if fetcher.is_idle:
            del self._fetchers[move.fetcher_id]
            # It may be the one that runs now.
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._stop(fetcher), name=f"end of {fetcher!r}")
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    @staticmethod
    async def _stop(fetcher: ReplicaFetcher) -> None:
        fetcher.stop()
        await fetcher.stopped()

    async def close(self) -> None:
        """Copy nothing from now on; moves are taken up at the next start."""
        fetchers, self._fetchers = self._fetchers, {}
        for move in self._moves.values():
            move.partition.future = None
        self._moves.clear()
        await asyncio.gather(*[self._stop(fetcher) for fetcher in fetchers.values()])
        await asyncio.gather(*self._ending, return_exceptions=True)

    # ---- the last step ------------------------------------------------------------------------

    async def _caught_up(self, partition: Partition) -> None:
        """The future log ends where the current one does. What is durable in that one is to be
        durable in this one too, so it is flushed first; then it takes the other's place."""
        move = self._moves.get(partition.topic_partition)
        if move is None:
            return
        log = move.future.log
        if move.is_flushed and log.recovery_point >= partition.log.recovery_point:
            self._replace(move)
            return
        try:
            flush = log.prepare_flush()
            if flush is not None:
                await self._runtime.executor.run(flush)
                log.flushed(flush)
            move.is_flushed = True
        except OSError as error:
            if self._moves.get(partition.topic_partition) is move:
                self._disk_failed(partition.topic_partition, error)

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
    """What a log does not learn by following: all that makes it the partition's current one.

    OSError if the epochs can't be written.
    """
    new.set_high_watermark(old.high_watermark)
    new.maybe_increment_log_start(old.log_start_offset, "moved to another log directory")
    new.set_highest_remote_offset(old.highest_remote_offset)
    if old.epochs.latest_epoch > new.epochs.latest_epoch:
        new.assign_epoch(old.epochs.latest_epoch)  # a leader's that has written nothing yet
