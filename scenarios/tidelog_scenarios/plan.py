"""What a vector asks of the cluster that it is to be played on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog_scenarios.words import VOTERS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["broker_settings", "metadata_on", "topic_settings"]

_TASK_INTERVAL = "remote.log.manager.task.interval.ms"
_OF_BROKERS = "remote."
# Steps say what local retention lets go.
_OF_STEPS = {"local.retention.bytes"}


def broker_settings(document: Mapping[str, Any], *, at_rest: bool) -> dict[str, str]:
    """What its configuration says to brokers; how often the tier's tasks run not where they are
    `at_rest` until their steps come."""
    config = document["given"].get("config", {})
    settings = {key: str(value) for key, value in config.items() if key.startswith(_OF_BROKERS)}
    if at_rest:
        settings.pop(_TASK_INTERVAL, None)
    if any(step["do"]["action"] == "delete_topic" for step in document["steps"]):
        # A follower looks after so long whether the leader has marked the partition.
        settings[_TASK_INTERVAL] = "1000"
    return settings


def topic_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """What its configuration says to the topic."""
    return {
        key: value
        for key, value in given.get("config", {}).items()
        if not key.startswith(_OF_BROKERS) and key not in _OF_STEPS
    }


def metadata_on(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Who holds the remote tier's metadata topic: where no actor's end takes it away, unless actors
    are to remove what is remote of deleted topics. That is whose who leads it, in this order."""
    removers = (
        step["do"]["broker"]
        for step in document["steps"]
        if step["do"].get("task") == "remote_partition_remover"
    )
    return tuple(dict.fromkeys(removers)) or tuple(VOTERS)
