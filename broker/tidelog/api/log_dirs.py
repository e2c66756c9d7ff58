"""DescribeLogDirs (API 35): the place and size of logs. AlterReplicaLogDirs (34): move them.

Behaviour. The response has every log directory of the broker, with the requested partitions (null:
all) that have a log in it. The lag is that of the log end behind the high watermark, 0 on a leader;
that of a future log (`is_future_key`) is behind the end of the current one. Topics without a
partition here are left out. Directories have absolute names in both, also where `log.dirs` has not.

A move is answered once it has begun; `replication/log_dir_moves.py` has its rules and errors.

Version notes. 2: both flexible. 3: top-level error code. 4 (KIP-827): size and free bytes of the
volume, -1 if the file system does not report them. 5 (KIP-1066): cordoned.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidelog.network.wide_requests import PART_MAX, in_turns
from tidelog.seams import unknown_volume
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import (
    AlterReplicaLogDirsResponse,
    DescribeLogDirsResponse,
)
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog.replication.log_dir_moves import LogDirMoves
    from tidelog_protocol.messages.admin import (
        AlterReplicaLogDirsRequest,
        DescribeLogDirsRequest,
    )
    from tidelog_storage.log import Log
    from tidelog_storage.manager import LogManager

__all__ = ["LogDirsApi"]

MOVES_AT_ONCE = 20
"""Replicas that begin to move between two turns of the loop: each opens files."""

_Result = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = _Result.DescribeLogDirsTopic
_Partition = _Topic.DescribeLogDirsPartition
_Altered = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult


class LogDirsApi:
    """Handlers of DescribeLogDirs and AlterReplicaLogDirs."""

    def __init__(
        self,
        logs: LogManager,
        volume_bytes: Callable[[str], tuple[int, int]] = unknown_volume,
        moves: Callable[[], LogDirMoves] | None = None,
        may_cordon: Callable[[], bool] = lambda: True,
    ) -> None:
        """`volume_bytes` returns total and usable bytes of a directory's volume; `moves` creates
        the mover of replicas on first use. `may_cordon` returns whether the cluster's
        metadata.version has cordoned directories."""
        self._logs = logs
        self._volume_bytes = volume_bytes
        self._moves = moves
        self._may_cordon = may_cordon

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.DESCRIBE_LOG_DIRS: self.describe_log_dirs,
            ApiKey.ALTER_REPLICA_LOG_DIRS: self.alter_replica_log_dirs,
        }

    def alter_replica_log_dirs(
        self, context: RequestContext, request: AlterReplicaLogDirsRequest
    ) -> Any:
        """Begin to move replicas; for one named twice the last directory counts."""
        return in_turns(self._altered(request), context)

    def _altered(
        self, request: AlterReplicaLogDirsRequest
    ) -> Generator[None, None, AlterReplicaLogDirsResponse]:
        """Answer, with a `yield` between parts: each move opens files."""
        assert self._moves is not None
        directories = {_absolute(path): path for path in self._logs.log_dirs}
        wanted = {
            TopicPartition(topic.name, index): directories.get(one.path, "")
            for one in request.dirs
            for topic in one.topics
            for index in topic.partitions
        }
        results: dict[str, _Altered] = {}
        for number, (key, path) in enumerate(wanted.items(), 1):
            if not number % MOVES_AT_ONCE:
                yield
            error = self._moves().alter(key, path)
            result = results.setdefault(key.topic, _Altered(topic_name=key.topic, partitions=[]))
            result.partitions.append(
                _Altered.AlterReplicaLogDirPartitionResult(
                    partition_index=key.partition, error_code=error
                )
            )
        return AlterReplicaLogDirsResponse(results=list(results.values()))

    def describe_log_dirs(self, context: RequestContext, request: DescribeLogDirsRequest) -> Any:
        """Describe all directories, with the requested partitions."""
        return in_turns(self._described(request), context)

    def _described(
        self, request: DescribeLogDirsRequest
    ) -> Generator[None, None, DescribeLogDirsResponse]:
        """Answer, with a `yield` between parts."""
        asked = (
            None
            if request.topics is None
            else {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        )
        results = []
        for directory in self._logs.directories:
            if directory.failure is None:
                results.append((yield from self._directory(directory.path, asked)))
            else:
                code = ErrorCode.KAFKA_STORAGE_ERROR
                results.append(_Result(error_code=code, log_dir=_absolute(directory.path)))
        return DescribeLogDirsResponse(results=results)

    def _directory(
        self, directory: str, asked: set[tuple[str, int]] | None
    ) -> Generator[None, None, _Result]:
        topics: dict[str, list[_Partition]] = {}
        for number, (key, log) in enumerate(self._logs.items(), 1):
            if asked is None or key in asked:
                if self._logs.log_dir(key) == directory:
                    topics.setdefault(key.topic, []).append(_partition(key, log))
                if self._logs.future_log_dir(key) == directory:
                    future = self._logs.future(key)
                    assert future is not None
                    topics.setdefault(key.topic, []).append(_partition(key, future, log))
            if not number % PART_MAX:
                yield
        total, usable = self._volume_bytes(directory)
        return _Result(
            log_dir=_absolute(directory),
            topics=[
                _Topic(name=name, partitions=partitions) for name, partitions in topics.items()
            ],
            total_bytes=total,
            usable_bytes=usable,
            is_cordoned=directory in self._logs.cordoned and self._may_cordon(),
        )


def _absolute(path: str) -> str:
    """Return an absolute path as Java's File does: `.` and `..` stay."""
    parts = f"{'' if path.startswith('/') else os.getcwd()}/{path}".split("/")
    return "/" + "/".join(part for part in parts if part)


def _partition(key: TopicPartition, log: Log, current: Log | None = None) -> _Partition:
    """Describe one log; `current` is the one that a future log will replace."""
    lag = max(log.high_watermark - log.log_end_offset, 0)
    return _Partition(
        partition_index=key.partition,
        partition_size=log.size_in_bytes,
        offset_lag=lag if current is None else current.log_end_offset - log.log_end_offset,
        is_future_key=current is not None,
    )
