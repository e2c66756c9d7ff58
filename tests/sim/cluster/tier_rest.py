"""That a tiered log comes to rest: when nothing disturbs it any more, whatever may be copied soon
is, every replica knows it, and nothing is local that local retention lets go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.cluster.metadata.image import ClusterImage, PartitionImage


def unmoved(image: ClusterImage, partitions: Iterable[Any]) -> str | None:
    """A tiered log with something still to be copied or to be deleted locally; None if there is
    none. `partitions` are all replicas."""
    replicas: dict[tuple[str, int], list[Any]] = {}
    for partition in partitions:
        log = partition.log
        if log.is_tiered and not log.config.remote_log_copy_disable:
            replicas.setdefault(partition.topic_partition, []).append(partition)
    for key, found in replicas.items():
        state = image.partition(*key)
        if state is not None and (reason := _unmoved(state, found)) is not None:
            return f"{key[0]}-{key[1]}: {reason}"
    return None


def _unmoved(state: PartitionImage, replicas: list[Any]) -> str | None:
    leader = next((each for each in replicas if each.node_id == state.leader), None)
    if leader is None or not leader.is_leader:
        return "nobody leads"
    log = leader.log
    stable = [end for end in _ends(log) if end <= log.last_stable_offset]
    copied: int = log.highest_remote_offset
    if stable and copied + 1 < stable[-1]:
        return f"{log!r} is sealed to {stable[-1]}, and copied to {copied}"
    for replica in replicas:
        log = replica.log
        # When the topic left the tier, one with a shorter local part than the leader's began there:
        # what is copied, since the topic is back, may end before that.
        if log.highest_remote_offset < copied and log.log_start_offset <= copied:
            return (
                f"broker {replica.node_id} takes it for copied to {log.highest_remote_offset},"
                f" its leader {state.leader} to {copied}"
            )
        if may_shrink(log):
            return (
                f"broker {replica.node_id} has {[each.base_offset for each in log.segments]},"
                f" copied to {copied}; {log!r}"
            )
    return None


def _ends(log: Any) -> list[int]:
    """Behind each sealed segment."""
    return [each.base_offset for each in log.segments][1:]


def may_shrink(log: Any) -> bool:
    """Whether the first segment is sealed, committed and remote, and the others are as much as is
    to be local."""
    limit, ends = log.config.effective_local_retention_bytes, _ends(log)
    if limit < 0 or not ends or ends[0] > min(log.high_watermark, log.highest_remote_offset + 1):
        return False
    sizes = [each.size for each in log.segments]
    return bool(sum(sizes[1:]) >= limit)
