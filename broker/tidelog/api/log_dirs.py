"""DescribeLogDirs (API 35): what lies where, and how large it is.

Behaviour. Every log directory of the broker, with the partitions asked for (null: all) that have a
log in it. The lag is that of the log end behind the high watermark, 0 on a leader. Topics without a
partition here are left out.

Left out: moving replicas between directories (`is_future_key` is always false), cordoned
directories.

Version notes. 2: flexible. 3: top-level error code. 4 (KIP-827): size and free bytes of the volume,
-1 if the file system does not tell. 5 (KIP-1066): cordoned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.apis import ApiKey
from tidelog_protocol.messages.admin import DescribeLogDirsResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.admin import DescribeLogDirsRequest
    from tidelog_storage.manager import LogManager

__all__ = ["LogDirsApi"]

_Result = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = _Result.DescribeLogDirsTopic
_Partition = _Topic.DescribeLogDirsPartition


def unknown_volume(directory: str) -> tuple[int, int]:
    """Total and usable bytes of a volume that nobody can ask."""
    del directory
    return (-1, -1)


class LogDirsApi:
    """Handler of DescribeLogDirs."""

    def __init__(
        self,
        logs: LogManager,
        volume_bytes: Callable[[str], tuple[int, int]] = unknown_volume,
    ) -> None:
        """`volume_bytes` tells total and usable bytes of a directory's volume."""
        self._logs = logs
        self._volume_bytes = volume_bytes

    def handlers(self) -> dict[ApiKey, Handler]:
        """What this object serves."""
        return {ApiKey.DESCRIBE_LOG_DIRS: self.describe_log_dirs}

    def describe_log_dirs(
        self, context: RequestContext, request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse:
        """All directories, with the partitions asked for."""
        del context
        asked = (
            None
            if request.topics is None
            else {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        )
        return DescribeLogDirsResponse(
            results=[self._directory(directory, asked) for directory in self._logs.log_dirs]
        )

    def _directory(self, directory: str, asked: set[tuple[str, int]] | None) -> _Result:
        topics: dict[str, list[_Partition]] = {}
        for key, log in self._logs.items():
            if (asked is None or key in asked) and self._logs.log_dir(key) == directory:
                topics.setdefault(key.topic, []).append(
                    _Partition(
                        partition_index=key.partition,
                        partition_size=log.size_in_bytes,
                        offset_lag=max(log.high_watermark - log.log_end_offset, 0),
                    )
                )
        total, usable = self._volume_bytes(directory)
        return _Result(
            log_dir=directory,
            topics=[
                _Topic(name=name, partitions=partitions) for name, partitions in topics.items()
            ],
            total_bytes=total,
            usable_bytes=usable,
        )
