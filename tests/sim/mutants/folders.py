"""Planted bugs of log directories: what is a log, and whose a directory is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog import foundation, server
from tidelog.replication import assigned_logs
from tidelog.replication.assigned_logs import AssignedLogs
from tidelog.replication.lost_logs import LostLogs
from tidelog_storage import directory, folders
from tidelog_storage.checkpoints import write_partition_metadata
from tidelog_storage.manager import LogManager
from tidelog_storage.recovery import _Loader

if TYPE_CHECKING:
    from collections.abc import Callable

    Patch = Callable[..., None]


class _AnyId(bytes):
    """Equal to every topic id."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__


def delete_strays(patch: Patch) -> None:
    """What the metadata does not know is deleted."""

    def set_aside(self: AssignedLogs, strays: Any, _reason: str) -> None:
        for keys in strays.values():
            for key in keys:
                self.delete(key)

    patch(AssignedLogs, "_set_aside", set_aside)


def adopt_logs_without_an_id(patch: Patch) -> None:
    """A log gets its id last, and one without is taken for the log of any topic of its name."""
    topic_id = _Loader.topic_id
    scan = directory.scan

    def make(self: Any, place: Any, name: str, partition: Any, *rest: Any) -> Any:
        new_id, config = rest
        self.forget_missing(partition)
        place.clear_for(partition)
        log = self._load_from(place, name, partition, config, new_id)
        write_partition_metadata(self._files, log.folder, new_id)
        return log

    def adopting_scan(*args: Any) -> Any:
        found = scan(*args)
        for adopted in (found.without_id, found.unwritten):
            found.current.update(dict.fromkeys(adopted, _AnyId(16)))
            adopted.clear()
        return found

    patch(LogManager, "_make", make)
    patch(directory, "scan", adopting_scan)
    patch(_Loader, "topic_id", lambda self: topic_id(self) or _AnyId(16))


def adopt_a_log_by_its_name(patch: Patch) -> None:
    """A log that is found at the start is the topic's of its name, whichever topic that is now."""
    is_assigned, opened = assigned_logs._is_assigned, AssignedLogs.open

    def is_named(image: Any, key: Any, _topic_id: bytes, node_id: int) -> bool:
        topic = image.topics.get(key.topic)
        return topic is not None and is_assigned(image, key, topic.topic_id, node_id)

    def open_any(self: Any, key: Any, topic_id: bytes, *rest: Any) -> Any:
        log = self._logs.get(key)
        if log is not None:
            log.topic_id = topic_id
        return opened(self, key, topic_id, *rest)

    patch(assigned_logs, "_is_assigned", is_named)
    patch(AssignedLogs, "open", open_any)


def believe_every_name(patch: Patch) -> None:
    """Every folder whose name ends in a number is a log."""

    def look_at(_files: Any, _directory: str, name: str, found: Any) -> None:
        partition = folders._partition_of(name)
        if partition is not None:
            path = f"{_directory}/{name}"
            topic_id = folders.read_partition_metadata(_files, path)
            found.current[partition] = topic_id or bytes(16)

    patch(folders, "_look_at", look_at)


def begin_lost_logs_anew(patch: Patch) -> None:
    """A log that is gone comes back empty, whoever counts on it."""
    patch(LostLogs, "keeps_offline", lambda *_: None)


def format_by_itself(patch: Patch) -> None:
    """A node with an empty disk formats it, and votes."""

    def open_logs(config: Any, runtime: Any, _new_cluster_id: str | None = None) -> Any:
        return foundation.open_logs(config, runtime, "simulated-cluster-0000")

    patch(server, "open_logs", open_logs)


LIVES = {
    "adopt-a-log-by-its-name": adopt_a_log_by_its_name,
    "adopt-logs-without-an-id": adopt_logs_without_an_id,
    "begin-lost-logs-anew": begin_lost_logs_anew,
    "believe-every-name": believe_every_name,
    "delete-strays": delete_strays,
}
VOTERS = {"format-by-itself": format_by_itself}
