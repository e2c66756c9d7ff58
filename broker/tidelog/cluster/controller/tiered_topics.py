"""New topics with remote storage by their names (`remote.storage.topics`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import is_internal_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.config.broker import BrokerConfig

__all__ = ["REMOTE_STORAGE_ENABLE", "joins_tier"]

REMOTE_STORAGE_ENABLE = "remote.storage.enable"


def joins_tier(name: str, configs: Mapping[str, str], config: BrokerConfig) -> bool:
    """Return whether a new topic with these settings gets remote storage by its name.

    A topic with a setting of its own does not, nor do internal and compacted topics.
    """
    patterns = config.remote_storage_topics
    if not patterns or REMOTE_STORAGE_ENABLE in configs or is_internal_topic(name):
        return False
    policy = configs.get("cleanup.policy", ",".join(config.log_defaults.cleanup_policy))
    if "compact" in policy:
        return False
    from fnmatch import fnmatchcase  # noqa: PLC0415 - few brokers have patterns

    return any(fnmatchcase(name, pattern) for pattern in patterns)
