"""DescribeQuorum as it can be compared: who leads and how far everybody is changes all the time."""

from __future__ import annotations

from typing import Any

CLOSE = 50  # records that a moment may bring


def quorum_fields(topic: str = "__cluster_metadata", partition: int = 0) -> dict[str, Any]:
    """A request for one partition."""
    return {"topics": [{"topic_name": topic, "partitions": [{"partition_index": partition}]}]}


def described(answer: dict[str, Any]) -> dict[str, Any]:
    """What of the answer does not change from moment to moment."""
    (topic,) = answer["topics"]
    (partition,) = topic["partitions"]
    end = partition["high_watermark"]
    voters = sorted(partition["current_voters"], key=lambda one: one["replica_id"])
    nodes = sorted(answer.get("nodes", []), key=lambda one: one["node_id"])
    return {
        **answer,
        "topics": [topic["topic_name"], partition["partition_index"]],
        "nodes": [
            [(one["name"], one["host"], one["port"] > 0) for one in node["listeners"]]
            for node in nodes
        ],
        "errors": [partition["error_code"], partition.get("error_message")],
        "a voter leads": partition["leader_id"] in [one["replica_id"] for one in voters],
        "in an epoch": partition["leader_epoch"] > 0,
        "voters": [_shown(one, end) for one in voters],
        "observers": [_shown(one, end) for one in partition["observers"]],
    }


def _shown(replica: dict[str, Any], high_watermark: int) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "replica_id": replica["replica_id"],
        "is close": abs(high_watermark - replica["log_end_offset"]) < CLOSE,
    }
    if "replica_directory_id" in replica:
        shown["has a directory id"] = any(replica["replica_directory_id"])
    for key in ("last_fetch_timestamp", "last_caught_up_timestamp"):
        if key in replica:
            shown[key] = "<time>" if replica[key] > 0 else replica[key]
    return shown
