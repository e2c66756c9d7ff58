"""The settings of the cluster on which a vector is played."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog_scenarios.vocabulary import VOTERS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["broker_settings", "metadata_on", "topic_settings"]

_TASK_INTERVAL = "remote.log.manager.task.interval.ms"
_OF_BROKERS = "remote."
# Steps, not retention, delete local segments.
_OF_STEPS = {"local.retention.bytes"}


def broker_settings(document: Mapping[str, Any], *, at_rest: bool) -> dict[str, str]:
    """Return the broker settings of a vector, without the interval of the tier's tasks if these
    are `at_rest` until their steps."""
    config = document["given"].get("config", {})
    settings = {key: str(value) for key, value in config.items() if key.startswith(_OF_BROKERS)}
    if at_rest:
        settings.pop(_TASK_INTERVAL, None)
    if any(step["do"]["action"] == "delete_topic" for step in document["steps"]):
        # After this time a follower checks whether the leader marked the partition.
        settings[_TASK_INTERVAL] = "1000"
    return settings


def topic_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the topic settings of a vector."""
    return {
        key: value
        for key, value in given.get("config", {}).items()
        if not key.startswith(_OF_BROKERS) and key not in _OF_STEPS
    }


def metadata_on(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the replicas of the remote tier's metadata topic, its first leader first.

    The voters hold it, because they never stop. Steps that run the partition remover need it on
    their brokers: its leader removes the remote segments of deleted topics.
    """
    removers = (
        step["do"]["broker"]
        for step in document["steps"]
        if step["do"].get("task") == "remote_partition_remover"
    )
    return tuple(dict.fromkeys(removers)) or tuple(VOTERS)
